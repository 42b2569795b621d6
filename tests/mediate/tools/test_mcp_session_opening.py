"""MCP servers that refuse a session, or break while it is opened."""

from __future__ import annotations

import gzip
import json

import pytest

from claw_mediate.tools import mcp_wire
from tests.mcp.scripted_server import Exchange, Script, ScriptedServer, says, streams
from tests.mediate.tools.mcp_calling import Caller, envelope, error_of


@pytest.mark.requirement("mcp:unreadable")
@pytest.mark.parametrize(
    "garbage",
    [says(b"<html>"), says(b'{"jsonrpc":"2.0","id":1,"result":[]}'), streams(b"data: {\n\n")],
)
@pytest.mark.parametrize("method", ["initialize", "tools/list"])
async def test_garbage_while_the_session_is_opened_is_a_clear_failure(
    server: ScriptedServer, caller: Caller, garbage: Script, method: str
) -> None:
    server.says(method, garbage)
    result = await caller.call()
    assert (result.code, result.ran) == ("request_failed", False)
    assert server.of("tools/call") == []


@pytest.mark.requirement("mcp:unreadable")
@pytest.mark.parametrize("session", ["a b", "é", "x" * 8193])
async def test_an_invalid_session_id_is_not_used(
    server: ScriptedServer, caller: Caller, session: str
) -> None:
    async def odd(exchange: Exchange) -> None:
        await exchange.result(
            {"protocolVersion": "2025-11-25", "capabilities": {}}, f"mcp-session-id: {session}"
        )

    server.says("initialize", odd)
    assert error_of(await caller.call()) == (
        "request_failed",
        "The service opened a session without a valid id.",
    )


@pytest.mark.requirement("mcp:long-session")
@pytest.mark.parametrize("length", [1025, 8192])
async def test_a_session_id_may_be_as_long_as_a_token(
    server: ScriptedServer, caller: Caller, length: int
) -> None:
    session = "x" * length
    server.sessions.add(session)

    async def opens(exchange: Exchange) -> None:
        await exchange.result(
            {"protocolVersion": "2025-11-25", "capabilities": {}}, f"mcp-session-id: {session}"
        )

    server.says("initialize", opens)
    assert (await caller.call()).ok
    assert server.of("tools/call")[0].headers["mcp-session-id"] == session


@pytest.mark.requirement("mcp:statuses")
@pytest.mark.parametrize("method", ["initialize", "notifications/initialized", "tools/list"])
@pytest.mark.parametrize("status", [401, 403, 404, 503])
async def test_an_error_status_while_the_session_is_opened_is_the_result(
    server: ScriptedServer, caller: Caller, status: int, method: str
) -> None:
    server.says(method, says(b"no", status, "text/plain"))
    result = await caller.call()
    assert (result.code, result.status_code, result.ran) == (f"http_{status}", status, False)
    assert server.of("tools/call") == []
    assert (await caller.call()).ok


@pytest.mark.requirement("mcp:refused-words")
@pytest.mark.parametrize("method", ["initialize", "notifications/initialized", "tools/list"])
async def test_what_a_server_says_when_it_refuses_a_session_is_told_without_secrets(
    server: ScriptedServer, caller: Caller, method: str
) -> None:
    auth = {"type": "bearer", "token": "t0k3n-of-the-tool"}
    server.says(method, says(b'{"error":"quota of t0k3n-of-the-tool is used up"}', 403))
    result = await caller.call(auth=auth)
    assert (result.code, result.status_code, result.ran) == ("http_403", 403, False)
    said = envelope(result)["error"]["details"]["error"]
    assert said.startswith("quota of ")
    assert said.endswith(" is used up")
    (event,) = [each for each in caller.events if each["type"] == "intervention"]
    assert event["intervention"] == "mcp_session_refused:desk"
    assert "is used up" in event["reason"]
    assert b"t0k3n-of-the-tool" not in result.content + json.dumps(caller.events).encode()


@pytest.mark.requirement("mcp:refused-words")
async def test_the_words_of_an_error_for_a_session_are_told(
    server: ScriptedServer, caller: Caller
) -> None:
    async def refuse(exchange: Exchange) -> None:
        await exchange.error(-32001, "the licence has ended")

    server.says("initialize", refuse)
    result = await caller.call()
    assert error_of(result) == (
        "request_failed",
        "The service refused to open a session (error -32001).",
    )
    assert envelope(result)["error"]["details"] == "the licence has ended"


@pytest.mark.requirement("mcp:refused-words")
@pytest.mark.parametrize("code", [-32000, -32602])
async def test_the_first_refusal_counts_if_the_other_era_fails_too(
    server: ScriptedServer, caller: Caller, code: int
) -> None:
    async def refuse(exchange: Exchange) -> None:
        await exchange.error(code, "the licence has ended", status=400)

    server.says("initialize", refuse)
    result = await caller.call()
    assert (result.code, result.status_code, result.ran) == ("http_400", 400, False)
    assert envelope(result)["error"]["details"] == "the licence has ended"
    assert (await caller.call()).ok


@pytest.mark.requirement("mcp:refused-words", "mcp:odd-answers")
@pytest.mark.parametrize(
    "error",
    [
        b'{"code":"E_LICENCE","message":"the licence has ended"}',
        b'{"message":"the licence has ended"}',
        b'"the licence has ended"',
    ],
)
@pytest.mark.parametrize("method", ["initialize", "tools/call"])
async def test_the_words_of_an_odd_error_are_told(
    server: ScriptedServer, caller: Caller, error: bytes, method: str
) -> None:
    async def refuse(exchange: Exchange) -> None:
        await exchange.respond(
            200, b'{"jsonrpc":"2.0","id":%d,"error":%b}' % (exchange.message["id"], error)
        )

    server.says(method, refuse)
    result = await caller.call()
    assert result.ran == (method == "tools/call")
    assert "the licence has ended" in json.dumps(envelope(result)["error"]["details"])


@pytest.mark.requirement("mcp:statuses")
@pytest.mark.parametrize("method", ["initialize", "tools/list", "tools/call"])
async def test_a_refusal_that_is_packed_unasked_has_its_status(
    server: ScriptedServer, caller: Caller, method: str
) -> None:
    server.says(method, says(gzip.compress(b"no"), 401, "text/plain", "content-encoding: gzip"))
    result = await caller.call()
    assert (result.code, result.status_code) == ("http_401", 401)


@pytest.mark.requirement("mcp:refused-words", "mcp:bounded")
async def test_a_long_refusal_is_cut(server: ScriptedServer, caller: Caller) -> None:
    server.says("initialize", says("é".encode() * 100_000, 503, "text/plain"))
    result = await caller.call()
    assert result.code == "http_503"
    assert len(result.content) < 5000
    assert len(caller.events[-1]["reason"].encode()) < 700


@pytest.mark.requirement("mcp:bounded")
async def test_a_huge_answer_while_the_session_is_opened_is_given_up(
    server: ScriptedServer, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_wire, "MAX_MESSAGE_BYTES", 1000)
    server.says("tools/list", says(b" " * 2000))
    assert error_of(await caller.call()) == ("request_failed", "The service's answer is too large.")
