"""Byte fidelity: all parts that are not ours stay unchanged in any document
(docs/spec/mediation.md section 3, 5.).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claw_mediate.core import json_splice
from tests.mediate.made import JSON_TEXT, SPACE, STRING

OURS = ("messages", "tools", "stream")


@dataclass(frozen=True)
class Part:
    """A member as it was written."""

    before: str
    name: str
    colon: str
    value: str
    after: str

    @property
    def own(self) -> str:
        return self.name + self.colon + self.value

    @property
    def whole(self) -> str:
        return self.before + self.own + self.after


def parts(name: st.SearchStrategy[str]) -> st.SearchStrategy[Part]:
    colon = st.tuples(SPACE, SPACE).map(":".join)
    return st.builds(Part, SPACE, name, colon, JSON_TEXT, SPACE)


OTHER = parts(STRING.filter(lambda name: json.loads(name) not in OURS))
OWN = st.sampled_from([r'"messages"', r'"tools"', r'"stream"', r'"mess\u0061ges"', r'"t\u006fols"'])
DOCUMENT = st.tuples(
    st.lists(OTHER, max_size=4),
    st.lists(parts(OWN), max_size=3, unique_by=lambda part: json.loads(part.name)),
).flatmap(lambda both: st.permutations(both[0] + both[1]))


def written(members: list[Part], outer: str = "") -> bytes:
    return (outer + "{" + (",".join(part.whole for part in members) or " ") + "}" + outer).encode()


def pairs(document: bytes) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = json.loads(
        document, object_pairs_hook=list, parse_int=lambda n: f"#{n}", parse_float=lambda n: f"#{n}"
    )
    return found


@pytest.mark.requirement("wire:byte-fidelity")
@given(DOCUMENT, SPACE, st.sets(st.sampled_from(OURS)))
def test_replacing_changes_the_values_of_these_members_and_no_other_byte(
    members: list[Part], outer: str, names: set[str]
) -> None:
    present = {json.loads(part.name) for part in members} & names
    new = [
        Part(part.before, part.name, part.colon, '"NEW"', part.after)
        if json.loads(part.name) in names
        else part
        for part in members
    ]
    changes: dict[str, bytes | None] = dict.fromkeys(sorted(present), b'"NEW"')
    assert json_splice.edit(written(members, outer), changes) == written(new, outer)


@pytest.mark.requirement("wire:byte-fidelity")
@given(
    DOCUMENT, SPACE, st.dictionaries(st.sampled_from(OURS), st.sampled_from([None, b"[1, 2.0]"]))
)
def test_adding_and_removing_leave_every_other_member_in_its_own_spelling(
    members: list[Part], outer: str, changes: dict[str, bytes | None]
) -> None:
    document = written(members, outer)
    result = json_splice.edit(document, changes)
    before, after = pairs(document), pairs(result)
    assert [pair for pair in after if pair[0] not in changes] == [
        pair for pair in before if pair[0] not in changes
    ]
    said = dict(after)
    for name, value in changes.items():
        assert said.get(name) == (None if value is None else ["#1", "#2.0"])
        assert name in said or value is None
    position = 0
    for part in (part for part in members if json.loads(part.name) not in changes):
        position = result.index(part.own.encode(), position) + len(part.own.encode())


@pytest.mark.requirement("wire:byte-fidelity")
@given(DOCUMENT, st.lists(JSON_TEXT, max_size=2), st.sets(st.sampled_from(OURS)), st.booleans())
def test_a_document_in_two_parts_is_the_document_parted_behind_the_last_element(
    members: list[Part], own: list[str], changed: set[str], anew: bool
) -> None:
    array = f"[ {' , '.join(own)}\n]"
    document = written([Part("", '"array"', " : ", array, " "), *members])
    document = document if anew else written([*members, Part("", '"array"', " : ", array, " ")])
    changes = {name: None if name == "tools" else b"[0]" for name in changed} | (
        {"array": b"[1 ]"} if anew else {}
    )
    head, tail = json_splice.Object(document).split(changes, "array")
    assert head + tail == json_splice.edit(document, changes)
    assert head.endswith(b"[1" if anew else (own[-1] if own else "[").encode())
    assert tail.startswith(b" ]" if anew else b"\n]" if own else b" \n]")


@given(DOCUMENT, SPACE)
def test_members_are_found_where_they_stand(members: list[Part], outer: str) -> None:
    document = written(members, outer)
    found = [
        (m.name, document[m.at : m.end].decode(), document[m.start : m.end].decode())
        for m in json_splice.list_members(document)
    ]
    assert found == [(json.loads(part.name), part.own, part.value) for part in members]


@pytest.mark.requirement("wire:byte-fidelity")
@given(
    st.lists(st.tuples(SPACE, JSON_TEXT, SPACE), max_size=4), SPACE, st.lists(JSON_TEXT, max_size=3)
)
def test_appending_leaves_the_array_as_it_was(
    own: list[tuple[str, str, str]], outer: str, new: list[str]
) -> None:
    array = (outer + "[" + (",".join(map("".join, own)) or " ") + "]" + outer).encode()
    spans = json_splice.element_spans(array)
    assert [array[start:end].decode() for start, end in spans] == [text for _, text, _ in own]
    result = json_splice.append(array, [text.encode() for text in new])
    assert result.startswith(array[: array.rindex(b"]")])
    assert [result[start:end].decode() for start, end in json_splice.element_spans(result)] == [
        *(t for _, t, _ in own),
        *new,
    ]
    assert (result == array) == (not new)


@given(DOCUMENT, st.lists(st.tuples(SPACE, JSON_TEXT, SPACE), max_size=4))
def test_what_is_large_is_found_as_what_is_small(
    members: list[Part], own: list[tuple[str, str, str]]
) -> None:
    large = '["' + "x" * 5000 + '"]'
    for document, find in (
        (written([Part("", '"large"', ":", large, ""), *members]), json_splice.list_members),
        (f"[{','.join([large, *map(''.join, own)])} ]".encode(), json_splice.element_spans),
    ):
        assert find(document) == shifted(find(b" " + document, 1))


def shifted(found: list[Any]) -> list[Any]:
    """Return the same places, one byte further to the left."""
    return [
        json_splice.Member(place.name, place.at - 1, place.start - 1, place.end - 1)
        if isinstance(place, json_splice.Member)
        else (place[0] - 1, place[1] - 1)
        for place in found
    ]


@given(st.binary(max_size=40), st.data())
def test_splicing_replaces_spans_in_any_order(document: bytes, data: st.DataObject) -> None:
    marks = sorted(data.draw(st.sets(st.integers(0, len(document)), max_size=6)))
    cuts = [(start, end, b"*") for start, end in zip(marks[::2], marks[1::2], strict=False)]
    expected = bytearray(document)
    for start, end, value in reversed(cuts):
        expected[start:end] = value
    assert json_splice.splice(document, data.draw(st.permutations(cuts))) == bytes(expected)


@pytest.mark.requirement("wire:repeated-member")
@pytest.mark.parametrize(
    "document", [b'{"tools":1,"tools":2}', b'{"tools":1,"a":0,"t\\u006fols":2}']
)
@pytest.mark.parametrize("value", [None, b"[]"])
def test_a_member_that_must_change_and_stands_twice_is_refused(
    document: bytes, value: bytes | None
) -> None:
    with pytest.raises(json_splice.RepeatedMemberError, match="tools"):
        json_splice.edit(document, {"tools": value})


def test_a_member_that_is_repeated_and_not_ours_stays_twice() -> None:
    assert json_splice.edit(b'{"a":1,"a":2}', {"tools": b"[]"}) == b'{"a":1,"a":2,"tools":[]}'


def test_once_finds_members_and_refuses_a_second_one() -> None:
    assert json_splice.find_members(b'{"a":1,"b":2}', ("b", "c")).keys() == {"b"}
    with pytest.raises(json_splice.RepeatedMemberError):
        json_splice.find_members(b'[{"b":1,"b":2}]', ("b",), 1)


@pytest.mark.parametrize(
    "inner",
    [
        b"[" * 50_000 + b"]" * 50_000,
        b'{"a":' * 20_000 + b"1" + b"}" * 20_000,
        json.dumps("x" * 1_000_000).encode(),
        json.dumps('\\"' * 200_000).encode(),
        b'"' + b"\\\\" * 500_000 + b'"',
        b"9" * 1_000_000,
        b"[" + b"1," * 100_000 + b"1]",
    ],
    ids=["deep-array", "deep-object", "long", "quotes", "backslashes", "number", "wide"],
)
def test_hostile_values_are_walked_over_and_kept(inner: bytes) -> None:
    document = b'{"x": ' + inner + b' , "tools": [ ]}'
    assert json_splice.edit(document, {"tools": b"[1]"}) == b'{"x": ' + inner + b' , "tools": [1]}'


@pytest.mark.parametrize(
    "document", [b'{"a":"' + b"x" * 100_000, b'{"a":"' + b'\\"' * 100_000, b"[" * 100_000]
)
def test_unterminated_documents_never_pass_the_parser_that_comes_first(document: bytes) -> None:
    with pytest.raises((msgspec.DecodeError, RecursionError)):
        msgspec.json.decode(document)


@settings(max_examples=60)
@given(st.dictionaries(st.text(max_size=4), st.integers(), max_size=3), st.text(max_size=6))
def test_any_name_can_be_added(own: dict[str, int], name: str) -> None:
    document = json.dumps(own).encode()
    assert json.loads(json_splice.edit(document, {name: b"true"})) == own | {name: True}


@given(st.text(), st.binary(max_size=6), st.integers(0, 3))
def test_utf8_is_checked_in_slices_as_it_is_in_one(text: str, tail: bytes, offset: int) -> None:
    document = b"x" * ((1 << 20) - offset) + text.encode(errors="surrogatepass") + tail
    try:
        document.decode()
    except UnicodeDecodeError:
        with pytest.raises(UnicodeDecodeError):
            json_splice.check_utf8(document)
    else:
        json_splice.check_utf8(document)
