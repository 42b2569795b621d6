"""The failure that a stream of chat completions tells of."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.mediate.dialects.openai.cut_reply import (
    DONE,
    END,
    FRAME,
    assembled,
    body_of,
    chunk,
    event,
)


@pytest.mark.requirement("live:chat-errors")
@pytest.mark.parametrize(
    ("error", "status"),
    [
        ({"message": "x", "code": 429}, 429),
        ({"message": "x", "code": "503"}, 503),
        ({"message": "x", "code": None, "type": "rate_limit_error"}, 429),
        ({"message": "x", "code": "insufficient_quota", "type": "insufficient_quota"}, 429),
        ({"message": "x", "code": "invalid_api_key", "type": "invalid_request_error"}, 401),
        ({"message": "x", "type": "overloaded_error"}, 529),
        ({"message": "x", "type": "server_error", "code": "c"}, 500),
        ({"message": "x", "code": 200}, 502),
        ({"message": "x", "code": [{}]}, 502),
        ("overloaded", 502),
    ],
)
def test_an_error_of_the_stream_is_a_response_with_the_status_that_it_means(
    error: Any, status: int
) -> None:
    assembler, told = assembled([chunk({"content": "a"}, "stop"), event({"error": error}), DONE])
    assert assembler.error is not None
    assert assembler.error.status == status
    message = json.loads(assembler.error.body)["error"]["message"]
    assert message == (error if isinstance(error, str) else "x")
    assert not assembler.is_whole
    assert len(told) == 3


@pytest.mark.requirement("live:chat-errors")
def test_an_error_by_the_name_of_its_event_and_errors_that_are_none() -> None:
    assembler, _ = assembled([event({"message": "x", "status_code": 503}, b"error")])
    assert assembler.error is not None
    assert assembler.error.status == 503
    assert json.loads(assembler.error.body)["error"]["message"] == "x"

    for nothing in (None, "", {}, False):
        assert body_of(event({**FRAME, "error": nothing, "choices": []}), END)
