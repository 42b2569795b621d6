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

MAX_RESULT = 240
"""Characters of a result that are shown."""


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
        return {
            path.parent.name: [tool["name"] for tool in json.loads(path.read_text(encoding="utf-8"))["tools"]]
            for path in manifests
        }

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

    def read_history(self, agent: str) -> list[Json]:
        path = self.root / "history" / agent / "history.jsonl"
        return _json_lines(path) if path.exists() else []

    def hidden_lines(self, entries: list[Json]) -> list[str]:
        """Return a turn's calls inside the proxy, and its interventions by the proxy's own log."""
        lines = []
        for number, call in hidden_calls(entries):
            arguments, result = json.dumps(call["arguments"]), json.dumps(call["result"])
            short = result if len(result) <= MAX_RESULT else result[:MAX_RESULT] + " …"
            lines += [f"round {number}: {call['name']} {arguments}", f"  -> {short}"]
        return lines + [f"intervention: {name}" for name in self.interventions(entries)]

    def interventions(self, entries: list[Json]) -> list[str]:
        turns = {entry["turn_id"] for entry in entries}
        events = [event for event in _json_lines(self.root / "proxy.log") if event.get("turn_id") in turns]
        return [event["intervention"] for event in events if event["type"] == "intervention"]

    def orders(self) -> list[tuple[str, str, str, int, str]]:
        with closing(sqlite3.connect(f"{(self.root / 'desk.db').as_uri()}?mode=ro", uri=True)) as db:
            return db.execute("SELECT claw_id, side, symbol, quantity, status FROM orders ORDER BY id").fetchall()

    def model_requests(self) -> list[Json]:
        """Return the headers and the body of each request that the scripted model received."""
        return _json_lines(self.root / "model-requests.jsonl")


def hidden_calls(entries: list[Json]) -> list[tuple[int, Json]]:
    """Return the calls that the proxy made, each with its round."""
    return [(past["round"], call) for entry in entries for past in entry["tool_trace"] for call in past["tool_calls"]]


def offered_tools(request: Json) -> set[str]:
    """Return the names of a model request's tools, in either protocol."""
    return {tool.get("function", tool)["name"] for tool in request.get("tools", [])}


def analyst_checks(run: Evidence) -> Iterator[Check]:
    yield ("trading-api.get_market_context" in _tools(run, "analyst"), "The proxy ran get_market_context for the analyst.")
    yield "50,000" in run.turns["analyst"][0]["text"], "The analyst's runner received the balance: 50,000.00."
    offers = [offered_tools(entry["request_effective"]) for entry in run.history["analyst"]]
    if run.is_scripted:
        offers = [offered_tools(json.loads(request["body"])) for request in run.model_requests()]
    is_withheld = all(offers) and not any("execute_trade" in name for names in offers for name in names)
    yield is_withheld, "The analyst's model was never offered execute_trade."
    yield run.orders() == [], "The database has no order."


def executor_checks(run: Evidence) -> Iterator[Check]:
    tools, (trade, note, orders) = _tools(run, "executor"), run.turns["executor"]
    yield "trading-api.execute_trade" in tools, "The proxy ran execute_trade for the executor."
    yield trade["native_calls"] == [], "The executor's runner received no tool call for the trade."
    yield "trading-api.get_quote" in tools, "The proxy ran get_quote for the executor."
    calls = [call["name"] for call in note["native_calls"]]
    notes = run.root / "notes-executor.txt"
    yield calls == ["write_note"] and notes.exists(), "The executor's runner received write_note and ran it once."
    if run.is_scripted:
        serialized = run.interventions(run.history["executor"])
        text = "The proxy ran the quote first, then handed write_note to the runner."
        yield "managed_prefix_native_suffix_serialized" in serialized, text
        has_price = notes.exists() and "431.17" in notes.read_text(encoding="utf-8")
        yield has_price, "The note holds the price that the hidden call returned."
        yield "10 NVDA" in orders["text"], "The executor's runner received its one order."
    yield "trading-api.get_order_history" in tools, "The proxy ran get_order_history for the executor."


def audit_checks(run: Evidence) -> Iterator[Check]:
    order = ("executor", "buy", "NVDA", 10, "filled")
    yield run.orders() == [order], "The database has exactly one order: the executor bought 10 NVDA."
    made = {(agent, call["name"]) for agent, entries in run.history.items() for _, call in hidden_calls(entries)}
    granted = {(agent, tool) for agent, tools in run.granted_tools().items() for tool in tools}
    yield bool(made) and made <= granted, "The proxy ran only calls that the agent was granted."
    native = {call["name"] for turns in run.turns.values() for turn in turns for call in turn["native_calls"]}
    yield native <= {"write_note"}, "No runner received the name of a tool that the proxy runs."


def leak_checks(run: Evidence) -> Iterator[Check]:
    """Search for each secret by value, in every file that the run wrote."""
    agents = {part for token in run.tokens.values() for part in (token, token.rpartition(":")[2])}
    if run.is_scripted:
        headers = [request["headers"] for request in run.model_requests()]
        keys = {header.get("x-api-key") or header["authorization"].removeprefix("Bearer ") for header in headers}
        yield keys == run.provider_keys, "The model was called with the provider's key and with no other credential."
        clean = not _contains([run.root / "model-requests.jsonl"], agents | {run.tool_token})
        yield clean, "The model received no agent token and no tool token, in no byte of any request."
    printed = [run.root / f"runner-{agent}.log" for agent in run.turns]
    clean = not _contains(printed, run.provider_keys | {run.tool_token})
    yield clean, "The runners saw no provider key and no tool token."
    written = [run.root / "proxy.log", *(run.root / "history").rglob("*.jsonl*")]
    clean = not _contains(written, agents | run.provider_keys | {run.tool_token})
    yield clean, "The proxy's log and history contain no secret."


def log_ends(root: Path) -> str:
    """Return the last lines of every log."""
    logs = {path.stem: path.read_text(encoding="utf-8", errors="replace") for path in sorted(root.glob("*.log"))}
    ends = {name: "\n".join(line[:600] for line in text.splitlines()[-15:]) for name, text in logs.items()}
    return "\n".join(f"last lines of the log of {name}:\n{end}" for name, end in ends.items())


def _tools(run: Evidence, agent: str) -> set[str]:
    return {call["name"] for _, call in hidden_calls(run.history[agent]) if call["status"] == "ok"}


def _contains(files: list[Path], secrets: set[str]) -> bool:
    return any(secret.encode() in file.read_bytes() for file in files for secret in secrets)


def _json_lines(path: Path) -> list[Json]:
    """Return the JSON objects among the lines; the last line counts once it has ended."""
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    return [json.loads(line) for line in lines if line.startswith("{")]
