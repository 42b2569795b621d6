"""Messages and answers of every dialect as text, also from damaged streams."""

from __future__ import annotations

import json
from typing import Any

import pytest

from claw_contract.transcript.text import response_lines
from tests.contract.transcript.test_render import RESPONSES_ITEMS

OPENAI_STREAM = [
    {"choices": [{"delta": {"role": "assistant", "content": "It "}}]},
    {"choices": [{"delta": {"content": "is 5."}}]},
    {
        "choices": [
            {
                "delta": {
                    "tool_calls": [{"index": 0, "function": {"name": "shell", "arguments": ""}}]
                }
            }
        ]
    },
    {"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": '{"cmd":'}}]}}]},
    {"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": '"ls"}'}}]}}]},
]
ANTHROPIC_STREAM = [
    {"type": "message_start", "message": {}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "It "}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "is 5."}},
    {
        "type": "content_block_start",
        "index": 1,
        "content_block": {"type": "tool_use", "name": "shell", "input": {}},
    },
    {
        "type": "content_block_delta",
        "index": 1,
        "delta": {"type": "input_json_delta", "partial_json": '{"cmd":"ls"}'},
    },
]
RESPONSES_STREAM = [
    {"type": "response.created", "response": {"error": None, "output": []}},
    {"type": "response.output_item.added", "item": {"id": "m", "type": "message", "content": []}},
    {"type": "response.output_text.delta", "item_id": "m", "delta": "It "},
    {"type": "response.output_text.delta", "item_id": "m", "delta": "is 5."},
    {
        "type": "response.output_item.added",
        "item": {"id": "f", "type": "function_call", "name": "shell", "arguments": ""},
    },
    {"type": "response.function_call_arguments.delta", "item_id": "f", "delta": '{"cmd":'},
    {"type": "response.function_call_arguments.delta", "item_id": "f", "delta": '"ls"}'},
]
OPENAI_CALL = {
    "id": "c",
    "type": "function",
    "function": {"name": "shell", "arguments": '{"cmd":"ls"}'},
}
ANTHROPIC_BLOCKS = [
    {"type": "text", "text": "It is 5."},
    {"type": "tool_use", "name": "shell", "input": {"cmd": "ls"}},
]


def sse(events: list[dict[str, Any]]) -> str:
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"


@pytest.mark.requirement("transcript:line-ends")
@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_a_stream_is_read_with_any_line_end_and_with_characters_that_end_none(end: str) -> None:
    text = {"choices": [{"delta": {"content": "one\u2028two\x85three"}}]}
    stream = f"\ufeffdata: {json.dumps(text, ensure_ascii=False)}\n\ndata: [DONE]\n\n".replace(
        "\n", end
    )
    assert list(response_lines(stream)) == ["assistant: one\\u2028two\\x85three"]


@pytest.mark.requirement("transcript:hostile")
@pytest.mark.parametrize(
    "stream",
    [
        'data: {"delta": "It "}\n\ndata: {"delta": "is 5."}',
        'data: {"delta": "It "}\ndata: {"delta": "is 5."}\n\n',
        'data: {"delta":\ndata: "It "}\n\ndata: \n\ndata: {"delta": "is 5."}\n\ndata: {"delt',
        ': hello\nid: 1\nevent: x\ndata: {"delta": "It "}\n\n[DONE]\n\ndata:{"delta":"is 5."}\n',
    ],
    ids=["cut at the end", "blank line missing", "several lines", "other fields"],
)
def test_a_damaged_stream_is_read_as_far_as_it_can_be(stream: str) -> None:
    assert list(response_lines(stream)) == ["assistant: It is 5."]


@pytest.mark.requirement("transcript:hostile")
def test_a_stream_with_half_a_character_is_read() -> None:
    assert list(response_lines('data: {"delta": "a\ud800b"}\n\n')) == ["assistant: a\\ud800b"]


@pytest.mark.requirement("transcript:dialects")
@pytest.mark.parametrize(
    "body",
    [
        sse(OPENAI_STREAM),
        sse(ANTHROPIC_STREAM),
        {"choices": [{"message": {"content": "It is 5.", "tool_calls": [OPENAI_CALL]}}]},
        {"type": "message", "role": "assistant", "content": ANTHROPIC_BLOCKS},
        sse(RESPONSES_STREAM),
        {"object": "response", "error": None, "output": RESPONSES_ITEMS},
    ],
    ids=[
        "openai-stream",
        "anthropic-stream",
        "openai",
        "anthropic",
        "responses-stream",
        "responses",
    ],
)
def test_answers_of_every_dialect_read_alike_as_json_and_as_streams(body: object) -> None:
    spaceless = [line.replace('": "', '":"') for line in response_lines(body)]
    assert spaceless == ["assistant: It is 5.", 'assistant: calls shell {"cmd":"ls"}']


@pytest.mark.requirement("transcript:dialects")
@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "no"}},
        sse([{"type": "error", "error": {"message": "no"}}]),
        sse([{"type": "response.failed", "response": {"error": {"message": "no"}}}]),
    ],
)
def test_an_error_reads_as_one(body: object) -> None:
    assert list(response_lines(body)) == ['error: {"message": "no"}']
