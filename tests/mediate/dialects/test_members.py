"""Raw JSON: members and elements in their own bytes."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_mediate.dialects import members
from claw_mediate.dialects.members import (
    as_raw,
    split_array,
    split_object,
    string_member,
    without_line_breaks,
)
from tests.mediate.made import JSON_TEXT


@pytest.mark.requirement("wire:byte-fidelity")
@given(st.dictionaries(st.text("abc", min_size=1), JSON_TEXT, max_size=5))
def test_members_keep_their_bytes_through_being_cut_and_written(texts: dict[str, str]) -> None:
    document = "{ " + " , ".join(f"{json.dumps(name)} : {text}" for name, text in texts.items())
    found = split_object((document + " }").encode())
    assert found == {name: text.strip().encode() for name, text in texts.items()}
    written = msgspec.json.encode(as_raw(found))
    assert written == b"{%b}" % b",".join(
        b"%b:%b" % (json.dumps(name).encode(), raw) for name, raw in found.items()
    )


@pytest.mark.requirement("wire:byte-fidelity")
@pytest.mark.parametrize("max_bytes", [0, 1 << 20], ids=["large", "small"])
@given(st.lists(JSON_TEXT, max_size=5))
def test_elements_keep_their_bytes_in_a_small_and_in_a_large_array(
    max_bytes: int, texts: list[str]
) -> None:
    array = f"[ {' , '.join(texts)} ]".encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(members, "MAX_WHOLE_BYTES", max_bytes)
        assert split_array(array) == [text.strip().encode() for text in texts]


def test_the_last_of_repeated_members_is_taken() -> None:
    assert split_object(b'{"a":1,"b":2,"a":3}') == {"a": b"3", "b": b"2"}


@pytest.mark.parametrize("document", [b"", b"[]", b'{"a":}', b"null", b"\xff"])
def test_a_document_that_is_not_an_object_is_refused(document: bytes) -> None:
    with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)):
        split_object(document)


@pytest.mark.parametrize(
    ("raw", "text"), [(b'"a\\u00e9"', "aé"), (b'""', ""), (b"1", None), (b"null", None)]
)
def test_a_member_is_a_text_only_if_it_is_a_string(raw: bytes, text: str | None) -> None:
    assert string_member({"name": raw}, "name") == text
    assert string_member({}, "name") is None


def test_line_breaks_between_tokens_become_spaces() -> None:
    assert without_line_breaks(b'{\r\n "a": "x\\ny"\n}') == b'{   "a": "x\\ny" }'
