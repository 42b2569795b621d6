"""The token that the wrapper asks its callers for."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest

from tests.mcp.wrapped import RunningWrapper, wrapper


def answer_of(wrapped: RunningWrapper, **headers: str) -> int:
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-06-18"},
    }
    return httpx2.post(wrapped.url, json=message, headers=headers).status_code


@pytest.mark.requirement("wrapper:token")
def test_the_originals_token_is_asked_for_and_is_not_in_the_servers_environment(
    tmp_path: Path,
) -> None:
    with wrapper(tmp_path, CLAW_MCP_STDIO_AUTH_TOKEN="right") as wrapped:
        statuses = [answer_of(wrapped), answer_of(wrapped, authorization="Bearer wrong")]
        assert (statuses, answer_of(wrapped, authorization="Bearer right")) == ([401, 401], 200)
        assert (
            wrapped.health()
            == httpx2.get(wrapped.url.replace("/mcp", "/healthz")).status_code
            == 200
        )
