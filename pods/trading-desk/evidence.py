"""The evidence of one run of the demo, read from where it was written, and the checks on it.

The sources are the compiled manifests, the runners' output, the proxy's history and log, the database, and, byte for byte,
the requests that the scripted model received.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

type Json = dict[str, Any]
type Check = tuple[bool, str]


@dataclass
class Evidence:
    """The directory of a run; for each agent its turns, the history of its requests, and its token."""

    root: Path
    is_scripted: bool
    provider_keys: set[str]
    tool_token: str
    turns: dict[str, list[Json]] = field(default_factory=dict)
    history: dict[str, list[Json]] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)

    def granted_tools(self) -> dict[str, list[str]]:
        manifests = sorted((self.root / "runtime" / "context").glob("*/tools.json"))
        return {path.parent.name: [tool["name"] for tool in _read_json(path)["tools"]] for path in manifests}

    def withheld_tools(self) -> dict[str, list[str]]:
        """Return for each agent the tools that another agent of the pod may call and it may not."""
        granted = self.granted_tools()
        every = dict.fromkeys(tool for tools in granted.values() for tool in tools)
        return {agent: [tool for tool in every if tool not in tools] for agent, tools in granted.items()}

    def agent_environment(self, agent: str) -> dict[str, str]:
        """Return the env file that the compiler wrote for the agent's runner."""
        lines = (self.root / "runtime" / "agents" / agent / "env").read_text(encoding="utf-8").splitlines()
        pairs = (line.partition("=") for line in lines if not line.startswith("#"))
        return {key: value.strip("'\"") for key, _, value in pairs}

    def history_lines(self, agent: str) -> list[Json]:
        path = self.root / "history" / agent / "history.jsonl"
        return _json_lines(path.read_text(encoding="utf-8")) if path.exists() else []

    def interventions(self, turn_id: str) -> list[str]:
        """Return what the proxy logged about the turn beside its tool calls."""
        events = _json_lines((self.root / "proxy.log").read_text(encoding="utf-8"))
        matching = (event for event in events if event.get("turn_id") == turn_id and event["type"] == "intervention")
        return [event["intervention"] for event in matching]

    def orders(self) -> list[tuple[str, str, str, int, str]]:
        with closing(sqlite3.connect(f"{(self.root / 'desk.db').as_uri()}?mode=ro", uri=True)) as db:
            return db.execute("SELECT claw_id, side, symbol, quantity, status FROM orders ORDER BY id").fetchall()

    def model_requests(self) -> str:
        return (self.root / "model-requests.jsonl").read_text(encoding="utf-8")


def hidden_calls(entries: list[Json]) -> list[tuple[int, Json]]:
    """Return the calls that the proxy made, each with its round."""
    return [(past["round"], call) for entry in entries for past in entry["tool_trace"] for call in past["tool_calls"]]


def offered_tools(request: Json) -> set[str]:
    """Return the names of a model request's tools, in either protocol."""
    return {tool.get("function", tool)["name"] for tool in request.get("tools", [])}


def analyst_checks(run: Evidence) -> Iterator[Check]:
    yield (
        "trading-api.get_market_context" in _tools(run, "analyst"),
        "The proxy ran get_market_context for the analyst.",
    )
    yield "50,000" in run.turns["analyst"][0]["text"], "The analyst's runner received the balance: 50,000.00."
    offers = [offered_tools(entry["request_effective"]) for entry in run.history["analyst"]]
    if run.is_scripted:
        offers = [offered_tools(json.loads(line["body"])) for line in _json_lines(run.model_requests())]
    is_withheld = all(offers) and not any("execute_trade" in name for names in offers for name in names)
    yield is_withheld, "The analyst's model was never offered execute_trade."
    yield run.orders() == [], "The database has no order."


def executor_checks(run: Evidence) -> Iterator[Check]:
    tools, (trade, note, orders) = _tools(run, "executor"), run.turns["executor"]
    yield "trading-api.execute_trade" in tools, "The proxy ran execute_trade for the executor."
    yield trade["native_calls"] == [], "The executor's runner received no tool call for the trade."
    calls = [call["name"] for call in note["native_calls"]]
    notes = run.root / "notes-executor.txt"
    yield calls == ["write_note"] and notes.exists(), "The executor's runner received write_note and ran it once."
    if run.is_scripted:
        serialized = run.interventions(run.history["executor"][1]["turn_id"])
        text = "The proxy ran the quote first, then handed write_note to the runner."
        yield "managed_prefix_native_suffix_serialized" in serialized, text
        has_price = notes.exists() and "431.17" in notes.read_text(encoding="utf-8")
        yield has_price, "The note holds the price that the hidden call returned."
        yield "10 NVDA" in orders["text"], "The executor's runner received its one order."
    yield "trading-api.get_order_history" in tools, "The proxy ran get_order_history for the executor."


def audit_checks(run: Evidence) -> Iterator[Check]:
    order = ("executor", "buy", "NVDA", 10, "filled")
    yield run.orders() == [order], "The database has exactly one order: the executor bought 10 NVDA."
    made = {(agent, name) for agent in run.history for name in _tools(run, agent)}
    granted = {(agent, tool) for agent, tools in run.granted_tools().items() for tool in tools}
    yield bool(made) and made <= granted, "The proxy ran only calls that the agent was granted."
    native = {call["name"] for turns in run.turns.values() for turn in turns for call in turn["native_calls"]}
    yield native <= {"write_note"}, "No runner received the name of a tool that the proxy runs."


def leak_checks(run: Evidence) -> Iterator[Check]:
    """Search for each secret by value, in every file that the run wrote."""
    agents = {part for token in run.tokens.values() for part in (token, token.rpartition(":")[2])}
    if run.is_scripted:
        requests = run.model_requests()
        headers = [line["headers"] for line in _json_lines(requests)]
        keys = {header.get("x-api-key") or header["authorization"].removeprefix("Bearer ") for header in headers}
        yield keys == run.provider_keys, "The model was called with the provider's key and with no other credential."
        clean = not _contains(requests, agents | {run.tool_token})
        yield clean, "The model received no agent token and no tool token, in no byte of any request."
    printed = "".join((run.root / f"runner-{agent}.log").read_text(encoding="utf-8") for agent in run.turns)
    yield (
        not _contains(printed, run.provider_keys | {run.tool_token}),
        "The runners saw no provider key and no tool token.",
    )
    files = [run.root / "proxy.log", *(run.root / "history").rglob("*.jsonl*")]
    written = "".join(file.read_text(encoding="utf-8") for file in files)
    clean = not _contains(written, agents | run.provider_keys | {run.tool_token})
    yield clean, "The proxy's log and history contain no secret."


def _tools(run: Evidence, agent: str) -> set[str]:
    return {call["name"] for _, call in hidden_calls(run.history[agent]) if call["status"] == "ok"}


def _contains(text: str, secrets: set[str]) -> bool:
    return any(secret in text for secret in secrets)


def _read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _json_lines(text: str) -> list[Json]:
    """Return the JSON objects among the lines; the last line counts once it has ended."""
    return [json.loads(line) for line in text.split("\n")[:-1] if line.startswith("{")]
