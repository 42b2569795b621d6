"""The writer of a runner's stream of chat completion chunks (docs/spec/live.md section 4).

    what counts over the stream  rule
    ───────────────────────────  ─────────────────────────────────────────────────────────────────
    id, created, model           the first ones that were shown, in every chunk
    role                         in the first chunk of a choice only
    indexes of calls             from 0, in the order in which the calls of a reply are shown
    content                      goes on over replies; where two would touch without white space,
                                   an empty line goes between
    logprobs                     with the text that they came with, each once
    usage                        one chunk at the end, if the runner asked for it

Strict clients add up the deltas of all chunks, so nothing may be told twice.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from claw_mediate.core import json_splice
from claw_mediate.core.reply_events import ReplyEvent
from claw_mediate.dialects import sse
from claw_mediate.dialects.base import RunnerRequest
from claw_mediate.dialects.members import split_object
from claw_mediate.dialects.openai.assemble_calls import FUNCTION_CALL, TOOL_CALLS
from claw_mediate.dialects.openai.earlier_replies import ShownLogprobs, ShownTexts
from claw_mediate.dialects.openai.response import edit_first_choice
from claw_mediate.dialects.streams import NO_MINTED_IDS, Keepalive, OwnOpening

type _Members = Mapping[str, Any]

_FRAME: Final = ("id", "object", "created", "model", "system_fingerprint", "service_tier")
"""Members of a response that every chunk repeats."""
_SHOWN_ONCE: Final = ("id", "model", "created")
"""Members that stay as they were shown first."""
_OBJECT: Final = {"object": "chat.completion.chunk"}
_NOTHING: Final[_Members] = {}
_string_decoder = msgspec.json.Decoder(str)


class _FirstChunk:
    """The first chunk of a choice, until it has all that belongs into its delta."""

    def __init__(self, event: ReplyEvent) -> None:
        self.piece = event.piece
        self.members: _Members = event.data.get("chunk", _NOTHING)
        self._delta: dict[str, Any] = dict(event.data.get("delta", {"role": "assistant"}))
        self._order = event.data.get("order", ())
        self._missing = {*self._order} - self._delta.keys()

    @property
    def is_whole(self) -> bool:
        return not self._missing

    def takes(self, event: ReplyEvent) -> bool:
        return event.piece == self.piece and event.channel in self._missing

    def add(self, channel: str, value: object) -> None:
        self._missing.discard(channel)
        self._delta[channel] = value

    @property
    def delta(self) -> _Members:
        if not self._order:
            return self._delta
        return {name: self._delta[name] for name in self._order if name in self._delta}


class ChatWriter:
    """Writes one stream (``streams.StreamWriter``)."""

    def __init__(self, request: RunnerRequest, own: OwnOpening) -> None:
        self._includes_usage = request.include_usage
        self._own = own
        self._frame: dict[str, Any] | None = None
        """The members of every chunk; None before the first one."""
        self._head = b""  # The beginning of a chunk with nothing but the frame
        self._first: _FirstChunk | None = None
        self._opened: set[int] = set()  # Choices whose first chunk is written
        self._call_indexes: dict[tuple[int, str], int] = {}
        self._call_counts: Counter[int] = Counter()
        self._texts = ShownTexts()
        self._logprobs = ShownLogprobs()

    @property
    def id(self) -> str:
        return "" if self._frame is None else _text(self._frame["id"]) or ""

    @property
    def minted(self) -> Mapping[str, str]:
        return NO_MINTED_IDS

    def begin_reply(self) -> None:
        """Note that the next events are those of another reply (``streams.StreamWriter``)."""
        self._first = None
        self._call_indexes = {}
        self._call_counts = Counter()
        self._texts.begin_reply()
        self._logprobs.begin_reply()

    def write(self, event: ReplyEvent) -> bytes:
        """Return what an event adds to the stream (``streams.StreamWriter``)."""
        if event.kind == "opening":
            return self._open(event)
        if event.kind == "end":
            return self._open_choice(event.piece) + self._end(event)
        if event.kind == "call":
            return self._open_choice(event.piece) + self._chunk_of(event, self._call_delta(event))

        first = self._first
        if first is not None and first.takes(event):
            for name, value in self._delta(event).items():
                first.add(name, value)
            return self._write_first() if first.is_whole else b""

        return self._open_choice(event.piece) + self._chunk_of(event, self._delta(event))

    def beat(self, note: str, kind: Keepalive) -> bytes:
        """Return an event that says nothing (``streams.StreamWriter``).

        A chunk has a choice, because clients read the first choice of every chunk. It has id and
        model, too: the SDK of Python keeps the first ones that a stream has, that of JavaScript
        the last ones.
        """
        if kind == "comment":
            return sse.comment(note)
        return self._write_first() or self._chunk(0, _NOTHING)

    def error(self, error: bytes) -> bytes:
        """Return the events of an error (``streams.StreamWriter``)."""
        return sse.event(error) + sse.DONE

    def answer(self, body: bytes) -> bytes:
        """Return the body with all that was shown (``streams.StreamWriter``)."""
        if self._frame is not None:
            shown = split_object(msgspec.json.encode(self._shown_once()))
            own = split_object(body)
            body = json_splice.edit(
                body, {name: raw for name, raw in shown.items() if own.get(name) != raw}
            )

        if not self._texts.has_any and not self._logprobs.has_earlier:
            return body
        return edit_first_choice(body, self._with_earlier)

    def _with_earlier(self, choice: bytes) -> bytes:
        members = split_object(choice)
        message = members["message"]
        changes: dict[str, bytes | None] = {
            "message": json_splice.edit(message, self._texts.with_earlier(split_object(message)))
        }
        if self._logprobs.has_earlier:
            changes["logprobs"] = self._logprobs.with_earlier(members.get("logprobs", b"null"))
        return json_splice.edit(choice, changes)

    def _open(self, event: ReplyEvent) -> bytes:
        if event.piece in self._opened:
            return b""

        earlier = self._write_first()
        self._first = _FirstChunk(event)
        return earlier + (self._write_first() if self._first.is_whole else b"")

    def _open_choice(self, piece: int) -> bytes:
        """Return the first chunk of a choice, if it is not written."""
        written = self._write_first()
        if piece in self._opened:
            return written

        self._first = _FirstChunk(ReplyEvent("opening", piece, _NOTHING))
        return written + self._write_first()

    def _write_first(self) -> bytes:
        first = self._first
        if first is None:
            return b""

        self._first = None
        self._opened.add(first.piece)
        if not first.members:
            return self._chunk(first.piece, first.delta)

        # An id that a keepalive has shown stays.
        response: dict[str, Any] = {**first.members, **self._shown_once()}
        if _text(response.get("id")) is None:
            response["id"] = self._own.id
        response |= _OBJECT
        self._set_frame({name: response[name] for name in _FRAME if name in response})
        return self._chunk(first.piece, first.delta, head=_chunk_head(response))

    def _shown_once(self) -> dict[str, Any]:
        frame = self._frame or {}
        return {name: frame[name] for name in _SHOWN_ONCE if name in frame}

    def _set_frame(self, response: _Members) -> None:
        self._frame = {name: value for name, value in response.items() if name in _FRAME}
        self._head = _chunk_head(self._frame)

    def _delta(self, event: ReplyEvent) -> _Members:
        """Return the delta of an event that is no call's."""
        members: _Members = event.data.get("delta", _NOTHING)
        if not event.text:
            return members

        shown = event.text
        if event.piece == 0:
            shown = self._texts.add(event.channel, event.text)
        spelled = members.get(event.channel)
        is_as_spelled = spelled is not None and _text(spelled) == shown
        return {event.channel: spelled if is_as_spelled else shown}

    def _call_delta(self, event: ReplyEvent) -> _Members:
        """Return the delta of a part of a call: of channel ``tool_calls.0.arguments``, say."""
        member, *place = event.channel.split(".")
        if member == FUNCTION_CALL:
            part = event.data["call"]["function"] if not event.text else {"arguments": event.text}
            return {FUNCTION_CALL: part}

        key = (event.piece, place[0])
        if key not in self._call_indexes:
            self._call_indexes[key] = self._call_counts[event.piece]
            self._call_counts[event.piece] += 1
        index = self._call_indexes[key]
        if not event.text:
            return {TOOL_CALLS: [{**event.data["call"], "index": index}]}

        inner = "custom" if place[-1] == "input" else "function"
        return {TOOL_CALLS: [{"index": index, inner: {place[-1]: event.text}}]}

    def _end(self, event: ReplyEvent) -> bytes:
        choice = event.data.get("choice")
        if choice is not None:
            return self._write_finish(event.piece, choice)

        usage = b""
        if self._includes_usage:
            value = msgspec.json.encode(event.data.get("usage"))
            usage = sse.event(self._head + b'],"usage":' + value + b"}")
        return usage + sse.DONE

    def _write_finish(self, piece: int, choice: _Members) -> bytes:
        members = dict(choice)
        if piece == 0 and "logprobs" in choice:
            rest = self._logprobs.without_shown(msgspec.json.encode(choice["logprobs"]))
            if rest is None:
                del members["logprobs"]
            else:
                members["logprobs"] = msgspec.Raw(rest)

        return self._event(self._head, {**members, "index": piece, "delta": {}})

    def _chunk_of(self, event: ReplyEvent, delta: _Members) -> bytes:
        """Return the chunk of an event, with the members that it came with."""
        choice: _Members = event.data.get("choice", _NOTHING)
        if event.piece == 0 and "logprobs" in choice:
            self._logprobs.add(msgspec.json.encode(choice["logprobs"]))

        head = b""
        members: _Members = event.data.get("chunk", _NOTHING)
        if members:
            # The frame has what the stream showed first, so it is not replaced.
            frame = self._frame or {}
            others = {name: value for name, value in members.items() if name not in frame}
            head = _chunk_head({**frame, **others})
        return self._chunk(event.piece, delta, choice, head)

    def _chunk(
        self, piece: int, delta: _Members, choice: _Members = _NOTHING, head: bytes = b""
    ) -> bytes:
        """Return a chunk. ``choice``: more members of its choice."""
        if self._frame is None:
            self._set_frame({**msgspec.structs.asdict(self._own), **_OBJECT})

        made = {**choice, "index": piece, "delta": delta, "finish_reason": None}
        return self._event(head or self._head, made)

    def _event(self, head: bytes, choice: _Members) -> bytes:
        return sse.event(head + msgspec.json.encode(choice) + b"]}")


def _chunk_head(members: _Members) -> bytes:
    """Return the beginning of a chunk, up to its choices."""
    return msgspec.json.encode(members)[:-1] + b',"choices":['


def _text(value: object) -> str | None:
    """Return a member's text, raw or not; None if it is none."""
    if isinstance(value, msgspec.Raw):
        return _string_decoder.decode(value) if bytes(value)[:1] == b'"' else None
    return value if isinstance(value, str) else None
