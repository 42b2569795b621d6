"""Editing JSON without rebuilding it: every byte that is not ours stays as it was (spec/mediation.md section 3, 5.).

Unknown fields, number spellings, key order, escapes, repeated keys and white space survive by construction, because only
the spans of the members that we own are replaced. Documents must have been validated before (``msgspec`` does it).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

# Possessive quantifiers: a hostile string must not make the expression backtrack.
_STRING = rb'"(?:[^"\\]++|\\.)*+"'
_SPACE = re.compile(rb"[ \t\r\n]*+")
_SCALAR = re.compile(_STRING + rb"|[^\s,\]}]++", re.DOTALL)
_NESTING = re.compile(_STRING + rb"|[{}\[\]]", re.DOTALL)


class RepeatedMemberError(ValueError):
    """A member that we must read or change stands twice: two parsers could disagree about which one counts."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name!r} stands twice in one object")


@dataclass(frozen=True, slots=True)
class Member:
    """A member of an object: its name, where its name begins, and the span of its value."""

    name: str
    at: int
    start: int
    end: int


def members(document: bytes, at: int = 0) -> list[Member]:
    """The members of the object that begins at ``at`` (after white space), in order, repeated ones too."""
    found: list[Member] = []
    position = _skip(document, _skip(document, at) + 1)
    while document[position : position + 1] != b"}":
        key_end = _end(document, position)
        start = _skip(document, _skip(document, key_end) + 1)
        end = _end(document, start)
        found.append(Member(json.loads(document[position:key_end]), position, start, end))
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
    found: list[tuple[int, int]] = []
    position = _skip(document, _skip(document, at) + 1)
    while document[position : position + 1] != b"]":
        end = _end(document, position)
        found.append((position, end))
        position = _next(document, end)
    return found


def edited(document: bytes, changes: Mapping[str, bytes | None]) -> bytes:
    """The object with members replaced, added at its end, or (None) removed. Raises ``RepeatedMemberError``."""
    for name in (name for name, value in changes.items() if value is None):
        document = _without(document, name)
    present = members(document)
    cuts: list[tuple[int, int, bytes]] = []
    added: dict[str, bytes] = {}
    for name, value in changes.items():
        if value is None:
            continue
        if (index := _place(present, name)) is None:
            added[name] = value
        else:
            cuts.append((present[index].start, present[index].end, value))
    return _with_added(spliced(document, cuts), added)


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


def _place(present: list[Member], name: str) -> int | None:
    places = [index for index, member in enumerate(present) if member.name == name]
    if len(places) > 1:
        raise RepeatedMemberError(name)
    return places[0] if places else None


def _without(document: bytes, name: str) -> bytes:
    present = members(document)
    if (index := _place(present, name)) is None:
        return document
    # With its comma: the one behind it, or, of the last member, the one before it.
    if index + 1 < len(present):
        return spliced(document, [(present[index].at, present[index + 1].at, b"")])
    start = present[index - 1].end if index else present[index].at
    return spliced(document, [(start, present[index].end, b"")])


def _with_added(document: bytes, added: Mapping[str, bytes]) -> bytes:
    if not added:
        return document
    end = document.rindex(b"}")
    text = b",".join(json.dumps(name).encode() + b":" + value for name, value in added.items())
    return document[:end] + _comma(document, end) + text + document[end:]


def _comma(document: bytes, end: int) -> bytes:
    """What goes before a new last entry: nothing where the bracket that closes at ``end`` was opened just before."""
    return b"" if document[:end].rstrip(b" \t\r\n")[-1:] in (b"[", b"{") else b","


def _skip(document: bytes, position: int) -> int:
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
        mark = document[token.start()]
        depth += (mark in b"{[") - (mark in b"}]")
        if depth == 0:
            return token.end()
    raise ValueError("unbalanced brackets")
