"""Keepalives and errors beside the chunks of a finished stream, read by the real ``openai`` SDK."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from claw_mediate.dialects import sse
from claw_mediate.dialects.openai import DIALECT as OPENAI_CHAT
from claw_mediate.dialects.streams import OwnOpening, StreamWriter, write_stream
from claw_mediate.turns.response import stored_response
from claw_state.journal import StoredResponse
from tests.mediate.openai_sdk import chunks, final
from tests.wires.openai import completion

OPENING = OwnOpening("chatcmplturn", "asked-for", 7)
ASKED = OPENAI_CHAT.read_request(b'{"messages":[]}')


def new_writer() -> StreamWriter:
    return OPENAI_CHAT.writer(ASKED, OPENING)


def test_the_sdk_reads_on_after_keepalives() -> None:
    alive = new_writer().beat("claw round=1 waiting=desk.x\ndata: no", "comment")
    hello = b"".join(write_stream(OPENAI_CHAT, json.dumps(completion("hello")).encode(), ASKED))
    assert final(alive * 3 + hello).choices[0].message.content == "hello"


@pytest.mark.requirement("stream:written-together")
async def test_the_events_of_a_whole_answer_are_written_in_few_pieces() -> None:
    asked = OPENAI_CHAT.read_request(b'{"messages":[],"stream":true}')
    body = json.dumps(completion("hello " * 5_000)).encode()
    answer = stored_response(asked, OPENAI_CHAT, StoredResponse(200, "application/json", body))
    written = [chunk async for chunk in answer.chunks]
    assert b"".join(written) == b"".join(write_stream(OPENAI_CHAT, body, asked))
    assert len(written) == 1 + len(b"".join(written)) // max(map(len, written))


@pytest.mark.requirement("stream:one-id")
@pytest.mark.parametrize(
    "body", [completion("hello"), {"choices": [{"message": {"content": "hello"}}]}]
)
def test_a_stream_that_a_native_keepalive_opened_goes_on_under_its_id(body: dict[str, Any]) -> None:
    writer = new_writer()
    alive = writer.beat("k", "native")
    assert writer.beat("k", "native") == alive
    told = OPENAI_CHAT.tell(json.dumps(body).encode(), ASKED)
    made = alive * 2 + b"".join(map(writer.write, told))
    assert {(chunk.id, chunk.model, chunk.created) for chunk in chunks(made)} == {
        ("chatcmplturn", "asked-for", 7)
    }
    assert all(len(chunk.choices) == 1 for chunk in chunks(made))
    answer = final(made)
    assert (answer.id, answer.model, answer.choices[0].message.content) == (
        "chatcmplturn",
        "asked-for",
        "hello",
    )


@pytest.mark.requirement("stream:error-event")
def test_an_error_after_the_headers_is_raised_by_the_sdk() -> None:
    writer = new_writer()
    alive = writer.beat("k", "comment")
    error = writer.error(
        b'{"error":{"message":"it broke","type":"api_error","param":null,"code":"x"}}'
    )
    with pytest.raises(openai.APIError, match="it broke"):
        chunks(alive + error)
    assert error.endswith(sse.DONE)


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"[]", b'{"error":null}', b"\xff", b"[" * 100_000, b'{"error":"\\ud800"}'],
)
def test_an_error_body_of_another_shape_is_not_passed_as_an_event(body: bytes) -> None:
    assert OPENAI_CHAT.error_body(body) is None


def test_an_error_body_becomes_one_line() -> None:
    assert (
        OPENAI_CHAT.error_body(b'{\n "error": {"message":\r\n "no"}}')
        == b'{"error":{"message":"no"}}'
    )
