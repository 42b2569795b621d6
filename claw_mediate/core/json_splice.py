"""Edits of JSON without rebuilding it (docs/spec/mediation.md section 3, 5.).

Every byte that is not ours stays as it was. Unknown fields, number spellings, key order, escapes,
repeated keys and white space survive by construction, because only the spans of the members that we
own are replaced.

A document must have been validated before (``msgspec`` does it). In one that is not JSON, places
are nonsense.
"""

import codecs
import json
import re
from collections.abc import Collection, Iterable, Mapping
from operator import itemgetter
from typing import NamedTuple

import msgspec

from claw_mediate.core.json_outline import MAX_WHOLE_BYTES, Outline

# Exported: callers catch it as this module's error.
from claw_mediate.core.json_outline import JsonSpliceError as JsonSpliceError  # noqa: PLC0414
from claw_mediate.core.json_pieces import copy_span, join_pieces

# Possessive quantifiers: a hostile string must not make the expression backtrack.
_STRING = rb'"(?:[^"\\]++|\\.)*+"'
_BACKSLASH = ord("\\")
"""Its number: before Python looks for bytes, it makes an exception, as they are no number."""
_SPACE = re.compile(rb"[ \t\r\n]*+")
_SPACES = (b" ", b"\t", b"\r", b"\n")
_MEMBER = re.compile(
    rb'[ \t\r\n]*+"((?:[^"\\]++|\\.)*+)"[ \t\r\n]*+:[ \t\r\n]*+'
    rb"(?:(%b|[^\s,\]}{\[]++)[ \t\r\n]*+,?)?+" % _STRING,
    re.DOTALL,
)
"""A member and its comma, if its value is a scalar; else everything before the value.

Groups: the name as it is spelled, and the value if it is a scalar.
"""
_NEXT = re.compile(rb"[ \t\r\n]*+,?[ \t\r\n]*+")
_SCALAR = re.compile(_STRING + rb"|[^\s,\]}]++", re.DOTALL)
_NESTING = re.compile(rb'(?:[^"{}\[\]]++|' + _STRING + rb")*+([{}\[\]])", re.DOTALL)
"""A bracket and everything before it that is none; brackets in strings don't count."""

MAX_MEMBERS = 1000
"""Objects with more members are not read: no request or response of a provider has them."""
_SLICE = 1 << 20  # Bytes of a large document that are read in one step

type Cut = tuple[int, int, bytes | memoryview]  # Start and end of a span, and its replacement

_ESCAPED_ASCII = re.compile(rb"\\u00[2-7]")

_raw_values = msgspec.json.Decoder(dict[str, msgspec.Raw])
_raw_elements = msgspec.json.Decoder(list[msgspec.Raw])


class TooManyMembersError(JsonSpliceError):
    def __init__(self) -> None:
        super().__init__(f"an object has more than {MAX_MEMBERS} members")


class RepeatedMemberError(JsonSpliceError):
    """A member that we must read or change stands twice in its object.

    Two parsers could disagree about which one counts.
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
    """Raise ``UnicodeDecodeError`` unless the document is UTF-8.

    msgspec alone does not check this: it skips text that no field asks for.
    """
    if document.isascii():
        return

    # In slices, because one call on a large body would hold up every other thread.
    decoder = codecs.getincrementaldecoder("utf-8")()
    for start in range(0, len(document), _SLICE):
        decoder.decode(document[start : start + _SLICE])
    decoder.decode(b"", final=True)


def list_members(document: bytes, at: int = 0) -> list[Member]:
    """Return the members of the object that begins at ``at``, in order, repeated ones too.

    Raises ``TooManyMembersError``.
    """
    if len(document) <= MAX_WHOLE_BYTES:
        return _list_members(document, at)

    outline = Outline(document)
    in_document = outline.place_in_document
    members = _list_members(outline.text, outline.place_in_outline(at))
    return [
        Member(
            outline.restore(member.name),
            in_document(member.at),
            in_document(member.start),
            in_document(member.end),
        )
        for member in members
    ]


def _list_members(document: bytes, at: int) -> list[Member]:
    members: list[Member] = []
    values: dict[str, bytes] | None = None  # Decoded at the first nested value

    position = _skip_space(document, at) + 1
    while match := _MEMBER.match(document, position):
        if len(members) == MAX_MEMBERS:
            raise TooManyMembersError

        key = match[1]
        name: str = json.loads(b'"%b"' % key) if _BACKSLASH in key else key.decode()

        start, end = match.span(2)
        position = match.end()
        is_nested = end < 0
        if is_nested:
            # msgspec finds the end of a value ten times as fast, but reads whole documents only.
            if values is None:
                values = _decode_values(document) if at == 0 else {}
            start = position
            end = _end_if_equal(document, start, values.get(name)) or _find_end(document, start)
            position = _find_next(document, end)

        members.append(Member(name, match.start(1) - 1, start, end))

    return members


def find_members(document: bytes, names: Collection[str], at: int = 0) -> dict[str, Member]:
    """Return those members of the object at ``at`` that have one of these names.

    Raises ``RepeatedMemberError``, ``TooManyMembersError``.
    """
    members: dict[str, Member] = {}

    for member in list_members(document, at):
        if member.name not in names:
            continue
        if member.name in members:
            raise RepeatedMemberError(member.name)
        members[member.name] = member

    return members


def marks(names: Iterable[str]) -> re.Pattern[bytes]:
    """Return an expression that finds members with these names, at any depth.

    It finds nothing within a text, whose quotes are escaped.
    """
    alternatives = b"|".join(re.escape(name.encode()) for name in names)
    return re.compile(rb'"(%b)"[ \t\r\n]*+:' % alternatives)


def stand_once(names: re.Pattern[bytes], document: bytes) -> bool:
    """Return True if none of the names (``marks``) stands twice in the document, at any depth.

    This is quick, and spares the reader of an ordinary document a search for repeated members.
    False is no proof that there is one.
    """
    found = names.findall(document)
    if len(found) != len({*found}) or document.count(b":") > MAX_MEMBERS:
        return False

    # A name may be spelled with escapes, which the expression does not find.
    # One byte is found six times as fast as the beginning of such an escape.
    has_escape = _BACKSLASH in document and b"\\u00" in document
    has_escaped_name = has_escape and _ESCAPED_ASCII.search(document) is not None
    return not has_escaped_name


def element_spans(document: bytes, at: int = 0) -> list[tuple[int, int]]:
    """Return the spans of the elements of the array that begins at ``at`` (after white space)."""
    if len(document) <= MAX_WHOLE_BYTES:
        return _element_spans(document, at)

    outline = Outline(document)
    in_document = outline.place_in_document
    spans = _element_spans(outline.text, outline.place_in_outline(at))
    return [(in_document(start), in_document(end)) for start, end in spans]


def _element_spans(document: bytes, at: int) -> list[tuple[int, int]]:
    # As with members: msgspec finds the ends, where the array is the whole document.
    sizes = iter(_decode_element_sizes(document) if at == 0 else ())
    spans: list[tuple[int, int]] = []

    position = _skip_space(document, _skip_space(document, at) + 1)
    while document[position : position + 1] != b"]":
        size = next(sizes, None)
        end = _find_end(document, position) if size is None else position + size
        spans.append((position, end))
        position = _find_next(document, end)

    return spans


def edit(document: bytes, changes: Mapping[str, bytes | None]) -> bytes:
    """Return the object with members replaced, added at its end, or (if None) removed.

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
        self._indexes: dict[str, int] = {}
        self._repeated: set[str] = set()
        for index, member in enumerate(self._members):
            if self._indexes.setdefault(member.name, index) != index:
                self._repeated.add(member.name)

        repeated = sorted(self._repeated.intersection(unique))
        if repeated:
            raise RepeatedMemberError(repeated[0])

    def value(self, name: str) -> bytes | None:
        """Return the exact bytes of a member's value; None if there is no such member.

        Raises ``RepeatedMemberError``.
        """
        index = self._index_of(name)
        if index is None:
            return None

        member = self._members[index]
        return copy_span(self._document, member.start, member.end)

    def edit(self, changes: Mapping[str, bytes | None]) -> bytes:
        """Return the edited object, like the function ``edit``."""
        return splice(self._document, self._cuts_for(changes))

    def split(self, changes: Mapping[str, bytes | None], name: str) -> tuple[bytes, bytes]:
        """Return the edited object in two parts.

        The first ends with the last element of the array ``name``, which must be there.
        """
        index = self._index_of(name)
        assert index is not None
        member = self._members[index]

        array = changes.get(name) or copy_span(self._document, member.start, member.end)
        closing = array.rindex(b"]")
        while array[closing - 1 : closing] in _SPACES:
            closing -= 1

        others = {other: value for other, value in changes.items() if other != name}
        cuts = self._cuts_for(others)
        cuts_before = [cut for cut in cuts if cut[1] <= member.start]
        cuts_after = [cut for cut in cuts if cut[0] >= member.end]

        # A view, because both parts of a large array would be copied otherwise.
        view = memoryview(array)
        head_cut: Cut = (member.start, len(self._document), view[:closing])
        tail_cut: Cut = (0, member.end, view[closing:])
        head = splice(self._document, [*cuts_before, head_cut])
        tail = splice(self._document, [tail_cut, *cuts_after])
        return head, tail

    def _cuts_for(self, changes: Mapping[str, bytes | None]) -> list[Cut]:
        cuts: list[Cut] = []
        removed: list[int] = []
        added: list[bytes] = []

        for name, value in changes.items():
            index = self._index_of(name)
            if index is None:
                if value is not None:
                    added.append(json.dumps(name).encode() + b":" + value)
            elif value is None:
                removed.append(index)
            else:
                member = self._members[index]
                cuts.append((member.start, member.end, value))

        if added:
            end = self._document.rindex(b"}")
            keeps_members = len(removed) < len(self._members)
            comma = b"," if keeps_members else b""
            cuts.append((end, end, comma + b",".join(added)))

        return cuts + self._removals(sorted(removed))

    def _index_of(self, name: str) -> int | None:
        if name in self._repeated:
            raise RepeatedMemberError(name)
        return self._indexes.get(name)

    def _removals(self, removed: list[int]) -> list[Cut]:
        """Return the cuts that remove members, with the commas that would be left over."""
        if not removed:
            return []

        members = self._members
        last_kept = len(members) - 1
        while last_kept in removed:
            last_kept -= 1

        # Before the last member that stays, each goes with the comma after it. Those at the end go
        # together, with the comma before them.
        cuts: list[Cut] = [
            (members[index].at, members[index + 1].at, b"")
            for index in removed
            if index < last_kept
        ]
        if removed[-1] > last_kept:
            start = members[last_kept].end if last_kept >= 0 else members[0].at
            cuts.append((start, members[-1].end, b""))
        return cuts


def splice(document: bytes, cuts: Collection[Cut]) -> bytes:
    """Return the document with spans replaced; the spans must not overlap."""
    if not cuts:
        return document

    # A view, so that a large document is copied once only.
    view = memoryview(document)
    parts: list[bytes | memoryview] = []
    position = 0
    for start, end, value in sorted(cuts, key=itemgetter(0, 1)):
        parts += [view[position:start], value]
        position = end
    parts.append(view[position:])

    return join_pieces(parts)


def append(array: bytes, entries: Iterable[bytes]) -> bytes:
    """Return the array with entries after its own."""
    new = b",".join(entries)
    if not new:
        return array

    end = array.rindex(b"]")
    return splice(array, [(end, end, _leading_comma(array, end) + new)])


def _leading_comma(array: bytes, end: int) -> bytes:
    """Return the comma before a new last entry; b"" if the array that ends at ``end`` is empty."""
    while array[end - 1 : end] in _SPACES:
        end -= 1
    return b"" if array[end - 1 : end] == b"[" else b","


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
    """Return where the nested value at ``start`` ends, if it is ``raw``.

    None for another value: of a repeated name, only the last value was decoded.
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

    depth = 0
    for bracket in _NESTING.finditer(document, position):
        depth += 1 if bracket[1] in (b"{", b"[") else -1
        if depth == 0:
            return bracket.end()

    raise ValueError("unbalanced brackets")
