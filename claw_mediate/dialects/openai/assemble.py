"""A streamed chat completion, put together into the body that ``stream: false`` would have brought.

What the members of a ``delta`` tell, and what becomes of them in the message of the body:

    role                     nothing; the first one
    strings                  text of the channel of that name, at once; joined
    tool_calls,              calls, held from the first part on (``assemble_calls``)
      function_call
    lists, objects, numbers  objects, for the verdict (``joined_values``). SDKs join them over
                             replies, so that only those of the last reply may be shown
    null                     nothing; stays where nothing else came

A chunk's other members, and those of its choice, go along with the first event that it tells. Of
the body, each has its last value; ``logprobs`` are joined.

A reply is whole with a ``finish_reason``. What follows it still belongs to the reply; what follows
``[DONE]`` is not read.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from claw_contract.sse import SseEvent
from claw_mediate.core import json_splice
from claw_mediate.core.reply_events import EventKind, ReplyEvent
from claw_mediate.dialects.base import MAX_PARTS, FailedResponseError, UnreadableResponseError
from claw_mediate.dialects.openai.assemble_calls import (
    FUNCTION_CALL,
    TOOL_CALLS,
    CallsAssembler,
    check_members,
)
from claw_mediate.dialects.openai.failures import read_failure
from claw_mediate.dialects.openai.joined_values import join_values

type Members = dict[str, msgspec.Raw]

FIRST_MEMBERS: Final = ("id", "created", "model")
"""Members of a response of which a stream's first value counts, as it does for SDKs."""
REASONING: Final = ("reasoning_content", "reasoning")
_CHUNK_READ: Final = frozenset({"object", "choices", "usage", "error"})
_CHUNK_FRAME: Final = frozenset({*FIRST_MEMBERS, "system_fingerprint", "service_tier"})
_CHOICE_READ: Final = frozenset({"index", "delta", "message", "finish_reason", "logprobs"})
_PADDING: Final = "obfuscation"
"""A member that only hides the lengths of texts: it passes, and is no part of the body."""

_READ: Final = (
    *("error", "choices", "usage", "index", "delta", "finish_reason", "logprobs"),
    *("role", "content", "refusal", TOOL_CALLS, FUNCTION_CALL),
    *("id", "function", "custom", "name", "arguments", "input"),
)
"""Members that are read. If one stood twice, the runner could read another of the two than we."""
_READ_MARKS: Final = json_splice.marks(_READ)
_NOTHING: Final[Mapping[str, Any]] = {}
_NULL: Final = b"null"
_NO_ERROR: Final = (_NULL, b"false", b'""', b"{}")

_members_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_elements_decoder = msgspec.json.Decoder(list[msgspec.Raw])
_choices_decoder = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])
_string_decoder = msgspec.json.Decoder(str)
_index_decoder = msgspec.json.Decoder(int | None)


class ChatAssembler:
    """Puts one streamed chat completion together (``dialects.streams.Assembler``)."""

    def __init__(self) -> None:
        self._members: Members = {}  # Of the response, besides choices and usage
        self._choices: dict[int, _Choice] = {}  # By the provider's index, in order of arrival
        self._usage: bytes | None = None
        self._error: FailedResponseError | None = None
        self._has_opened = False
        self._is_done = False

    @property
    def is_whole(self) -> bool:
        has_failed = self._error is not None
        is_finished = bool(self._choices) and all(
            choice.is_finished for choice in self._choices.values()
        )
        return is_finished and not has_failed

    @property
    def is_over(self) -> bool:
        return self._is_done and self.is_whole

    @property
    def error(self) -> FailedResponseError | None:
        return self._error

    def usage(self) -> bytes | None:
        return self._usage

    def feed(self, event: SseEvent) -> Sequence[ReplyEvent]:
        """Return what an event of the provider's stream tells.

        Raise ``UnreadableResponseError``.
        """
        data = event.data
        if self._is_done or self._error is not None or not data:
            return ()
        if data.startswith(b"[DONE]"):
            self._is_done = True
            usage = {} if self._usage is None else {"usage": msgspec.Raw(self._usage)}
            return (ReplyEvent("end", 0, usage),)

        try:
            json_splice.check_utf8(data)
            chunk = _members_decoder.decode(data)
            if not json_splice.stand_once(_READ_MARKS, data):
                _check_repeated(data)
            return self._read(chunk, event.name)
        except json_splice.JsonSpliceError as error:
            raise UnreadableResponseError(f"the provider's stream is ambiguous: {error}") from error
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise UnreadableResponseError(
                "an event of the provider's stream is no chunk of a chat completion"
            ) from error

    def body(self) -> bytes:
        """Return the body of the whole reply. Raise ``UnreadableResponseError``."""
        if not self.is_whole:
            raise UnreadableResponseError("the provider's stream ended before its reply")

        members: dict[str, Any] = {"object": "chat.completion", **self._members}
        members["choices"] = [choice.body() for choice in self._choices.values()]
        if self._usage is not None:
            members["usage"] = msgspec.Raw(self._usage)

        try:
            return msgspec.json.encode(members)
        except (msgspec.DecodeError, RecursionError) as error:
            raise UnreadableResponseError("the provider's stream can't be put together") from error

    def _read(self, chunk: Members, event_name: bytes) -> Sequence[ReplyEvent]:
        is_error = event_name == b"error" or _value(chunk, "error") not in _NO_ERROR
        if is_error:
            self._error = read_failure(chunk)
            return ()

        if "choices" not in chunk:
            if event_name == b"message":
                raise UnreadableResponseError("an event of the provider's stream has no choices")
            return ()  # An event of the server's own, to keep the connection alive

        usage = _value(chunk, "usage")
        if usage != _NULL:
            if usage[:1] != b"{":
                raise UnreadableResponseError("the usage of the provider's stream is no object")
            self._usage = usage

        others = self._keep_members(chunk)
        raw_choices = _value(chunk, "choices")
        choices = [] if raw_choices == _NULL else _choices_decoder.decode(raw_choices)
        told: list[ReplyEvent] = []
        if choices and not self._has_opened:
            # A first chunk without choices has no id yet: Azure tells of its filters in it.
            self._has_opened = True
            others = {}
            told.append(ReplyEvent("opening", 0, {"chunk": dict(self._members)}))

        for choice in choices:
            told += self._find_choice(choice).read(choice, others)
        return told

    def _keep_members(self, chunk: Members) -> Members:
        """Keep the members of a response, and return those that only this chunk has."""
        others: Members = {}
        for name, raw in chunk.items():
            if name in _CHUNK_READ:
                continue
            if name not in _CHUNK_FRAME:
                others[name] = raw

            known = self._members.get(name)
            if name == _PADDING or raw == known:  # Most chunks repeat their frame
                continue
            is_first_value = _has_value(raw) and not _has_value(known)
            if known is None or name not in FIRST_MEMBERS or is_first_value:
                self._members[name] = raw

        if len(self._members) > json_splice.MAX_MEMBERS:
            raise json_splice.TooManyMembersError
        return others

    def _find_choice(self, view: Members) -> "_Choice":
        index = _index_decoder.decode(view["index"]) if "index" in view else None
        choice = self._choices.get(index or 0)
        if choice is None:
            if len(self._choices) == MAX_PARTS:
                raise UnreadableResponseError(
                    f"the provider's response holds more than {MAX_PARTS} choices"
                )
            choice = self._choices[index or 0] = _Choice(len(self._choices))
        return choice


class _Choice:
    """One choice of the response."""

    def __init__(self, piece: int) -> None:
        self._piece = piece
        self._role: msgspec.Raw | None = None
        self._texts: dict[str, list[str]] = {}
        self._objects: dict[str, list[bytes]] = {}
        self._nulls: dict[str, None] = {}
        self._calls = CallsAssembler(piece)
        self._finish_reason: bytes | None = None
        self._logprobs: dict[str, list[msgspec.Raw]] = {}
        self._members: Members = {}

    @property
    def is_finished(self) -> bool:
        return self._finish_reason is not None

    def read(self, choice: Members, chunk_members: Members) -> Sequence[ReplyEvent]:
        """Read a part of the choice, and return what it tells."""
        own_members = {name: raw for name, raw in choice.items() if name not in _CHOICE_READ}
        self._members |= own_members
        raw_delta = _value(choice, "delta")
        delta = {} if raw_delta == _NULL else _members_decoder.decode(raw_delta)

        events = _ChoiceEvents(self._piece, chunk_members, own_members)
        logprobs = self._join_logprobs(_value(choice, "logprobs"))
        texts = self._read_texts(delta)
        for name, text in texts:
            events.add_text(name, text, logprobs)
            logprobs = None  # They went along with the first text.

        if logprobs is not None and not _has_calls(delta):
            # Its token has no text of its own: it is a part of a character, or a special one.
            events.add("content", "logprobs", {}, logprobs)

        if len(texts) < len(delta):  # Most deltas are one text.
            for name, value in self._read_objects(delta):
                events.add("object", name, {"delta": {name: msgspec.Raw(value)}})
            for call in self._read_calls(delta):
                events.add_call(call)

        reason = _value(choice, "finish_reason")
        if reason != _NULL:
            self._finish_reason = reason
            events.add("end", "", {"choice": {"finish_reason": msgspec.Raw(reason)}})
        self._check_bounds()
        return events.all

    def body(self) -> dict[str, Any]:
        """Return the whole choice."""
        message: dict[str, Any] = {"role": "assistant" if self._role is None else self._role}
        message |= dict.fromkeys(self._nulls)
        message |= {name: "".join(parts) for name, parts in self._texts.items()}
        message |= {
            name: msgspec.Raw(join_values(values)) for name, values in self._objects.items()
        }
        calls = self._calls.members()
        message |= calls
        if "content" not in message or (calls and message["content"] == ""):
            # A stream begins with an empty text. A body with calls alone has null.
            message["content"] = None

        logprobs = {name: entries or None for name, entries in self._logprobs.items()}
        return {
            "index": self._piece,
            "message": message,
            "logprobs": logprobs or None,
            "finish_reason": msgspec.Raw(self._finish_reason or _NULL),
            **self._members,
        }

    def _read_texts(self, delta: Members) -> Sequence[tuple[str, str]]:
        """Return the texts of a delta that are shown at once, and keep them."""
        texts: list[tuple[str, str]] = []
        for name, raw in delta.items():
            value = bytes(raw)
            if value[:1] != b'"':
                continue
            if name == "role":
                if self._role is None and value != b'""':
                    self._role = raw
                continue

            text = _string_decoder.decode(value)
            if name in self._objects:
                continue
            self._texts.setdefault(name, []).append(text)
            if text:
                texts.append((name, text))
        return texts

    def _read_objects(self, delta: Members) -> Iterator[tuple[str, bytes]]:
        """Yield the members of a delta that wait for the verdict, and keep them."""
        for name, raw in delta.items():
            value = bytes(raw)
            is_text = value[:1] == b'"' and name not in self._objects
            if is_text or name in ("role", TOOL_CALLS, FUNCTION_CALL):
                continue
            if value == _NULL:
                self._nulls[name] = None
                continue

            if any(self._texts.get(name, ())):
                raise UnreadableResponseError(f"{name!r} of the provider's stream is text and more")
            self._texts.pop(name, None)
            self._add_object(name, value)
            yield name, value

    def _add_object(self, name: str, value: bytes) -> None:
        if value[:1] == b'"':
            # Mistral: parts of thinking in a list, then the text as a string.
            part = {"type": "text", "text": msgspec.Raw(value)}
            value = msgspec.json.encode([part])
        self._objects.setdefault(name, []).append(value)

    def _read_calls(self, delta: Members) -> Iterator[ReplyEvent]:
        raw_calls = _value(delta, TOOL_CALLS)
        if raw_calls != _NULL:
            for part in _choices_decoder.decode(raw_calls):
                yield from self._calls.add(part)

        function = _value(delta, FUNCTION_CALL)
        if function[:1] == b"{":
            yield from self._calls.add_function_call(msgspec.Raw(function))

    def _join_logprobs(self, value: bytes) -> msgspec.Raw | None:
        """Keep the logprobs of a chunk, and return them; None if it has none."""
        if value[:1] != b"{":
            return None

        for name, raw in _members_decoder.decode(value).items():
            entries = _elements_decoder.decode(raw) if bytes(raw)[:1] == b"[" else []
            self._logprobs.setdefault(name, []).extend(entries)
        return msgspec.Raw(value)

    def _check_bounds(self) -> None:
        count = len(self._texts) + len(self._objects) + len(self._nulls) + len(self._members)
        if count > json_splice.MAX_MEMBERS:
            raise json_splice.TooManyMembersError


class _ChoiceEvents:
    """The events of one part of a choice.

    The members of its chunk and of the choice that nobody knows go along with the first event.
    """

    def __init__(self, piece: int, chunk_members: Members, choice_members: Members) -> None:
        self.all: list[ReplyEvent] = []
        self._piece = piece
        self._chunk_members = chunk_members
        self._choice_members = choice_members

    def add_text(self, name: str, text: str, logprobs: msgspec.Raw | None) -> None:
        kind: EventKind = "reasoning" if name in REASONING else "content"
        self.add(kind, name, _NOTHING, logprobs, text)

    def add(
        self,
        kind: EventKind,
        channel: str,
        data: Mapping[str, Any],
        logprobs: msgspec.Raw | None = None,
        text: str = "",
    ) -> None:
        if logprobs is not None:
            data = {**data, "choice": {"logprobs": logprobs}}
        self.all.append(ReplyEvent(kind, self._piece, self._with_others(data), channel, text))

    def add_call(self, event: ReplyEvent) -> None:
        if self._chunk_members or self._choice_members:
            event = msgspec.structs.replace(event, data=self._with_others(event.data))
        self.all.append(event)

    def _with_others(self, data: Mapping[str, Any]) -> Mapping[str, Any]:
        if self._chunk_members:
            data = {**data, "chunk": self._chunk_members}
            self._chunk_members = {}
        if self._choice_members:
            data = {**data, "choice": {**self._choice_members, **data.get("choice", _NOTHING)}}
            self._choice_members = {}
        return data


def _value(members: Members, name: str) -> bytes:
    """Return a member's bytes; those of null if it is absent."""
    raw = members.get(name)
    return _NULL if raw is None else bytes(raw)


def _has_calls(delta: Members) -> bool:
    return _value(delta, TOOL_CALLS) != _NULL or _value(delta, FUNCTION_CALL) != _NULL


def _has_value(raw: msgspec.Raw | None) -> bool:
    return raw is not None and bytes(raw) not in (_NULL, b'""', b"0")


def _check_repeated(data: bytes) -> None:
    """Raise ``RepeatedMemberError`` for a member that is read and stands twice in its object.

    Those are the objects of a chunk, its choices, their deltas, and the calls in these.
    """
    chunk = _members_once(data)
    for choice in _array(chunk, "choices"):
        delta = _value(_members_once(choice), "delta")
        if delta[:1] == b"{":
            _check_delta(delta)


def _check_delta(raw: bytes) -> None:
    delta = _members_once(raw)

    function = _value(delta, FUNCTION_CALL)
    if function[:1] == b"{":
        _members_once(function)

    for call in _array(delta, TOOL_CALLS):
        check_members(_members_once(call))


def _members_once(raw: bytes) -> Members:
    """Return the members of an object, of which each that is read stands once."""
    json_splice.find_members(raw, _READ)
    return _members_decoder.decode(raw)


def _array(members: Members, name: str) -> list[bytes]:
    """Return the elements of a member; none if it is null or absent."""
    raw = _value(members, name)
    return [] if raw == _NULL else [*map(bytes, _elements_decoder.decode(raw))]
