"""Editing JSON without rebuilding it: every byte that is not ours stays as it was (spec/mediation.md section 3, 5.).

Unknown fields, number spellings, key order, escapes, repeated keys and white space survive by construction, because only
the spans of the members that we own are replaced. Documents must have been validated before (``msgspec`` does it).
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import msgspec

# Possessive quantifiers: a hostile string must not make the expression backtrack.
_STRING = rb'"(?:[^"\\]++|\\.)*+"'
_SPACE = re.compile(rb"[ \t\r\n]*+")
_WHITE = (b" ", b"\t", b"\r", b"\n")
_SCALAR = re.compile(_STRING + rb"|[^\s,\]}]++", re.DOTALL)
_NESTING = re.compile(rb'(?:[^"{}\[\]]++|' + _STRING + rb")*+([{}\[\]])", re.DOTALL)
"""A bracket, with all that is before it: one step of the loop each, and none for strings."""


MOST_MEMBERS = 1000
"""An object with more is not read: no request or response of a provider has them."""
_LARGE = 4096
"""Bytes from which on it pays to let msgspec find where values end."""
_SLICE = 1 << 20
_raw_values = msgspec.json.Decoder(dict[str, msgspec.Raw])
_raw_elements = msgspec.json.Decoder(list[msgspec.Raw])


class WireError(ValueError):
    """A document that we do not edit. The message is one sentence, for the runner."""


class TooManyMembersError(WireError):
    def __init__(self) -> None:
        super().__init__(f"an object has more than {MOST_MEMBERS} members")


class RepeatedMemberError(WireError):
    """A member that we must read or change stands twice: two parsers could disagree about which one counts."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name!r} stands twice in one object")


class Member(NamedTuple):
    """A member of an object: its name, where its name begins, and the span of its value."""

    name: str
    at: int
    start: int
    end: int


def check_utf8(document: bytes) -> None:
    """Raises ``UnicodeDecodeError``: msgspec steps over text that it does not read. In slices, for bodies may be large."""
    if not document.isascii():
        decoder = codecs.getincrementaldecoder("utf-8")()
        for start in range(0, len(document), _SLICE):
            decoder.decode(document[start : start + _SLICE])
        decoder.decode(b"", final=True)


def members(document: bytes, at: int = 0) -> list[Member]:
    """The members of the object that begins at ``at`` (after white space), in order, repeated ones too.

    Raises ``TooManyMembersError``.
    """
    sizes = _sizes(document) if at == 0 and len(document) > _LARGE else {}
    found: list[Member] = []
    position = _skip(document, _skip(document, at) + 1)
    while document[position : position + 1] != b"}":
        if len(found) == MOST_MEMBERS:
            raise TooManyMembersError
        key_end = _end(document, position)
        start = _skip(document, _skip(document, key_end) + 1)
        name = _name(document[position:key_end])
        end = _known_end(document, start, sizes.get(name)) or _end(document, start)
        found.append(Member(name, position, start, end))
        position = _next(document, end)
    return found


def once(document: bytes, names: Collection[str], at: int = 0) -> dict[str, Member]:
    """Of these names the members that are there. Raises ``RepeatedMemberError``."""
    found: dict[str, Member] = {}
    for member in members(document, at):
        if member.name in names:
            if member.name in found:
                raise RepeatedMemberError(member.name)
            found[member.name] = member
    return found


def elements(document: bytes, at: int = 0) -> list[tuple[int, int]]:
    """The spans of the elements of the array that begins at ``at`` (after white space)."""
    sizes = iter(_element_sizes(document) if at == 0 and len(document) > _LARGE else ())
    found: list[tuple[int, int]] = []
    position = _skip(document, _skip(document, at) + 1)
    while document[position : position + 1] != b"]":
        size = next(sizes, None)
        end = _end(document, position) if size is None else position + size
        found.append((position, end))
        position = _next(document, end)
    return found


def edited(document: bytes, changes: Mapping[str, bytes | None]) -> bytes:
    """The object with members replaced, added at its end, or (None) removed. Raises ``WireError``."""
    return Object(document).edited(changes)


class Object:
    """An object whose members are found once, and that is edited in several ways."""

    def __init__(self, document: bytes, once: Collection[str] = ()) -> None:
        """Of the names of ``once`` none stands twice. Raises ``TooManyMembersError`` or ``RepeatedMemberError``."""
        self._document = document
        self._members = members(document)
        names = [member.name for member in self._members if member.name in once]
        if repeated := next((name for name in names if names.count(name) > 1), None):
            raise RepeatedMemberError(repeated)

    def value(self, name: str) -> bytes | None:
        """The exact bytes of a member's value; None where there is no such member. Raises ``RepeatedMemberError``."""
        index = self._place(name)
        return None if index is None else self._document[self._members[index].start : self._members[index].end]

    def edited(self, changes: Mapping[str, bytes | None]) -> bytes:
        """As the function of that name."""
        cuts, added = self._cuts(changes)
        return _with_added(spliced(self._document, cuts), added)

    def split(self, changes: Mapping[str, bytes | None], name: str) -> tuple[bytes, bytes]:
        """The edited object in two parts: up to the last element of the array ``name``, and from there on."""
        place = self._place(name)
        assert place is not None
        cuts, added = self._cuts(changes)
        document = _with_added(spliced(self._document, cuts), added)
        end = self._members[place].end
        closing = end + sum(len(value) - (stop - start) for start, stop, value in cuts if stop <= end) - 1
        while document[closing - 1 : closing] in _WHITE:
            closing -= 1
        return document[:closing], document[closing:]

    def _cuts(self, changes: Mapping[str, bytes | None]) -> tuple[list[tuple[int, int, bytes]], dict[str, bytes]]:
        places = {name: index for name in changes if (index := self._place(name)) is not None}
        removed = sorted(index for name, index in places.items() if changes[name] is None)
        cuts = [
            (self._members[index].start, self._members[index].end, value)
            for name, index in places.items()
            if (value := changes[name]) is not None
        ]
        added = {name: value for name, value in changes.items() if value is not None and name not in places}
        return [*cuts, *self._removals(removed)], added

    def _place(self, name: str) -> int | None:
        places = [index for index, member in enumerate(self._members) if member.name == name]
        if len(places) > 1:
            raise RepeatedMemberError(name)
        return places[0] if places else None

    def _removals(self, removed: list[int]) -> list[tuple[int, int, bytes]]:
        """Each with its comma: the one behind it, or, of those that end the object, the one before them."""
        present = self._members
        kept = max((index for index in range(len(present)) if index not in removed), default=-1)
        cuts = [(present[index].at, present[index + 1].at, b"") for index in removed if index < kept]
        if removed and removed[-1] > kept:
            cuts.append((present[kept].end if kept >= 0 else present[0].at, present[-1].end, b""))
        return cuts


def spliced(document: bytes, cuts: Iterable[tuple[int, int, bytes]]) -> bytes:
    """The document with spans replaced; spans must not overlap."""
    parts: list[bytes] = []
    position = 0
    for start, end, value in sorted(cuts):
        parts += [document[position:start], value]
        position = end
    return b"".join([*parts, document[position:]])


def appended(array: bytes, entries: Iterable[bytes]) -> bytes:
    """The array with entries behind its own."""
    new = b",".join(entries)
    if not new:
        return array
    end = array.rindex(b"]")
    return array[:end] + _comma(array, end) + new + array[end:]


def _with_added(document: bytes, added: Mapping[str, bytes]) -> bytes:
    if not added:
        return document
    end = document.rindex(b"}")
    text = b",".join(json.dumps(name).encode() + b":" + value for name, value in added.items())
    return document[:end] + _comma(document, end) + text + document[end:]


def _comma(document: bytes, end: int) -> bytes:
    """What goes before a new last entry: nothing where the bracket that closes at ``end`` was opened just before."""
    return b"" if document[:end].rstrip(b" \t\r\n")[-1:] in (b"[", b"{") else b","


def _sizes(document: bytes) -> dict[str, bytes]:
    try:
        return {name: bytes(raw) for name, raw in _raw_values.decode(document).items()}
    except (msgspec.DecodeError, RecursionError):
        return {}


def _element_sizes(array: bytes) -> list[int]:
    try:
        return [memoryview(raw).nbytes for raw in _raw_elements.decode(array)]
    except (msgspec.DecodeError, RecursionError):
        return []


def _known_end(document: bytes, start: int, raw: bytes | None) -> int | None:
    """Where a nested value ends, by its known bytes; None where they are another's (a repeated name), or it is a scalar."""
    if raw is None or raw[:1] not in (b"{", b"[") or not document.startswith(raw, start):
        return None
    return start + len(raw)


def _name(key: bytes) -> str:
    text: str = json.loads(key) if b"\\" in key else key[1:-1].decode()
    return text


def _skip(document: bytes, position: int) -> int:
    if document[position : position + 1] > b" ":
        return position
    space = _SPACE.match(document, position)
    assert space is not None
    return space.end()


def _next(document: bytes, end: int) -> int:
    """Where the next member or element begins, or the closing bracket stands."""
    position = _skip(document, end)
    return _skip(document, position + 1) if document[position : position + 1] == b"," else position


def _end(document: bytes, position: int) -> int:
    """Where the value that begins at ``position`` ends."""
    if document[position : position + 1] not in (b"{", b"["):
        scalar = _SCALAR.match(document, position)
        assert scalar is not None
        return scalar.end()
    depth = 0
    for token in _NESTING.finditer(document, position):
        depth += 1 if token[1] in (b"{", b"[") else -1
        if depth == 0:
            return token.end()
    raise ValueError("unbalanced brackets")
