"""The failures that a response tells of."""

from __future__ import annotations

import json
from typing import Any

import pytest

from claw_mediate.dialects.responses.failures import failed_response


@pytest.mark.requirement("live:responses-failed")
@pytest.mark.parametrize(
    ("error", "status", "code", "message"),
    [
        ({"code": "rate_limit_exceeded", "message": "slow"}, 429, "rate_limit_exceeded", "slow"),
        ({"code": "insufficient_quota"}, 402, "insufficient_quota", "the provider failed"),
        (
            {"code": "context_length_exceeded", "message": "long"},
            400,
            "context_length_exceeded",
            "long",
        ),
        ({"code": "vector_store_timeout", "message": "x"}, 502, "vector_store_timeout", "x"),
        (None, 502, "server_error", "the provider failed"),
        ("no object", 502, "server_error", "the provider failed"),
    ],
)
def test_a_failure_has_a_status_by_its_code(
    error: Any, status: int, code: str, message: str
) -> None:
    failure = failed_response(error)
    shown = json.loads(failure.body)["error"]
    assert (failure.status, shown["code"], shown["message"]) == (status, code, message)
