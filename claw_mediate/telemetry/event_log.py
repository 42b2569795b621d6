"""The structured log: one JSON object a line.

docs/spec/contract.md "The log"; ``claw_contract.log`` defines every line.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Protocol

import msgspec

from claw_contract.limits import LineLimit
from claw_contract.log import EventType
from claw_contract.redaction.redactor import Redactor
from claw_contract.secret import Secret
from claw_contract.unseen import escape_unseen
from claw_mediate.telemetry.nonblocking_writer import LineWriter

_log = logging.getLogger(__name__)

type Event = Mapping[str, Any]  # A line of the log before redaction
type EventListener = Callable[[Event], None]


class AgentRef(Protocol):
    """The agent of an event; ``digest`` identifies the compilation that governs it."""

    @property
    def id(self) -> str: ...
    @property
    def digest(self) -> str: ...


def now_rfc3339() -> str:
    """Return the current time as RFC 3339 in UTC, with milliseconds."""
    return rfc3339(time.time())


def rfc3339(seconds: float) -> str:
    """Return POSIX time as RFC 3339 in UTC, with milliseconds.

    >>> rfc3339(1.0625)
    '1970-01-01T00:00:01.062Z'
    """
    second, milliseconds = divmod(int(seconds * 1000), 1000)
    return f"{_date_and_time(second)}.{milliseconds:03}Z"


@lru_cache(maxsize=8)
def _date_and_time(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def encode_json(document: Any) -> bytes:
    r"""Encode JSON, even text that holds surrogates.

    Python decodes a peer's bytes that are not UTF-8 as these.

    >>> encode_json({"path": "/v1/\udcff", "tools": ["caf\u00e9"]})
    b'{"path":"/v1/\\\\udcff","tools":["caf\xc3\xa9"]}'
    """
    try:
        return msgspec.json.encode(document)
    except UnicodeEncodeError:
        return msgspec.json.encode(_escape_surrogates(document))


def _escape_surrogates(value: Any) -> Any:
    """Return the value with surrogates spelled out as text.

    Strict readers reject JSON's own escapes for them.
    """
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, Mapping):
        return {_escape_surrogates(name): _escape_surrogates(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_escape_surrogates(each) for each in value]
    return value


class EventLog:
    """Writes events to stdout and to listeners.

    A ``Redactor`` is the last step before a line is written.
    """

    def __init__(self, write: Callable[[bytes], None] | None = None) -> None:
        """Write to stdout, or to ``write`` instead."""
        self._stdout = LineWriter.of(1) if write is None else None
        self._write = write or LineWriter.of(1).write
        self._secrets: frozenset[Secret] = frozenset()
        self._redactor = Redactor(())
        self._listeners: list[EventListener] = []
        self._limit = LineLimit()
        self.origin: Mapping[str, int] = {}
        """The members of every line that say which process wrote it."""

    def protect(self, secrets: Iterable[Secret]) -> None:
        """Redact these secrets, too, from now on."""
        known = self._secrets.union(secrets)
        if known != self._secrets:
            self._secrets = known
            self._redactor = Redactor(known)

    def add_listener(self, listener: EventListener) -> None:
        """Call ``listener`` for every event from now on."""
        self._listeners.append(listener)

    def redact(self, text: str) -> str:
        """Return text without the secrets, for a listener that passes it on."""
        return self._redactor.text(text)

    def limited_event(
        self,
        kind: EventType,
        agent: AgentRef | None = None,
        *,
        error: str,
        reason: str,
        limit: LineLimit | None = None,
    ) -> None:
        """Write a fault that strangers can cause as often as they like.

        A few lines a minute are written for each reason. A line says how many of its kind were
        ``left_out`` before it.
        """
        left_out = (limit or self._limit).take(f"{error} {reason}")
        if left_out is None:
            return

        if left_out:
            self.event(kind, agent, error=error, reason=reason, left_out=left_out)
        else:
            self.event(kind, agent, error=error, reason=reason)

    def event(self, kind: EventType, agent: AgentRef | str | None = None, **fields: Any) -> None:
        """Write one event. ``turn_id``, ``model`` and ``intervention`` are in every line.

        ``agent`` may be an id only.
        """
        if self._stdout is not None and (lines := self._stdout.take_unreported()):
            self.event("error", error="log_lines_dropped", lines=lines)

        claw_id: str | None
        digest: str | None = None
        if agent is None or isinstance(agent, str):
            claw_id = agent
        else:
            claw_id = agent.id
            digest = agent.digest
        common = {name: fields.pop(name, None) for name in ("turn_id", "model", "intervention")}
        event = {
            "ts": now_rfc3339(),
            "type": kind,
            "claw_id": claw_id,
            **common,
            "digest": digest,
            **self.origin,
            **fields,
        }

        try:
            line = msgspec.json.encode(event)
        except UnicodeEncodeError:  # listeners can't encode it either
            event = _escape_surrogates(event)
            line = msgspec.json.encode(event)
        self._write(escape_unseen(self._redactor.document(line)) + b"\n")

        for listener in self._listeners:
            try:
                listener(event)
            except Exception as error:  # noqa: BLE001 - a failing listener must not fail a request
                _log.warning("an event was not counted: %s", type(error).__name__)
