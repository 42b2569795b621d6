"""Views of OpenAI messages: their texts and calls, whatever form they have."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import msgspec
import pytest

from claw_mediate.dialects.openai import DIALECT as OPENAI_CHAT
from claw_mediate.dialects.openai.wire_types import (
    Function,
    arguments_text,
    function_call,
    message_name,
    read_message,
    text_parts,
    tool_calls,
    visible_text,
)


@pytest.mark.requirement("wire:large-bodies")
def test_reading_a_request_copies_none_of_its_image() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 16_000_000}}
    content = [{"type": "text", "text": "Was siehst du? Ä"}, image]
    body = json.dumps(
        {"messages": [{"role": "user", "content": content}]}, ensure_ascii=False
    ).encode()
    tracemalloc.start()
    try:
        request = OPENAI_CHAT.read_request(body)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert request.user_texts == ("Was siehst du? Ä",)
    assert most < 4_000_000


@pytest.mark.requirement("wire:odd-content")
@pytest.mark.parametrize(
    ("content", "texts"),
    [
        (b'"Hi"', ["Hi"]),
        (b'""', []),
        (b"null", []),
        (b'[{"type":"text","text":"a"},{"type":"image_url"},{"text":"b"}]', ["a", "b"]),
        (b'[{"text":7},{"text":null}]', []),
        (b'["a"]', []),
        (b"7", []),
    ],
)
def test_only_the_text_of_a_content_is_read_whatever_its_form(
    content: bytes, texts: list[str]
) -> None:
    message = read_message.decode(b'{"role":"user","content":%b}' % content)
    assert list(text_parts(message)) == texts
    assert visible_text(message, "\n") == "\n".join(texts)


@pytest.mark.requirement("wire:odd-content")
@pytest.mark.parametrize(
    ("members", "name"),
    [
        (b'"function_call":{"name":"f","arguments":"{}"}', "f"),
        (b'"function_call":{"name":"f"},"tool_calls":[]', "f"),
        (b'"function_call":{"name":"f"},"tool_calls":[{"id":"a"}]', None),
        (b'"function_call":"f"', None),
        (b'"function_call":null', None),
    ],
)
def test_a_call_of_a_function_counts_only_beside_no_calls_of_tools(
    members: bytes, name: str | None
) -> None:
    call = function_call(read_message.decode(b'{"role":"assistant",%b}' % members))
    assert (call.name if call is not None else None) == name


@pytest.mark.parametrize(
    ("members", "calls"),
    [
        (b'"tool_calls":[{"id":"a"},{"id":7}]', ["a", 7]),
        (b'"tool_calls":"a"', []),
        (b'"name":7', []),
    ],
)
def test_calls_of_a_form_that_nobody_knows_are_none(members: bytes, calls: list[Any]) -> None:
    message = read_message.decode(b"{%b}" % members)
    assert [call.id for call in tool_calls(message)] == calls
    assert message_name(message) is None


@pytest.mark.parametrize(
    ("arguments", "text"),
    [(b'"{\\"a\\":1.0}"', '{"a":1.0}'), (b'{"a":1.0}', '{"a":1.0}'), (b"null", "null")],
)
def test_arguments_have_one_text_as_a_string_and_as_an_object(arguments: bytes, text: str) -> None:
    assert arguments_text(Function("f", msgspec.Raw(arguments))) == text
