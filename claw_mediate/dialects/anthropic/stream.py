"""The stream of a message, which may be made of several replies (docs/spec/live.md section 4).

It has one ``message_start``, block indexes 0, 1, 2 … without gaps, the deltas of each block type
that has some, and all other blocks whole. Members that we do not know are sent as they are. The
usage is always there: an SDK breaks without it.

SDKs take the members of ``message_delta`` in place of those of ``message_start``. So the last
reply's reason, container and usage are those of the message.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from claw_mediate.core.reply_events import ReplyEvent
from claw_mediate.dialects import sse
from claw_mediate.dialects.anthropic.block_events import (
    TEXT_MEMBERS,
    BlockBuilder,
    block_kind,
    start_events,
    stop_event,
)
from claw_mediate.dialects.base import RunnerRequest
from claw_mediate.dialects.members import (
    as_raw,
    split_array,
    split_object,
    string_member,
    without_line_breaks,
)
from claw_mediate.dialects.streams import NO_MINTED_IDS, Keepalive, OwnOpening

_PING: Final = sse.event(b'{"type":"ping"}', "ping")
_FINAL_MEMBERS: Final = ("stop_reason", "stop_sequence")
_LATE_MEMBERS: Final = ("stop_details", "container")
"""Further members of ``message_delta.delta``."""

_START_MEMBERS: Final = frozenset({"id", "type", "role", "model", "content", "usage", "delta"})
"""The members of a message that its end does not tell, and the name of the end's own object."""

_NO_COUNTS: Final = {"input_tokens": 0, "output_tokens": 0}


def tell(body: bytes, _request: RunnerRequest) -> Iterator[ReplyEvent]:
    """Yield the events of a message that ``read_response`` has read.

    A body does not say which of its members come at the end of a stream, as ``context_management``
    does. So the opening and the end tell both of them, and the writer leaves out what it has said.
    """
    message = split_object(without_line_breaks(body))
    usage = _with_counts(message.get("usage"))
    final = {name: message.pop(name, b"null") for name in _FINAL_MEMBERS}
    final |= {name: message[name] for name in _LATE_MEMBERS if name in message}
    content = split_array(message.pop("content"))
    late = {
        name: raw
        for name, raw in message.items()
        if name not in _START_MEMBERS and name not in _LATE_MEMBERS
    }

    opening: dict[str, Any] = {**as_raw(message)}
    if "usage" in opening:
        opening["usage"] = {**usage, "output_tokens": 0}
    yield ReplyEvent("opening", 0, {"type": "message_start", "message": opening})

    for piece, raw in enumerate(content):
        block = split_object(raw)
        yield from start_events(block, piece)
        yield stop_event(block_kind(string_member(block, "type") or ""), piece)

    message_delta = {
        "type": "message_delta",
        "delta": as_raw(final),
        "usage": usage,
        **as_raw(late),
    }
    yield ReplyEvent("end", 0, message_delta, "delta")
    yield ReplyEvent("end", 0, {"type": "message_stop"}, "stop")


class MessageWriter:
    """Writes one message of one or several replies (``streams.StreamWriter``)."""

    def __init__(self, _request: RunnerRequest, own: OwnOpening) -> None:
        self._own = own
        self._id = ""
        self._is_open = False
        self._opening: Mapping[str, Any] = {}  # What ``message_start`` said, if of this reply
        self._indexes: dict[int, int] = {}  # The index of each piece of this reply
        self._blocks: list[BlockBuilder] = []  # All blocks of the message, by index

    @property
    def id(self) -> str:
        """Return the id that the stream has shown; "" before it has shown one."""
        return self._id

    @property
    def minted(self) -> Mapping[str, str]:
        return NO_MINTED_IDS

    def begin_reply(self) -> None:
        """Note that the next events are those of another reply, whose blocks come after all."""
        self._indexes = {}
        self._opening = {}

    def write(self, event: ReplyEvent) -> bytes:
        """Return what an event adds to the stream.

        Later openings add nothing. A stream whose first reply has no opening gets one of ours.
        """
        if event.kind == "opening":
            return b"" if self._is_open else self._open(event.data["message"])

        own_opening = b"" if self._is_open else self._open_as_own()
        if event.kind == "end":
            return own_opening + self._write_end(event.data)
        return own_opening + self._write_block(event)

    def beat(self, note: str, kind: Keepalive) -> bytes:
        """Return a comment, or, of the native kind, ``event: ping``, as the API itself sends it.

        Either may come before, between and within blocks. Neither opens the message.
        """
        return sse.comment(note) if kind == "comment" else _PING

    def error(self, error: bytes) -> bytes:
        """Return the event of an error that comes after the headers."""
        return sse.event(error, "error")

    def answer(self, body: bytes) -> bytes:
        """Return the message of ``body`` with all blocks that the stream has shown, and its id."""
        message: dict[str, Any] = {**as_raw(split_object(body))}
        message["content"] = [block.build() for block in self._blocks]
        if self._id:
            message["id"] = self._id
        return msgspec.json.encode(message)

    def _open(self, message: Mapping[str, Any]) -> bytes:
        self._is_open = True
        self._opening = message
        self._id = _read_text(message.get("id"))

        first_message: dict[str, Any] = {
            name: value
            for name, value in message.items()
            if name != "content" and name not in _FINAL_MEMBERS
        }
        first_message |= {"content": [], **dict.fromkeys(_FINAL_MEMBERS)}
        first_message["usage"] = _with_counts(message.get("usage"))
        return _write_event({"type": "message_start", "message": first_message})

    def _open_as_own(self) -> bytes:
        message = {
            "id": self._own.id,
            "type": "message",
            "role": "assistant",
            "model": self._own.model,
        }
        written = self._open(message)
        self._opening = {}
        return written

    def _write_block(self, event: ReplyEvent) -> bytes:
        index = self._indexes.get(event.piece)
        if index is None:
            index = self._indexes[event.piece] = len(self._blocks)
            self._blocks.append(BlockBuilder())
        self._blocks[index].add(event)

        data = {"type": event.data["type"], "index": index, **event.data}
        delta = event.data.get("delta")
        if delta is not None and (member := TEXT_MEMBERS.get(delta["type"])):
            data["delta"] = {**delta, member: event.text}
        return _write_event(data)

    def _write_end(self, data: Mapping[str, Any]) -> bytes:
        if data["type"] != "message_delta":
            return _write_event(data)

        delta = {**dict.fromkeys(_FINAL_MEMBERS), **data["delta"]}
        end = {**data, "delta": delta, "usage": _with_counts(data.get("usage"))}
        for members in (delta, end):
            for name in [name for name in members if self._has_said(name, members[name])]:
                del members[name]
        return _write_event(end)

    def _has_said(self, name: str, value: Any) -> bool:
        """Return True if the start of this message, told of the same reply, has this member."""
        if name in _FINAL_MEMBERS or name in _START_MEMBERS or name not in self._opening:
            return False
        return msgspec.json.encode(self._opening[name]) == msgspec.json.encode(value)


def _with_counts(usage: object) -> dict[str, Any]:
    """Return a usage, decoded or as JSON, with the counts that every SDK expects."""
    if isinstance(usage, bytes | msgspec.Raw):
        usage = msgspec.json.decode(usage)
    return {**_NO_COUNTS, **usage} if isinstance(usage, dict) else {**_NO_COUNTS}


def _read_text(value: object) -> str:
    """Return a member's text, decoded or as JSON; "" if it is none."""
    if isinstance(value, msgspec.Raw):
        value = msgspec.json.decode(value)
    return value if isinstance(value, str) else ""


def _write_event(data: Mapping[str, Any]) -> bytes:
    return sse.event(msgspec.json.encode(data), data["type"])
