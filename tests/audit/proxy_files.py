"""History files and logs, written by the proxy's own writers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from claw_contract.redaction.redactor import Redactor
from claw_mediate.telemetry.event_log import EventLog
from claw_mediate.telemetry.history import History

NOBODY = Redactor(())


def call(name: str = "desk.balance", code: str = "", ms: int = 5, **more: Any) -> dict[str, Any]:
    """Return a managed call of a trace; with a code, a failed one."""
    result = (
        {"ok": False, "error": {"code": code, "message": "no"}}
        if code
        else {"ok": True, "data": {"usd": 1}}
    )
    known = {"service": name.partition(".")[0], "effect": "read", "ran": True, "duplicate": False}
    status = "error" if code else "ok"
    return {
        "name": name,
        "arguments": {},
        "result": result,
        "latency_ms": ms,
        "status": status,
        **known,
        **more,
    }


def entry(
    turn_id: str, *calls: dict[str, Any], ts: str = "2026-01-01T00:00:00.000Z", **more: Any
) -> dict[str, Any]:
    """Return an entry of history without its seal, with its calls in one round."""
    code = more.get("error")
    return {
        "version": 1,
        "turn_id": turn_id,
        "digest": None,
        "ts": ts,
        "claw_id": "analyst",
        "path": "/v1/chat/completions",
        "requested_model": "openai/gpt-5",
        "stream": False,
        "request_original": {"messages": []},
        "status": "error" if code else "ok",
        "effective_provider": "openai",
        "effective_model": "gpt-5",
        "status_code": 502 if code else 200,
        "latency_ms": 100,
        "resumed": False,
        "tools_offered": ["desk__balance"],
        "request_effective": {"messages": []},
        "response": {"format": "json", "json": {}},
        "usage": {
            "prompt_tokens": 10,
            "completion_tokens": 2,
            "cached_tokens": 1,
            "reported_cost_usd": 0.5,
            "total_rounds": 1,
        },
        "tool_trace": [{"round": 1, "wall_time_ms": 9, "tool_calls": list(calls)}] if calls else [],
        **more,
    }


class ProxyFiles:
    """A directory of history, and a log beside it."""

    def __init__(self, home: Path, max_bytes: int = 1 << 30, generations: int = 1) -> None:
        self.directory = home / "history"
        self.directory.mkdir(exist_ok=True)
        self.log = home / "proxy.log"
        self.log.touch()
        self._history = History(self.directory, max_bytes, generations)
        self.events = EventLog(self._write)

    def turn(
        self, turn_id: str, *calls: dict[str, Any], agent: str = "analyst", **more: Any
    ) -> str:
        """Append a line of history and return its hash."""
        return self._history.append(
            agent, {**entry(turn_id, *calls, **more), "claw_id": agent}, NOBODY
        ).hash

    def logged(self, turn_id: str, **more: Any) -> None:
        """Append a line of history, and log the event that ends its turn."""
        appended = self._history.append("analyst", entry(turn_id, **more), NOBODY)
        self.ends(
            turn_id,
            history_hash=appended.hash,
            **({"history_rotated": True} if appended.has_rotated else {}),
        )

    def ends(self, turn_id: str, agent: str = "analyst", **more: Any) -> None:
        """Log the event that ends a turn."""
        members = {
            "status_code": 200,
            "latency_ms": 100,
            "tokens_in": 10,
            "tokens_out": 2,
            "cached_tokens": 1,
            "cost_usd": 0.5,
        }
        kind = "error" if "error" in more else "response"
        self.events.event(
            kind, agent, turn_id=turn_id, model="gpt-5", **{**members, "total_rounds": 1, **more}
        )

    def file(self, agent: str = "analyst", name: str = "history.jsonl") -> Path:
        return self.directory / agent / name

    def lines(self, agent: str = "analyst", name: str = "history.jsonl") -> list[bytes]:
        return self.file(agent, name).read_bytes().splitlines(keepends=True)

    def _write(self, line: bytes) -> None:
        with self.log.open("ab") as out:
            out.write(line)


def json_lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_bytes().splitlines()]
