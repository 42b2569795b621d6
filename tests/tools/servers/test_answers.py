"""A server's list and answers, as the host reads them."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from claw_contract.redaction.redactor import Redactor
from claw_contract.strict_json import read_strict_object
from claw_tools.errors import ErrorCode, ToolError
from claw_tools.servers.answers import read_answer, read_definitions
from tests.tools.serving import behind, child, text_of

PLAIN = Redactor(())
SCHEMA: Any = {"type": "object"}


def answer(**result: Any) -> Any:
    return read_answer(json.dumps(result).encode(), PLAIN)


def failure(raw: bytes) -> str:
    with pytest.raises(ToolError) as raised:
        read_answer(raw, PLAIN)
    assert raised.value.code == ErrorCode.EXECUTION_FAILED
    return raised.value.message


@pytest.mark.requirement("servers:results")
def test_structured_content_comes_in_its_own_bytes_before_the_text() -> None:
    result = read_answer(
        b'{"content":[{"type":"text","text":"no"}],"structuredContent":{"n":1.10,"big":18446744073709551617}}',
        PLAIN,
    )
    assert isinstance(result, msgspec.Raw)
    assert bytes(result) == b'{"n":1.10,"big":18446744073709551617}'


@pytest.mark.requirement("servers:results")
def test_text_is_joined_and_other_parts_are_named_with_type_and_size() -> None:
    parts = [
        {"type": "text", "text": "one"},
        {"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"},
        {"type": "audio", "data": "aGVsbG8=", "mimeType": "audio/wav"},
        {"type": "resource_link", "uri": "file:///a", "name": "a", "size": 7},
        {
            "type": "resource",
            "resource": {"uri": "demo://b", "mimeType": "text/plain", "text": "two"},
        },
        {"type": "new", "text": "hidden"},
        {"type": 5},
        "no part",
    ]
    assert answer(content=parts)["output"].splitlines() == [
        "one",
        "[image, image/png, 5 bytes]",
        "[audio, audio/wav, 5 bytes]",
        "[resource_link, a, file:///a, 7 bytes]",
        "[resource, demo://b, text/plain, 3 bytes]",
        "two",
        "[new]",
        "[a part that can't be read]",
        "[a part that can't be read]",
    ]
    assert answer(content=[]) == {"output": ""}
    assert answer(content=[{"type": "text", "text": "x"}], structuredContent=None) == {
        "output": "x"
    }


@pytest.mark.requirement("servers:results")
@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"[]", "the server's answer is no result of a tool."),
        (b'{"content":7}', "the server's answer is no result of a tool."),
        (
            b'{"resultType":"input_required"}',
            "the tool asks for more input before it goes on, and nobody can be asked here.",
        ),
        (b'{"isError":true}', "it says no more."),
        (b'{"isError":true,"content":[{"type":"text","text":" no stock "}]}', "no stock"),
        (b'{"isError":true,"structuredContent":{"left":0}}', '{"left":0}'),
    ],
)
def test_what_is_no_success_is_an_error_of_the_tool(raw: bytes, message: str) -> None:
    assert failure(raw) == message


@pytest.mark.requirement("servers:results")
def test_a_deep_or_long_error_is_cut() -> None:
    assert (
        len(
            failure(
                json.dumps(
                    {"isError": True, "content": [{"type": "text", "text": "é" * 9_000}]}
                ).encode()
            )
        )
        <= 2_000
    )
    assert failure(b'{"content":' + b"[" * 100_000) == "the server's answer is no result of a tool."


@pytest.mark.requirement("servers:bad-entries")
def test_an_entry_that_cant_be_used_is_left_out_and_costs_no_other() -> None:
    deep: Any = {}
    for _ in range(10_000):
        deep = {"properties": deep}
    entries = [
        None,
        7,
        {"name": "no-schema"},
        {"name": "wrong-schema", "inputSchema": []},
        {"name": "", "inputSchema": SCHEMA},
        {"name": "x" * 129, "inputSchema": SCHEMA},
        {"name": 5, "inputSchema": SCHEMA},
        {"name": "half-\ud800", "inputSchema": SCHEMA},
        {"name": "half", "description": "\ud800", "inputSchema": SCHEMA},
        {"name": "deep", "inputSchema": deep},
        {
            "name": "sound",
            "description": 5,
            "inputSchema": SCHEMA,
            "annotations": {"readOnlyHint": True, "title": "x", "destructiveHint": "no"},
        },
        {"name": "sound", "description": "the second", "inputSchema": SCHEMA},
        {
            "name": "long",
            "description": "d" * 100_000,
            "inputSchema": {"maximum": 2**70},
            "annotations": "none",
        },
    ]
    tools = read_definitions(entries)
    assert [*tools] == ["sound", "long"]
    assert (tools["sound"].description, dict(tools["sound"].annotations)) == (
        "",
        {"readOnlyHint": True},
    )
    assert len(tools["long"].description) == 16 << 10


@pytest.mark.requirement("servers:exact-numbers")
async def test_arguments_arrive_with_their_exact_numbers() -> None:
    sent = (
        '{"big": 123456789012345678901234567890, "odd": 9007199254740993, "price": 19.990, "tiny": 1e-400, "huge": 1E+400,'
        ' "minus": -0.0, "long": 0.1234567890123456789012345678901234567890, "nested": [{"a": 2.50}], "text": "é\\n\\u2028"}'
    )
    async with behind(child()) as server:
        line = text_of(await server.server.call_tool("line", read_strict_object(sent)))
    assert line.count("\n") == 1
    arrived = json.loads(line, parse_float=Decimal)["params"]["arguments"]
    expected = json.loads(sent, parse_float=Decimal)
    assert arrived == expected
    assert str(arrived["price"]) == "19.990"
    assert "9007199254740993" in line


@pytest.mark.requirement("servers:exact-numbers")
@pytest.mark.parametrize("text", ['{"a": "\\ud800"}', '{"a": 1e99999999999999999999}'])
async def test_arguments_that_no_json_can_hold_are_invalid(text: str) -> None:
    async with behind(child()) as server:
        error = await server.fails("echo", **read_strict_object(text))
        assert error.code == ErrorCode.INVALID_ARGS
        await server.call("echo")
