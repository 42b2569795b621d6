"""The structured log: one JSON object a line (spec/contract.md "The log")."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from claw_contract.log import EventType
from claw_contract.secret import Redactor, Secret


def now_rfc3339() -> str:
    """The time as RFC 3339 with milliseconds, in UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def to_stdout(line: bytes) -> None:
    """One line, at once; a reader that has gone away, or a disk that is full, must not stop the proxy."""
    try:
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
    except (OSError, ValueError):
        return


class EventLog:
    """Writes events. ``Redactor`` is the last thing that touches a line."""

    def __init__(self, write: Callable[[bytes], None] = to_stdout) -> None:
        self._write = write
        self._secrets: frozenset[Secret] = frozenset()
        self._redactor = Redactor(())

    def protect(self, secrets: Iterable[Secret]) -> None:
        """From now on these secrets, too, are blanked out in every line."""
        known = self._secrets.union(secrets)
        if known != self._secrets:
            self._secrets, self._redactor = known, Redactor(known)

    def event(self, kind: EventType, claw_id: str | None = None, **fields: Any) -> None:
        """One event; ``turn_id``, ``model`` and ``intervention`` among the fields are part of every line."""
        common = {name: fields.pop(name, None) for name in ("turn_id", "model", "intervention")}
        line = msgspec.json.encode({"ts": now_rfc3339(), "type": kind, "claw_id": claw_id, **common, **fields})
        self._write(self._redactor.document(line) + b"\n")
