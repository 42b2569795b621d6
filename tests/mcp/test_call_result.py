"""The result of a call, and its parts in words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from claw_mcp.call_result import CallResult, describe, read_part, read_result


def read(**members: Any) -> CallResult:
    result = read_result(json.dumps(members).encode())
    assert result is not None
    return result


@pytest.mark.requirement("mcp:odd-answers")
def test_members_that_are_null_are_as_good_as_absent() -> None:
    result = read(content=None, structuredContent=None, isError=None, resultType=None)
    assert result == CallResult()
    part = read_part(read(content=[{"type": "text", "text": "a", "name": None}]).content[0])
    assert part is not None
    assert (part.text, part.name) == ("a", "")


@pytest.mark.requirement("mcp:odd-answers")
@pytest.mark.parametrize(
    "raw",
    [b"", b"null", b"[]", b'"text"', b'{"content": {}}', b'{"isError": "yes"}', b"[" * 5_000],
)
def test_what_is_no_result_is_none(raw: bytes) -> None:
    assert read_result(raw) is None


@pytest.mark.requirement("mcp:parts")
def test_parts_that_are_no_text_are_named_with_type_address_and_size() -> None:
    blob = {"uri": "file:///b", "mimeType": "image/png", "blob": "YWJj"}
    text = {"uri": "file:///t", "text": "é"}
    result = read(
        content=[
            {"type": "text", "text": "before"},
            {"type": "image", "data": "YQ==", "mimeType": "image/png"},
            {"type": "resource", "resource": blob},
            {"type": "resource", "resource": text},
            {"type": "resource_link", "name": "log", "uri": "x:y", "size": 7},
            {},
            7,
        ]
    )
    assert describe(result).splitlines() == [
        "before",
        "[image, image/png, 1 bytes]",
        "[resource, file:///b, image/png, 3 bytes]",
        "[resource, file:///t, 2 bytes]",
        "é",
        "[resource_link, log, x:y, 7 bytes]",
        "[part]",
        "[a part that can't be read]",
    ]


@pytest.mark.requirement("mcp:parts")
def test_a_long_name_of_a_part_is_cut() -> None:
    shown = describe(read(content=[{"type": "audio", "name": "n" * 5_000}]))
    assert shown == f"[audio, {'n' * 200}]"
