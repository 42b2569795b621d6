"""The proxy's own responses: errors in the shape of the path's protocol."""

from __future__ import annotations

import json
from typing import Any

import pytest

from claw_mediate.core.http import (
    MAX_SHOWN_ID,
    Request,
    RunnerResponse,
    UnknownObject,
    build_error_body,
    read_error_message,
    refuse,
    refuse_stopping,
    refuse_unknown_id,
    refuse_unknown_object,
)

CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"


async def document(response: RunnerResponse) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(b"".join([chunk async for chunk in response.chunks]))
    return read


@pytest.mark.requirement("identity:shapes")
@pytest.mark.parametrize(
    ("status", "openai", "anthropic"),
    [
        (400, "invalid_request_error", "invalid_request_error"),
        (402, "api_error", "billing_error"),
        (413, "invalid_request_error", "request_too_large"),
        (504, "api_error", "timeout_error"),
        (418, "api_error", "api_error"),
    ],
)
def test_an_error_has_the_type_that_the_protocols_clients_know(
    status: int, openai: str, anthropic: str
) -> None:
    of_chat = json.loads(build_error_body(CHAT, status, "code", "words", param="model"))
    assert of_chat["error"] == {
        "message": "words",
        "type": openai,
        "param": "model",
        "code": "code",
    }
    of_messages = json.loads(build_error_body(MESSAGES, status, "code", "words", {"more": 1}))
    assert of_messages == {
        "type": "error",
        "error": {"type": anthropic, "message": "words"},
        "more": 1,
    }


@pytest.mark.requirement("identity:shapes")
@pytest.mark.parametrize("path", [CHAT, MESSAGES, RESPONSES])
def test_the_message_of_an_own_error_is_read_again(path: str) -> None:
    assert read_error_message(build_error_body(path, 500, "code", "words")) == "words"


@pytest.mark.requirement("identity:shapes")
@pytest.mark.parametrize(
    "body",
    [b"", b"\xff", b"{}", b'{"error":{"message":5}}', b'{"error":[]}', b"[" * 100_000, b'{"error"'],
)
def test_an_error_without_a_message_has_none(body: bytes) -> None:
    assert read_error_message(body) == ""


@pytest.mark.requirement("responses:owner-only")
@pytest.mark.parametrize(
    ("naming", "status", "code"),
    [
        ("previous_response_id", 400, "previous_response_not_found"),
        ("response_id", 404, "response_not_found"),
        ("conversation", 404, "conversation_not_found"),
    ],
)
async def test_an_unknown_id_is_refused_as_the_provider_does_and_shown_in_part(
    naming: Any, status: int, code: str
) -> None:
    refusal = refuse_unknown_id(RESPONSES, naming, "x" * 1000)
    error = (await document(refusal))["error"]
    assert (refusal.status, error["code"], error["param"]) == (status, code, naming)
    assert "x" * MAX_SHOWN_ID in error["message"]
    assert "x" * (MAX_SHOWN_ID + 1) not in error["message"]


@pytest.mark.requirement("objects:bodies")
async def test_an_unknown_object_is_refused_with_its_member_even_if_its_id_is_no_unicode() -> None:
    refusal = refuse_unknown_object(CHAT, UnknownObject("vector_store", "\ud800", "store_id"))
    error = (await document(refusal))["error"]
    assert (refusal.status, error["code"], error["param"]) == (404, "object_not_found", "store_id")
    assert "the vector store '?' is not known here" in error["message"]


@pytest.mark.requirement("drain:nothing-new")
async def test_a_proxy_that_stops_says_when_to_come_again() -> None:
    refusal = refuse_stopping(CHAT)
    assert refusal.status == 503
    assert dict(refusal.headers)["retry-after"] == "5"
    assert (await document(refusal))["error"]["code"] == "shutting_down"


@pytest.mark.requirement("identity:shapes")
async def test_a_refusal_is_one_chunk_of_json() -> None:
    refusal = refuse(CHAT, 403, "code", "words")
    assert refusal.headers == [("content-type", "application/json")]
    assert not refusal.streaming
    assert len([chunk async for chunk in refusal.chunks]) == 1


def test_a_header_is_found_in_any_case_and_as_often_as_it_was_sent() -> None:
    request = Request("GET", "/v1/X?y#z", [("X-A", "1"), ("x-a", "2"), ("b", "3")], b"")
    assert request.header("x-a") == ["1", "2"]
    assert request.header("c") == []
    assert (request.bare_path, request.normalized_path) == ("/v1/X", "/v1/x")
