"""The evidence of one run of the demo, read from where it was written, and the checks on it.

The sources are the compiled manifests, the runners' output, the proxy's history and log, the
database, and, byte for byte, the requests that the scripted model received.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

type Json = dict[str, Any]
type Check = tuple[bool, str]


@dataclass
class Evidence:
    """The directory of a run, and its secrets."""

    root: Path
    is_scripted: bool
    provider_keys: set[str]
    tool_token: str

    def granted_tools(self) -> dict[str, list[str]]:
        manifests = sorted((self.root / "runtime" / "context").glob("*/tools.json"))
        return {
            path.parent.name: [tool["name"] for tool in json.loads(path.read_bytes())["tools"]]
            for path in manifests
        }

    def agent_environment(self, agent: str) -> dict[str, str]:
        """Return the env file that the compiler wrote for the agent's runner."""
        lines = (
            (self.root / "runtime" / "agents" / agent / "env")
            .read_text(encoding="utf-8")
            .splitlines()
        )
        return dict(line.split("=", 1) for line in lines)

    def turns(self, agent: str, sdk: str = "*") -> list[Json]:
        """Return the turns of the agent's runners, of all or of that on one SDK, in their order."""
        logs = sorted(self.root.glob(f"runner-{agent}-{sdk}.log"))
        return [turn for log in logs for turn in _json_lines(log)]

    def notes(self, agent: str) -> Path:
        return self.root / f"notes-{agent}.txt"

    def history(self, agent: str) -> list[Json]:
        return _json_lines(self.root / "history" / agent / "history.jsonl")

    def hidden_lines(self, entries: list[Json]) -> list[str]:
        """Return a turn's calls inside the proxy, and its interventions by the proxy's own log."""
        lines = []
        for number, call in hidden_calls(entries):
            arguments, result = json.dumps(call["arguments"]), json.dumps(call["result"])
            short = result if len(result) <= 240 else result[:240] + " …"
            lines += [f"round {number}: {call['name']} {arguments}", f"  -> {short}"]
        turns = {entry["turn_id"] for entry in entries}
        events = [
            event for event in _json_lines(self.root / "proxy.log") if event.get("turn_id") in turns
        ]
        return lines + [
            f"intervention: {event['intervention']}"
            for event in events
            if event["type"] == "intervention"
        ]

    def live_turn(self, agent: str, sdk: str) -> list[tuple[float, str, str]]:
        """Return what came of the last turn on an SDK, in the order of time.

        Each entry has the seconds since the request, the text that the runner got then, and the
        managed call that was made then: one of the two is empty.
        """
        turn = self.turns(agent, sdk)[-1]
        turn_id = self.history(agent)[-1]["turn_id"]
        entries = [(when, text, "") for when, text in turn["parts"]]
        for event in _json_lines(self.root / "proxy.log"):
            if event["type"] == "tool_call" and event.get("turn_id") == turn_id:
                started = datetime.fromisoformat(event["started"]).timestamp()
                entries.append((started, "", f"round {event['round']}: {event['name']}"))
        return [(when - turn["asked_at"], *what) for when, *what in sorted(entries)]

    def orders(self) -> list[tuple[str, str, str, int, str]]:
        with closing(
            sqlite3.connect(f"{(self.root / 'desk.db').as_uri()}?mode=ro", uri=True)
        ) as db:
            return db.execute(
                "SELECT claw_id, side, symbol, quantity, status FROM orders ORDER BY id"
            ).fetchall()

    def model_requests(self) -> list[Json]:
        """Return the headers and the body of each request that the scripted model received."""
        return _json_lines(self.root / "model-requests.jsonl")


def hidden_calls(entries: list[Json]) -> list[tuple[int, Json]]:
    """Return the calls that the proxy made, each with its round."""
    return [
        (past["round"], call)
        for entry in entries
        for past in entry["tool_trace"]
        for call in past["tool_calls"]
    ]


def analyst_checks(run: Evidence) -> Iterator[Check]:
    yield _was_called(run, "analyst", "trading-api.get_market_context")
    yield (
        "50,000" in run.turns("analyst")[0]["text"],
        "The analyst's runner received the balance: 50,000.00.",
    )
    requests = [entry["request_effective"] for entry in run.history("analyst")]
    if run.is_scripted:
        requests = [json.loads(request["body"]) for request in run.model_requests()]
    is_withheld = all(
        request["tools"] and "execute_trade" not in json.dumps(request["tools"])
        for request in requests
    )
    yield is_withheld, "The analyst's model was never offered execute_trade."
    yield _was_called(run, "analyst", "journal.add_entry")
    authors = [entry["author"] for entry in _json_lines(run.root / "journal.jsonl")]
    yield (
        authors == ["analyst"],
        "The journal has one entry, and the proxy named its author: the analyst.",
    )


def executor_checks(run: Evidence) -> Iterator[Check]:
    order, note, orders = run.turns("executor")
    for tool in ("execute_trade", "get_quote", "get_order_history"):
        yield _was_called(run, "executor", f"trading-api.{tool}")
    yield _was_called(run, "executor", "journal.find_entries")
    calls, notes = [call["name"] for call in note["native_calls"]], run.notes("executor")
    yield (
        calls == ["write_note"] and notes.exists(),
        "The executor's runner received write_note and ran it once.",
    )
    if run.is_scripted:
        serialized = "intervention: managed_prefix_native_suffix_serialized" in run.hidden_lines(
            run.history("executor")
        )
        yield serialized, "The proxy ran the quote first, then handed write_note to the runner."
        yield (
            "431.17" in notes.read_text(encoding="utf-8"),
            "The note holds the price that the hidden call returned.",
        )
        yield (
            "below $140" in order["text"],
            "The executor's runner received the analyst's entry in its one answer.",
        )
        yield "10 NVDA" in orders["text"], "The executor's runner received its one order."


def responses_checks(run: Evidence) -> Iterator[Check]:
    note, orders, _ = run.turns("executor", "responses")
    calls = [call["name"] for call in note["native_calls"]]
    yield (
        calls == ["write_note"],
        "Its runner received write_note, and not the quote that the proxy ran first.",
    )
    repeated = {*note["repeated_tools"], *orders["repeated_tools"]}
    yield (
        repeated == {"write_note"},
        "Its responses repeat the runner's own tool, and none that the proxy added.",
    )
    if run.is_scripted:
        yield (
            "348.15" in run.notes("executor").read_text(encoding="utf-8"),
            "The note holds the quote's price.",
        )
        yield "10 NVDA" in orders["text"], "It received the order of the executor's other runner."


def live_checks(run: Evidence) -> Iterator[Check]:
    if not run.is_scripted:
        return  # Another model need not say anything before it calls a tool

    came = run.live_turn("executor", "responses")
    calls = [place for place, (_, _, hidden) in enumerate(came) if hidden]
    said = ["".join(text for _, text, _ in part) for part in (came[: calls[0]], came[calls[0] :])]
    yield (
        len(calls) == 1 and said[0].startswith("Before I answer"),
        "The runner had the model's first words before the tool was called.",
    )
    yield "227.91" in said[1], "It had the price after the call, in the same answer."


def audit_checks(run: Evidence) -> Iterator[Check]:
    order = ("executor", "buy", "NVDA", 10, "filled")
    yield (
        run.orders() == [order],
        "The database has exactly one order: the executor bought 10 NVDA.",
    )
    granted = run.granted_tools()
    calls = [(agent, call) for agent in granted for _, call in hidden_calls(run.history(agent))]
    yield (
        all(call["name"] in granted[agent] for agent, call in calls),
        "The proxy ran only calls that the agent was granted.",
    )
    records = {
        agent: call.get("mcp") or {} for agent, call in calls if call["service"] == "journal"
    }
    sessions = "; ".join(
        f"{agent} in session {mcp.get('session')}" for agent, mcp in records.items()
    )
    servers = {f"MCP {mcp.get('protocol')} to {mcp.get('server')}" for mcp in records.values()}
    yield (
        len(servers) == 1 and all(records.values()),
        f"The journal was called over {', '.join(servers)}: {sessions}.",
    )
    native = {
        call["name"]
        for agent in granted
        for turn in run.turns(agent)
        for call in turn["native_calls"]
    }
    yield native <= {"write_note"}, "No runner received the name of a tool that the proxy runs."


def leak_checks(run: Evidence) -> Iterator[Check]:
    """Search for each secret by value, in every file that the run wrote."""
    tokens = [run.agent_environment(agent)["CLLAMA_TOKEN"] for agent in run.granted_tools()]
    agents = {part for token in tokens for part in (token, token.rpartition(":")[2])}
    if run.is_scripted:
        headers = [request["headers"] for request in run.model_requests()]
        keys = {
            header.get("x-api-key") or header["authorization"].removeprefix("Bearer ")
            for header in headers
        }
        yield (
            keys == run.provider_keys,
            "The model was called with the provider's key and with no other credential.",
        )
        clean = not _contains([run.root / "model-requests.jsonl"], agents | {run.tool_token})
        yield (
            clean,
            "The model received no agent token and no tool token, in no byte of any request.",
        )
    services = run.provider_keys | {run.tool_token}
    yield (
        not _contains(run.root.glob("runner-*.log"), services),
        "The runners saw no provider key and no tool token.",
    )
    written = [run.root / "proxy.log", *(run.root / "history").rglob("*.jsonl*")]
    yield (
        not _contains(written, services | agents),
        "The proxy's log and history contain no secret.",
    )


def log_ends(root: Path) -> str:
    """Return the last lines of every log."""
    ends = {
        path.stem: path.read_text(encoding="utf-8").splitlines()[-15:]
        for path in sorted(root.glob("*.log"))
    }
    return "\n".join(
        line for name, end in ends.items() for line in (f"last lines of the log of {name}:", *end)
    )


def _was_called(run: Evidence, agent: str, tool: str) -> Check:
    calls = {call["name"] for _, call in hidden_calls(run.history(agent)) if call["status"] == "ok"}
    return tool in calls, f"The proxy ran {tool.rpartition('.')[2]} for the {agent}."


def _contains(files: Iterable[Path], secrets: set[str]) -> bool:
    return any(secret.encode() in file.read_bytes() for file in files for secret in secrets)


def _json_lines(path: Path) -> list[Json]:
    """Return the JSON objects among the lines of a file, if it exists; the last
    line counts once it has ended.
    """
    lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines if line.startswith("{")]
