"""The structured log: one JSON object a line (spec/contract.md "The log"; ``claw_contract.log`` has every line)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec

from claw_contract.log import EventType
from claw_contract.redaction.redactor import Redactor
from claw_contract.secret import Secret
from claw_mediate.telemetry.event_log import escape_surrogates
from claw_mediate.telemetry.nonblocking_writer import LineWriter

_log = logging.getLogger(__name__)

type Event = Mapping[str, Any]
"""A line of the log, before its secrets are blanked out."""
type EventListener = Callable[[Event], None]


class AgentRef(Protocol):
    """An agent that is told of: ``digest`` names the compile by which it is governed."""

    @property
    def id(self) -> str: ...
    @property
    def digest(self) -> str: ...


def now_rfc3339() -> str:
    """The time as RFC 3339 with milliseconds, in UTC."""
    return _spelled(datetime.now(UTC))


def rfc3339(seconds: float) -> str:
    """POSIX time, likewise."""
    return _spelled(datetime.fromtimestamp(seconds, UTC))


def _spelled(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class EventLog:
    """Writes events. ``Redactor`` is the last thing that touches a line. Listeners hear of each, too: to count them."""

    def __init__(self, write: Callable[[bytes], None] | None = None) -> None:
        """Without ``write`` it goes to stdout."""
        self._lines = LineWriter.of(1) if write is None else None
        self._write = write or LineWriter.of(1).write
        self._secrets: frozenset[Secret] = frozenset()
        self._redactor = Redactor(())
        self._listeners: list[EventListener] = []

    def protect(self, secrets: Iterable[Secret]) -> None:
        """From now on these secrets, too, are blanked out in every line."""
        known = self._secrets.union(secrets)
        if known != self._secrets:
            self._secrets, self._redactor = known, Redactor(known)

    def add_listener(self, listener: EventListener) -> None:
        """From now on it hears of every event."""
        self._listeners.append(listener)

    def clear(self, text: str) -> str:
        """Text without the secrets, for a listener that passes it on."""
        return self._redactor.text(text)

    def event(self, kind: EventType, agent: AgentRef | str | None = None, **fields: Any) -> None:
        """One event; ``turn_id``, ``model`` and ``intervention`` among the fields are part of every line. An agent that can't
        be read has an id only.
        """
        if self._lines is not None and (lines := self._lines.lost()):
            self.event("error", error="log_lines_dropped", lines=lines)
        claw_id, digest = (agent, None) if agent is None or isinstance(agent, str) else (agent.id, agent.digest)
        common = {name: fields.pop(name, None) for name in ("turn_id", "model", "intervention")}
        event = {"ts": now_rfc3339(), "type": kind, "claw_id": claw_id, **common, "digest": digest, **fields}
        try:
            line = msgspec.json.encode(event)
        except UnicodeEncodeError:  # for listeners, too
            event = escape_surrogates(event)
            line = msgspec.json.encode(event)
        self._write(self._redactor.document(line) + b"\n")
        for listener in self._listeners:
            try:
                listener(event)
            except Exception as error:  # noqa: BLE001 - a count that can't be made costs no answer
                _log.warning("an event was not counted: %s", type(error).__name__)
