"""The calls of a streamed chat completion, put together of their parts.

A part belongs to a call by its index and its id:

    an index with an id that the call there has not    another call: some servers give every call
                                                       the same index
    an index otherwise                                 the last call there, or a new one
    no index, an id                                    the call with that id, or a new one
    neither                                            a new call if the part names a function, else
                                                       the last one

Calls are in the order in which they begin, whatever their indexes are. Parts of names, arguments
and inputs are joined byte for byte. ``function_call``, as OpenAI had it before tools, is one call
with neither index nor id.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from claw_mediate.core import json_splice
from claw_mediate.core.reply_events import CallPart, ReplyEvent
from claw_mediate.dialects.base import MAX_PARTS, UnreadableResponseError
from claw_mediate.dialects.openai.joined_values import join_values

type Part = Mapping[str, msgspec.Raw]
"""A part of a call: its members, by name."""

FUNCTION_CALL: Final = "function_call"
TOOL_CALLS: Final = "tool_calls"
_TEXT_OF: Final = {"function": "arguments", "custom": "input"}
"""The objects of a call, and the member of each that comes in many parts."""
_ONCE: Final = frozenset({"index", "id", "type", *_TEXT_OF})
"""Members of a call that are not joined as others are."""
_NULL: Final = b"null"

_part_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_string_decoder = msgspec.json.Decoder(str)


def call_channel(index: int) -> str:
    """Return the channel of a call: the place among the calls of its choice."""
    return f"{TOOL_CALLS}.{index}"


class _CallFunction:
    """The ``function`` of a call, or the ``custom`` of one."""

    def __init__(self, text_name: str) -> None:
        self._text_name = text_name
        self.has_text = False
        """True if a part had text: its name is whole."""
        self._names: list[str] = []
        self._texts: list[str] = []
        self._others: dict[str, list[bytes]] = {}

    def add(self, part: Part) -> tuple[str, dict[str, Any]]:
        """Add a part, and return its text and its other members."""
        text = ""
        others: dict[str, Any] = {}
        for name, raw in part.items():
            value = bytes(raw)
            if name == self._text_name:
                text = _text(value)
                self._texts.append(text)
                self.has_text = self.has_text or bool(text)
            elif name == "name":
                self._add_name(_text(value))
                others[name] = raw
            else:
                others[name] = raw
                if value != _NULL:
                    self._others.setdefault(name, []).append(value)
        return text, others

    def _add_name(self, part: str) -> None:
        if part and self.has_text:
            # A runner may have been shown the call by the name that it had.
            raise UnreadableResponseError("a call of the provider's stream changes its name")
        self._names.append(part)

    @property
    def name(self) -> str:
        return "".join(self._names)

    def members(self) -> dict[str, Any]:
        return {
            "name": self.name,
            self._text_name: "".join(self._texts),
            **{name: msgspec.Raw(join_values(values)) for name, values in self._others.items()},
        }


def _text(value: bytes) -> str:
    """Return a text; "" for null. Some providers give the arguments as an object: its JSON."""
    if value[:1] == b'"':
        return _string_decoder.decode(value)
    return "" if value == _NULL else value.decode()


class _Call:
    """One call, put together of its parts."""

    def __init__(self, channel: str, number: int) -> None:
        self.id = ""
        self._number = number
        self._channel = channel
        self._type: bytes | None = None
        self._inner: dict[str, _CallFunction] = {}
        self._others: dict[str, list[bytes]] = {}
        self._has_begun = False

    def add(self, part: Part, piece: int) -> Iterator[ReplyEvent]:
        """Add a part, and yield what it tells."""
        members: dict[str, Any] = {}
        texts: list[tuple[str, str]] = []
        for name, raw in part.items():
            value = bytes(raw)
            if name in _TEXT_OF and value[:1] == b"{":
                text, others = self._add_inner(name, value)
                members[name] = others
                texts.append((name, text))
            elif name not in _ONCE and value != _NULL:
                members[name] = raw
                self._others.setdefault(name, []).append(value)

        members |= self._read_head(part)
        own = CallPart(self._number, self.id, self._whole_name())
        is_first = not self._has_begun
        self._has_begun = True
        if is_first and "function" in members:
            # An SDK misses the arguments of a call that never names them.
            members["function"]["arguments"] = ""

        if is_first or any(members.values()):
            channel = self._channel if is_first else f"{self._channel}.more"
            yield ReplyEvent("call", piece, {"call": members}, channel, call=own)
        for name, text in texts:
            if text:
                channel = f"{self._channel}.{_TEXT_OF[name]}"
                yield ReplyEvent("call", piece, {}, channel, text, call=own)

    def _whole_name(self) -> str:
        """Return the name of the tool; "" while more of it may come."""
        return "".join(inner.name for inner in self._inner.values() if inner.has_text)

    def _add_inner(self, name: str, value: bytes) -> tuple[str, dict[str, Any]]:
        inner = self._inner.get(name)
        if inner is None:
            inner = self._inner[name] = _CallFunction(_TEXT_OF[name])
        return inner.add(_part_decoder.decode(value))

    def _read_head(self, part: Part) -> dict[str, Any]:
        """Return the id and the type, if this part has them and none before had."""
        head: dict[str, Any] = {}
        own_id = read_id(part)
        if own_id and not self.id:
            self.id = own_id
            head["id"] = own_id

        kind = bytes(part.get("type", _NULL))
        if kind not in (_NULL, b'""') and self._type is None:
            self._type = kind
            head["type"] = msgspec.Raw(kind)
        return head

    def members(self) -> dict[str, Any]:
        """Return the whole call as ``tool_calls`` has it."""
        members: dict[str, Any] = {"id": self.id} if self.id else {}
        if self._type is not None:
            members["type"] = msgspec.Raw(self._type)
        elif "function" in self._inner:
            members["type"] = "function"

        for name, inner in self._inner.items():
            members[name] = inner.members()
        for name, values in self._others.items():
            members[name] = msgspec.Raw(join_values(values))
        return members

    def function(self) -> dict[str, Any]:
        """Return the function of a call in the old form."""
        return self._inner["function"].members()


def read_id(part: Part) -> str:
    """Return the id of a part; "" if it has none."""
    raw = bytes(part.get("id", _NULL))
    return _string_decoder.decode(raw) if raw[:1] == b'"' else ""


class CallsAssembler:
    """The calls of one choice."""

    def __init__(self, piece: int) -> None:
        self._piece = piece
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._by_id: dict[str, _Call] = {}
        self._function_call: _Call | None = None

    def add(self, part: Part) -> Iterator[ReplyEvent]:
        """Add an element of ``tool_calls``, and yield what it tells.

        Raise ``UnreadableResponseError`` for one call too many, ``DecodeError`` for no part.
        """
        index = _read_index(part)
        own_id = read_id(part)
        call = self._find(index, own_id, names_function=_names_function(part))
        if call is None:
            call = self._begin()

        if index is not None:
            self._by_index[index] = call
        if own_id and not call.id:
            self._by_id[own_id] = call
        return call.add(part, self._piece)

    def add_function_call(self, function: msgspec.Raw) -> Iterator[ReplyEvent]:
        """Add a part of ``function_call``, and yield what it tells."""
        if self._function_call is None:
            self._function_call = _Call(FUNCTION_CALL, -1)
        return self._function_call.add({"function": function}, self._piece)

    def members(self) -> dict[str, Any]:
        """Return the members of a message that hold its calls."""
        members: dict[str, Any] = {}
        if self._calls:
            members[TOOL_CALLS] = [call.members() for call in self._calls]
        if self._function_call is not None:
            members[FUNCTION_CALL] = self._function_call.function()
        return members

    def _find(self, index: int | None, own_id: str, *, names_function: bool) -> _Call | None:
        """Return the call that a part belongs to; None for a new one."""
        if index is not None:
            call = self._by_index.get(index)
            is_another = call is not None and bool(own_id and call.id) and own_id != call.id
            return None if is_another else call

        if own_id:
            return self._by_id.get(own_id)
        if names_function or not self._calls:
            return None
        return self._calls[-1]

    def _begin(self) -> _Call:
        if len(self._calls) == MAX_PARTS:
            raise UnreadableResponseError(
                f"the provider's response holds more than {MAX_PARTS} calls"
            )
        number = len(self._calls)
        call = _Call(call_channel(number), number)
        self._calls.append(call)
        return call


def _read_index(part: Part) -> int | None:
    raw = bytes(part.get("index", _NULL))
    index = msgspec.json.decode(raw)
    return index if type(index) is int else None


def _names_function(part: Part) -> bool:
    """Return True if a part has a name that is not empty."""
    for name in _TEXT_OF:
        raw = bytes(part.get(name, _NULL))
        if raw[:1] == b"{" and _text(bytes(_part_decoder.decode(raw).get("name", _NULL))):
            return True
    return False


def check_members(part: Part) -> None:
    """Raise ``RepeatedMemberError`` for a member of a call, or of its function, that repeats."""
    for name in _TEXT_OF:
        raw = bytes(part.get(name, _NULL))
        if raw[:1] == b"{":
            json_splice.find_members(raw, ("name", _TEXT_OF[name]))
