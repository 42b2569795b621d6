"""A message of Anthropic's API, put together while it streams.

    event of the API    what it tells
    ──────────────────  ────────────────────────────────────────────────────────────────────────
    message_start       ``opening``
    content_block_*     ``content``, ``reasoning`` or ``call`` by the block's type; ``closing``
    message_delta       nothing yet
    message_stop        the ends of open blocks; ``end`` of all message_deltas; ``end``
    error               nothing: ``error``
    ping                nothing
    unknown ones        an event of their block; nothing if they belong to none

A reply is held to what its body would tell (``stream.tell``): text that a block starts with is a
delta, of several signatures the last counts, an input without a delta is ``{}``. So a signature,
and the input that a block started with, are told at the block's end.

An event that two parsers could read in two ways can't be read at all: one with a repeated member,
of a name that is not its type, of a block that is not open.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from claw_contract.sse import SseEvent
from claw_mediate.core import json_splice
from claw_mediate.core.reply_events import CallPart, ReplyEvent
from claw_mediate.dialects.anthropic.block_events import (
    BLOCK_DELTA,
    BLOCK_START,
    INPUT_TYPES,
    STOP,
    TEXT_MEMBERS,
    BlockBuilder,
    block_kind,
    delta_event,
    start_events,
    stop_event,
    text_event,
)
from claw_mediate.dialects.base import MAX_PARTS, FailedResponseError, UnreadableResponseError
from claw_mediate.dialects.members import (
    Members,
    as_raw,
    split_object,
    string_member,
    without_line_breaks,
)

_DONE: Final = b"[DONE]"  # Gateways that speak several protocols end every stream with it
_NULL: Final = b"null"

_NESTED: Final = {
    "message_start": ("message",),
    BLOCK_START: ("content_block",),
    BLOCK_DELTA: ("delta",),
    "message_delta": ("delta", "usage"),
}
"""The members of an event that are objects, whose members are read."""

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"([ \t\r\n]*+:)?+', re.DOTALL)
"""A string of a JSON document; the group is there if it is the name of a member."""

_PLAIN_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
"""The type of an event that we do not know: it is written as the event's name, in one line."""

_NEVER_CHANGED: Final = frozenset({"id", "type", "role", "model", "content", "usage"})
"""The members of a message that its end does not change."""

_NO_INPUT: Final = (None, _NULL, b'""')

_STATUS: Final = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""The status of each type of error (https://docs.anthropic.com/en/api/errors)."""


class MessageAssembler:
    """Puts one streamed message together (``streams.Assembler``)."""

    def __init__(self) -> None:
        self._message: Members | None = None
        self._blocks: dict[int, _StreamedBlock] = {}  # By the provider's index, in order of start
        self._end: Members = {}  # Members of message_delta, without ``delta`` and ``usage``
        self._end_delta: Members = {}
        self._usage: Members | None = None
        self._error: FailedResponseError | None = None
        self._is_whole = False

    @property
    def is_whole(self) -> bool:
        """True if the message has come to its ``message_stop``."""
        return self._is_whole and self._error is None

    @property
    def is_over(self) -> bool:
        return self.is_whole

    @property
    def error(self) -> FailedResponseError | None:
        """Return the failure that an ``error`` event told of; None if there was none."""
        return self._error

    def feed(self, event: SseEvent) -> Sequence[ReplyEvent]:
        """Return what an event tells. Raise ``UnreadableResponseError``."""
        if self._error is not None or event.name == b"ping" or event.data == _DONE:
            return ()

        try:
            members, nested = _read_event(event)
            return _with_more(self._tell(members, nested), members, nested)
        except (json_splice.JsonSpliceError, msgspec.DecodeError, RecursionError) as error:
            raise UnreadableResponseError(f"an event can't be read: {error}") from error
        except UnicodeDecodeError as error:
            raise UnreadableResponseError("an event is not UTF-8") from error

    def body(self) -> bytes:
        """Return the message. Raise ``UnreadableResponseError`` if it is not whole."""
        if self._message is None or not self.is_whole:
            raise UnreadableResponseError("the stream ended before the message did")

        ended = {
            name: raw
            for name, raw in (self._end | self._end_delta).items()
            if name not in _NEVER_CHANGED
        }
        message: dict[str, Any] = {
            **as_raw(self._message | ended),
            "content": [block.builder.build() for block in self._blocks.values()],
        }
        if self._usage is not None:
            message["usage"] = as_raw(self._usage)
        return msgspec.json.encode(message)

    def usage(self) -> bytes | None:
        """Return the usage so far, as JSON; None if there was none."""
        return None if self._usage is None else msgspec.json.encode(as_raw(self._usage))

    def _tell(self, members: Members, nested: dict[str, Members]) -> Sequence[ReplyEvent]:
        event_type = string_member(members, "type")
        if event_type == "error":
            self._error = _read_failure(members)
            return ()
        if event_type == "ping":
            return ()
        if event_type == "message_start":
            return self._open(nested["message"])

        if self._message is None:
            raise UnreadableResponseError(f"the stream begins with {event_type}")

        match event_type:
            case "content_block_delta":
                block = self._open_block(members)
                return block.add(nested["delta"])
            case "content_block_start":
                return self._start_block(members, nested["content_block"])
            case "content_block_stop":
                return self._open_block(members).close()
            case "message_delta":
                self._note_end(members, nested)
                return ()
            case "message_stop":
                return self._finish(members)
            case _:
                return self._tell_unknown(members)

    def _open(self, message: Members) -> Sequence[ReplyEvent]:
        if self._message is not None:
            raise UnreadableResponseError("the stream has two messages")
        if message.get("content", b"[]") not in (b"[]", _NULL):
            raise UnreadableResponseError("the stream's message begins with content")

        self._message = message
        self._add_usage(_split_or_empty(message.get("usage")))
        opening = {**as_raw(message)}
        opening.pop("content", None)
        return (ReplyEvent("opening", 0, {"type": "message_start", "message": opening}),)

    def _start_block(self, members: Members, block: Members) -> Sequence[ReplyEvent]:
        index = _read_index(members)
        if index is None or index in self._blocks:
            raise UnreadableResponseError("a block has no index of its own")
        if self._is_whole:
            raise UnreadableResponseError("a block starts behind the message's end")
        if len(self._blocks) == MAX_PARTS:
            raise UnreadableResponseError(
                f"the provider's response holds more than {MAX_PARTS} blocks"
            )
        if not string_member(block, "type"):
            raise UnreadableResponseError("the provider's response has a block without a type")

        self._blocks[index] = started = _StreamedBlock(block, piece=len(self._blocks))
        return started.start()

    def _open_block(self, members: Members) -> "_StreamedBlock":
        index = _read_index(members)
        block = None if index is None else self._blocks.get(index)
        if block is None or not block.is_open:
            raise UnreadableResponseError("an event belongs to no block")
        return block

    def _note_end(self, members: Members, nested: dict[str, Members]) -> None:
        if self._is_whole:
            raise UnreadableResponseError("the message goes on behind its end")

        self._end |= {name: raw for name, raw in members.items() if name not in {"delta", "usage"}}
        self._end_delta |= nested.get("delta", {})
        self._add_usage(nested.get("usage", {}))

    def _finish(self, members: Members) -> Sequence[ReplyEvent]:
        if self._is_whole:
            return ()

        self._is_whole = True
        closings = [event for block in self._blocks.values() for event in block.close()]
        message_delta = {
            **as_raw(self._end),
            "type": "message_delta",
            "delta": as_raw(self._end_delta),
            "usage": as_raw(self._usage or {}),
        }
        message_stop = {**as_raw(members), "type": "message_stop"}
        return (
            *closings,
            ReplyEvent("end", 0, message_delta, "delta"),
            ReplyEvent("end", 0, message_stop, "stop"),
        )

    def _tell_unknown(self, members: Members) -> Sequence[ReplyEvent]:
        index = _read_index(members)
        block = None if index is None else self._blocks.get(index)
        if block is None or not block.is_open:
            return ()
        if not _PLAIN_NAME.fullmatch(string_member(members, "type") or ""):
            raise UnreadableResponseError("an event has no plain name")
        return (block.unknown_event(members),)

    def _add_usage(self, usage: Members) -> None:
        """Take counts over.

        They are totals, so a later one replaces an earlier one, unless it is null.
        """
        if usage or self._usage is not None:
            counts = {name: raw for name, raw in usage.items() if raw != _NULL}
            self._usage = {**usage, **(self._usage or {}), **counts}


class _StreamedBlock:
    """A block of the message, and what of it is told at its end."""

    def __init__(self, block: Members, piece: int) -> None:
        block_type = string_member(block, "type") or ""
        if block_type in INPUT_TYPES and block.get("input") in _NO_INPUT:
            block = {**block, "input": b"{}"}

        self.builder = BlockBuilder()
        self.is_open = True
        self._block = block
        self._kind = block_kind(block_type)
        self._piece = piece
        self._call = _call_part(block) if self._kind == "call" else None
        self._first_input: list[ReplyEvent] = []
        self._signature: ReplyEvent | None = None

    def start(self) -> Sequence[ReplyEvent]:
        told: list[ReplyEvent] = []
        for event in start_events(self._block, self._piece):
            if event.channel == "input":
                self._first_input.append(event)
            elif event.channel == "signature":
                self._signature = event
            else:
                told.append(event)

        self._block = {}
        return self._build(told)

    def add(self, delta: Members) -> Sequence[ReplyEvent]:
        delta_type = string_member(delta, "type")
        if not delta_type:
            raise UnreadableResponseError("a delta has no type")

        member = TEXT_MEMBERS.get(delta_type)
        if member is not None:
            return self._add_text(delta_type, delta, member)

        more = as_raw(delta)
        event = delta_event(self._kind, self._piece, {**more, "type": delta_type})
        if event.channel == "signature":
            if string_member(delta, "signature") is None:
                raise UnreadableResponseError("a signature is no text")
            self._signature = event
            return ()

        if event.channel == "citations" and "citation" not in delta:
            raise UnreadableResponseError("a delta has no citation")
        return self._build([event])

    def _add_text(self, delta_type: str, delta: Members, member: str) -> Sequence[ReplyEvent]:
        text = string_member(delta, member)
        if text is None:
            raise UnreadableResponseError(f"a delta has no {member}")

        event = text_event(self._kind, self._piece, delta_type, text)
        if len(delta) > 2:  # noqa: PLR2004 - there are other members than its type and its text
            more = as_raw({name: raw for name, raw in delta.items() if name != member})
            data = {"type": BLOCK_DELTA, "delta": {**more, "type": delta_type}}
            event = msgspec.structs.replace(event, data=data)

        if event.channel == "input" and text.strip():
            self._first_input.clear()
        return self._build([event])

    def unknown_event(self, members: Members) -> ReplyEvent:
        data = as_raw({name: raw for name, raw in members.items() if name != "index"})
        channel = string_member(members, "type") or ""
        return ReplyEvent(self._kind, self._piece, data, channel)

    def close(self) -> Sequence[ReplyEvent]:
        """Return what is left to tell of the block; nothing if it has ended before."""
        if not self.is_open:
            return ()

        self.is_open = False
        told = [*self._first_input]
        if self._signature is not None:
            told.append(self._signature)
        told.append(stop_event(self._kind, self._piece))
        return self._build(told)

    def _build(self, events: Sequence[ReplyEvent]) -> Sequence[ReplyEvent]:
        for event in events:
            self.builder.add(event)

        if self._call is None:
            return events
        return [self._with_call(event, self._call) for event in events]

    def _with_call(self, event: ReplyEvent, call: CallPart) -> ReplyEvent:
        part = call._replace(closes=True) if event.channel == STOP else call
        return msgspec.structs.replace(event, call=part)


def _call_part(block: Members) -> CallPart:
    call_id = string_member(block, "id") or ""
    return CallPart(0, call_id, string_member(block, "name") or "")


def _read_event(event: SseEvent) -> tuple[Members, dict[str, Members]]:
    """Return the members of an event, and those of its objects (``_NESTED``).

    Raise ``JsonSpliceError`` for a member that stands twice, and ``DecodeError``.
    """
    data = event.data
    json_splice.check_utf8(data)
    if b"\n" in data:
        # Only white space between tokens is replaced: in a string a line break is no JSON.
        msgspec.json.decode(data, type=msgspec.Raw)
        data = without_line_breaks(data)

    members = split_object(data)
    name = event.name.decode()
    if name == "error":
        members["type"] = b'"error"'

    event_type = string_member(members, "type")
    if not event_type or name not in (event_type, "message"):
        raise UnreadableResponseError("an event has no type, or another name than its type")

    nested = {
        member: split_object(members[member])
        for member in _NESTED.get(event_type, ())
        if members.get(member, _NULL) != _NULL
    }
    if event_type != "message_delta" and len(nested) < len(_NESTED.get(event_type, ())):
        raise UnreadableResponseError(f"an event {event_type} is empty")

    # Counting all names is quicker than to find those of each object.
    strings = _STRING.findall(data)
    name_count = len(strings) - strings.count(b"")
    if name_count != len(members) + sum(map(len, nested.values())):
        for document in (data, *(members[member] for member in nested)):
            _check_members(document)
    return members, nested


def _check_members(document: bytes) -> None:
    """Raise ``RepeatedMemberError`` for a member of the object that stands twice."""
    seen: set[str] = set()
    for member in json_splice.list_members(document):
        if member.name in seen:
            raise json_splice.RepeatedMemberError(member.name)
        seen.add(member.name)


def _split_or_empty(raw: bytes | None) -> Members:
    if raw is None or raw == _NULL:
        return {}
    _check_members(raw)
    return split_object(raw)


def _with_more(
    events: Sequence[ReplyEvent], members: Members, nested: dict[str, Members]
) -> Sequence[ReplyEvent]:
    """Return what an event of a block tells, with its members that we do not know.

    They go with what has the event's own type. A start may tell more: the deltas of what its block
    holds already.
    """
    known = ("type", "index", *nested)
    has_others = len(members) > len(known)
    if not events or not has_others or "index" not in members:
        return events

    event_type = string_member(members, "type")
    others = as_raw({name: raw for name, raw in members.items() if name not in known})

    told: list[ReplyEvent] = []
    for event in events:
        if event.data["type"] == event_type:
            event = msgspec.structs.replace(event, data={**others, **event.data})  # noqa: PLW2901
        told.append(event)
    return told


def _read_index(members: Members) -> int | None:
    """Return the index of the block that an event belongs to; None if it has none."""
    raw = members.get("index", b"")
    return int(raw) if raw.isdigit() and len(raw) < 10 else None  # noqa: PLR2004 - digits


def _read_failure(members: Members) -> FailedResponseError:
    raw = members.get("error", _NULL)
    error = msgspec.json.decode(raw)
    if not isinstance(error, dict):
        error = {"message": error if isinstance(error, str) else "the provider failed"}

    error_type = error.get("type")
    status = _STATUS.get(error_type, 500) if isinstance(error_type, str) else 500
    shown = {"type": "api_error", "message": "the provider failed", **error}
    body = {**as_raw(members), "type": "error", "error": shown}
    return FailedResponseError(status, msgspec.json.encode(body))
