"""Edits of JSON without rebuilding it: every byte that is not ours stays as it was
(docs/spec/mediation.md section 3, 5.).

Unknown fields, number spellings, key order, escapes, repeated keys and white space survive by
construction, because only the spans of the members that we own are replaced. Documents must have
been validated before (``msgspec`` does it).
"""

import codecs
import json
import re
from collections.abc import Collection, Iterable, Mapping
from operator import itemgetter
from typing import NamedTuple

import msgspec

from claw_mediate.core.json_outline import MAX_WHOLE_BYTES, Outline
from claw_mediate.core.json_outline import JsonSpliceError as JsonSpliceError  # noqa: PLC0414 - the error of this module, too
from claw_mediate.core.json_pieces import copy_span, join_pieces

# Possessive quantifiers: a hostile string must not make the expression backtrack.
_STRING = rb'"(?:[^"\\]++|\\.)*+"'
_SPACE = re.compile(rb"[ \t\r\n]*+")
_SPACES = (b" ", b"\t", b"\r", b"\n")
_MEMBER = re.compile(
    rb'[ \t\r\n]*+"((?:[^"\\]++|\\.)*+)"[ \t\r\n]*+:[ \t\r\n]*+(?:(%b|[^\s,\]}{\[]++)[ \t\r\n]*+,?)?+'
    % _STRING,
    re.DOTALL,
)
"""A member with its comma; of one whose value is nested, all that is before the value."""
_NEXT = re.compile(rb"[ \t\r\n]*+,?[ \t\r\n]*+")
_SCALAR = re.compile(_STRING + rb"|[^\s,\]}]++", re.DOTALL)
_NESTING = re.compile(rb'(?:[^"{}\[\]]++|' + _STRING + rb")*+([{}\[\]])", re.DOTALL)
"""A bracket, with all that is before it: one step of the loop each, and none for strings."""
_UNROLLED_LEVELS = 6


def _nested(levels: int) -> bytes:
    """Return the expression of a value in brackets with no more than these levels of them."""
    inner = rb"|" + _nested(levels - 1) if levels > 1 else b""
    return rb'[{\[](?:[^"{}\[\]]++|' + _STRING + inner + rb")*+[}\]]"


_NESTED = re.compile(_nested(_UNROLLED_LEVELS), re.DOTALL)


MAX_MEMBERS = (
    1000  # Objects with more members are not read: no request or response of a provider has them
)
_MIN_DECODED_SIZE = 4096  # Bytes from which on it pays to let msgspec find where values end
_SLICE = 1 << 20  # Bytes of a large document that are read in one step

type Cut = tuple[int, int, bytes | memoryview]  # A span, and its replacement

_ESCAPED_ASCII = re.compile(rb"\\u00[2-7]")

_raw_values = msgspec.json.Decoder(dict[str, msgspec.Raw])
_raw_elements = msgspec.json.Decoder(list[msgspec.Raw])


class TooManyMembersError(JsonSpliceError):
    def __init__(self) -> None:
        super().__init__(f"an object has more than {MAX_MEMBERS} members")


class RepeatedMemberError(JsonSpliceError):
    """A member that we must read or change stands twice: two parsers could disagree
    about which one counts.
    """

    def __init__(self, name: str) -> None:
        super().__init__(f"{name!r} stands twice in one object")


class Member(NamedTuple):
    """A member of an object: its name, where its name begins, and the span of its value."""

    name: str
    at: int
    start: int
    end: int


def check_utf8(document: bytes) -> None:
    """Raise ``UnicodeDecodeError`` unless the document is UTF-8: msgspec steps over
    text that it does not read.
    """
    # In slices, because bodies may be large.
    if not document.isascii():
        decoder = codecs.getincrementaldecoder("utf-8")()
        for start in range(0, len(document), _SLICE):
            decoder.decode(document[start : start + _SLICE])
        decoder.decode(b"", final=True)


def list_members(document: bytes, at: int = 0) -> list[Member]:
    """Return the members of the object that begins at ``at``, in order, repeated ones too.

    Raises ``TooManyMembersError``.
    """
    if len(document) > MAX_WHOLE_BYTES:
        outline = Outline(document)
        place = outline.place_in_document
        members = _list_members(outline.text, outline.place_in_outline(at))
        return [Member(outline.restore(name), *map(place, places)) for name, *places in members]
    return _list_members(document, at)


def _list_members(document: bytes, at: int) -> list[Member]:
    values = _decode_values(document) if at == 0 and len(document) > _MIN_DECODED_SIZE else {}
    members: list[Member] = []
    position = _skip_space(document, at) + 1
    while match := _MEMBER.match(document, position):
        if len(members) == MAX_MEMBERS:
            raise TooManyMembersError
        key, (start, end), position = match[1], match.span(2), match.end()
        name: str = json.loads(b'"%b"' % key) if b"\\" in key else key.decode()
        if end < 0:
            start = position
            end = _end_if_equal(document, start, values.get(name)) or _find_end(document, start)
            position = _find_next(document, end)
        members.append(Member(name, match.start(1) - 1, start, end))
    return members


def find_members(document: bytes, names: Collection[str], at: int = 0) -> dict[str, Member]:
    """Return the members with these names that are there. Raises ``RepeatedMemberError``."""
    members: dict[str, Member] = {}
    for member in list_members(document, at):
        if member.name in names:
            if member.name in members:
                raise RepeatedMemberError(member.name)
            members[member.name] = member
    return members


def marks(names: Iterable[str]) -> re.Pattern[bytes]:
    """Return the expression of these names as names of members.

    Text matches nowhere: its quotes are escaped.
    """
    return re.compile(
        rb'"(%b)"[ \t\r\n]*+:' % b"|".join(re.escape(name.encode()) for name in names)
    )


def stand_once(names: re.Pattern[bytes], document: bytes) -> bool:
    """Return whether none of the names (``marks``) stands twice, at whatever depth.

    False is no proof that one does.
    """
    found = names.findall(document)
    is_plain = len(found) == len({*found}) and document.count(b":") <= MAX_MEMBERS
    return is_plain and not (b"\\u00" in document and _ESCAPED_ASCII.search(document))


def element_spans(document: bytes, at: int = 0) -> list[tuple[int, int]]:
    """Return the spans of the elements of the array that begins at ``at`` (after white space)."""
    if len(document) > MAX_WHOLE_BYTES:
        outline = Outline(document)
        place = outline.place_in_document
        spans = _element_spans(outline.text, outline.place_in_outline(at))
        return [(place(start), place(end)) for start, end in spans]
    return _element_spans(document, at)


def _element_spans(document: bytes, at: int) -> list[tuple[int, int]]:
    sizes = iter(
        _decode_element_sizes(document) if at == 0 and len(document) > _MIN_DECODED_SIZE else ()
    )
    spans: list[tuple[int, int]] = []
    position = _skip_space(document, _skip_space(document, at) + 1)
    while document[position : position + 1] != b"]":
        size = next(sizes, None)
        end = _find_end(document, position) if size is None else position + size
        spans.append((position, end))
        position = _find_next(document, end)
    return spans


def edit(document: bytes, changes: Mapping[str, bytes | None]) -> bytes:
    """Return the object with members replaced, added at its end, or (None) removed.

    Raises ``JsonSpliceError``.
    """
    return Object(document).edit(changes)


class Object:
    """An object whose members are found once, and that is edited in several ways."""

    def __init__(self, document: bytes, unique: Collection[str] = ()) -> None:
        """Find the members.

        Raises ``RepeatedMemberError`` for a name of ``unique``, or ``TooManyMembersError``.
        """
        self._document = document
        self._members = list_members(document)
        self._places: dict[str, int] = {}
        self._repeated: set[str] = set()
        for index, member in enumerate(self._members):
            if self._places.setdefault(member.name, index) != index:
                self._repeated.add(member.name)
        if repeated := sorted(self._repeated.intersection(unique)):
            raise RepeatedMemberError(repeated[0])

    def value(self, name: str) -> bytes | None:
        """Return the exact bytes of a member's value; None where there is no such member.

        Raises ``RepeatedMemberError``.
        """
        index = self._place(name)
        if index is None:
            return None
        member = self._members[index]
        return copy_span(self._document, member.start, member.end)

    def edit(self, changes: Mapping[str, bytes | None]) -> bytes:
        """Return the edited object, like the function ``edit``."""
        return splice(self._document, self._cuts_for(changes))

    def split(self, changes: Mapping[str, bytes | None], name: str) -> tuple[bytes, bytes]:
        """Return the edited object in two parts: up to the last element of the
        array ``name``, and from there on.
        """
        place = self._place(name)
        assert place is not None
        own = self._members[place]
        array = changes.get(name) or copy_span(self._document, own.start, own.end)
        closing = array.rindex(b"]")
        while array[closing - 1 : closing] in _SPACES:
            closing -= 1
        cuts = self._cuts_for({other: value for other, value in changes.items() if other != name})
        before = [cut for cut in cuts if cut[1] <= own.start]
        behind = [cut for cut in cuts if cut[0] >= own.end]
        head = splice(
            self._document, [*before, (own.start, len(self._document), memoryview(array)[:closing])]
        )
        return head, splice(self._document, [(0, own.end, memoryview(array)[closing:]), *behind])

    def _cuts_for(self, changes: Mapping[str, bytes | None]) -> list[Cut]:
        places = {name: index for name in changes if (index := self._place(name)) is not None}
        removed = sorted(index for name, index in places.items() if changes[name] is None)
        cuts: list[Cut] = [
            (self._members[index].start, self._members[index].end, value)
            for name, index in places.items()
            if (value := changes[name]) is not None
        ]
        added = [
            (name, value)
            for name, value in changes.items()
            if value is not None and name not in places
        ]
        if added:
            end = self._document.rindex(b"}")
            text = b",".join(json.dumps(name).encode() + b":" + value for name, value in added)
            cuts.append((end, end, b"," + text if len(removed) < len(self._members) else text))
        return [*cuts, *self._removals(removed)]

    def _place(self, name: str) -> int | None:
        if name in self._repeated:
            raise RepeatedMemberError(name)
        return self._places.get(name)

    def _removals(self, removed: list[int]) -> list[Cut]:
        """Return a cut for each removed member with its comma: the one behind it,
        or, at the object's end, the one before.
        """
        present = self._members
        kept = max((index for index in range(len(present)) if index not in removed), default=-1)
        cuts: list[Cut] = [
            (present[index].at, present[index + 1].at, b"") for index in removed if index < kept
        ]
        if removed and removed[-1] > kept:
            cuts.append((present[kept].end if kept >= 0 else present[0].at, present[-1].end, b""))
        return cuts


def splice(document: bytes, cuts: Collection[Cut]) -> bytes:
    """Return the document with spans replaced; spans must not overlap.

    Copied once: it may be large.
    """
    view = memoryview(document)
    parts: list[bytes | memoryview] = []
    position = 0
    for start, end, value in sorted(cuts, key=itemgetter(0, 1)):
        parts += [view[position:start], value]
        position = end
    if not cuts:
        return document
    parts.append(view[position:])
    return join_pieces(parts)


def append(array: bytes, entries: Iterable[bytes]) -> bytes:
    """Return the array with entries behind its own."""
    new = b",".join(entries)
    if not new:
        return array
    end = array.rindex(b"]")
    return splice(array, [(end, end, _leading_comma(array, end) + new)])


def _leading_comma(document: bytes, end: int) -> bytes:
    """Return what goes before a new last entry: nothing where the bracket that
    closes at ``end`` was opened just before.
    """
    while document[end - 1 : end] in _SPACES:
        end -= 1
    return b"" if document[end - 1 : end] == b"[" else b","


def _decode_values(document: bytes) -> dict[str, bytes]:
    try:
        return {name: bytes(raw) for name, raw in _raw_values.decode(document).items()}
    except (msgspec.DecodeError, RecursionError):
        return {}


def _decode_element_sizes(array: bytes) -> list[int]:
    try:
        return [memoryview(raw).nbytes for raw in _raw_elements.decode(array)]
    except (msgspec.DecodeError, RecursionError):
        return []


def _end_if_equal(document: bytes, start: int, raw: bytes | None) -> int | None:
    """Return where a nested value ends, by its decoded bytes; None where they are
    of a repeated name, or it is a scalar.
    """
    if raw is None or raw[:1] not in (b"{", b"[") or not document.startswith(raw, start):
        return None
    return start + len(raw)


def _skip_space(document: bytes, position: int) -> int:
    if document[position : position + 1] > b" ":
        return position
    space = _SPACE.match(document, position)
    assert space is not None
    return space.end()


def _find_next(document: bytes, end: int) -> int:
    comma = _NEXT.match(document, end)
    assert comma is not None
    return comma.end()


def _find_end(document: bytes, position: int) -> int:
    if document[position : position + 1] not in (b"{", b"["):
        scalar = _SCALAR.match(document, position)
        assert scalar is not None
        return scalar.end()
    if (nested := _NESTED.match(document, position)) is not None:
        return nested.end()
    depth = 0
    for token in _NESTING.finditer(document, position):
        depth += 1 if token[1] in (b"{", b"[") else -1
        if depth == 0:
            return token.end()
    raise ValueError("unbalanced brackets")
