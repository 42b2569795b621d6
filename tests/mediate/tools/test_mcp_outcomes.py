"""Calls of MCP servers that fail: a clear result for the model, and nothing sent twice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from claw_mediate.tools import mcp_wire
from tests.mcp.scripted_server import STATELESS, Exchange, Script, ScriptedServer, says, streams
from tests.mediate.tools.mcp_calling import READ, Caller, envelope, error_of, tool
from tests.waiting import eventually_async, free_port, growing_times

UNKNOWN = "Its outcome is unknown: it may have taken effect."
BROKE = "The service broke off its answer."


async def resets(exchange: Exchange) -> None:
    exchange.reset()


async def breaks_in_the_body(exchange: Exchange) -> None:
    await exchange.write(
        b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n{"jsonrpc"'
    )
    exchange.reset()


async def breaks_in_an_event(exchange: Exchange) -> None:
    await exchange.begin_stream()
    await exchange.chunk(b'data: {"jsonrpc":"2.0","id":%d,"result":' % exchange.message["id"])
    exchange.reset()


async def silent(exchange: Exchange) -> None:
    await exchange.until_left()
    exchange.server.left.set()


@pytest.mark.requirement("mcp:broken", "mcp:once")
@pytest.mark.parametrize(
    "broken",
    [
        resets,
        breaks_in_the_body,
        breaks_in_an_event,
        streams(),
        streams(b'data: {"jsonrpc":"2.0","id":ID,"result":{}}'),
    ],
    ids=["at once", "in the body", "in an event", "before any event", "before the event's end"],
)
@pytest.mark.parametrize(
    ("annotations", "code"), [(READ, "request_failed"), ({}, "outcome_unknown")]
)
async def test_a_broken_connection_leaves_the_outcome_of_a_write_unknown(
    server: ScriptedServer, caller: Caller, broken: Script, annotations: dict[str, Any], code: str
) -> None:
    await caller.call()
    server.says("tools/call", broken)
    result = await caller.call(annotations=annotations)
    message = BROKE if annotations else f"{BROKE} {UNKNOWN}"
    assert error_of(result) == (code, message)
    assert (result.ran, result.ok) == (True, False)
    assert len(server.of("tools/call")) == 2
    assert (await caller.call()).ok
    assert len(server.of("initialize")) == 1


@pytest.mark.requirement("mcp:broken")
@pytest.mark.parametrize("annotations", [READ, {}])
async def test_a_call_that_was_never_sent_has_certainly_not_run(
    caller: Caller, annotations: dict[str, Any]
) -> None:
    nowhere = ScriptedServer(port=free_port())
    result = await caller.call(used=tool(nowhere, annotations=annotations))
    assert error_of(result) == ("request_failed", "The service can't be reached.")
    assert not result.ran


@pytest.mark.requirement("mcp:broken")
@pytest.mark.parametrize("method", ["initialize", "notifications/initialized", "tools/list"])
async def test_a_connection_that_breaks_while_the_session_is_opened_has_sent_no_call(
    server: ScriptedServer, caller: Caller, method: str
) -> None:
    server.says(method, resets)
    result = await caller.call()
    assert error_of(result) == ("request_failed", BROKE)
    assert not result.ran
    assert server.of("tools/call") == []
    assert caller.watcher.failures == ["request_failed"]
    assert (await caller.call()).ok


@pytest.mark.requirement("mcp:broken")
async def test_a_server_that_restarts_is_called_again(
    server: ScriptedServer, caller: Caller
) -> None:
    await caller.call()
    server.stop()
    assert error_of(await caller.call()) == ("request_failed", "The service can't be reached.")
    server.forget_sessions()
    server.start()
    assert (await caller.call()).ok


@pytest.mark.requirement("mcp:cancel")
async def test_a_call_whose_time_is_over_is_cancelled_by_a_notification(
    server: ScriptedServer, caller: Caller
) -> None:
    await caller.call()
    for seconds in growing_times(0.1):
        server.scripts.clear()
        server.says("tools/call", silent)
        result = await caller.call(seconds=seconds)
        if len(server.of("tools/call")) > 1:
            break
    assert result.code == "timeout"
    assert "outcome is unknown" in envelope(result)["error"]["message"]
    sent = server.of("tools/call")[-1].message["id"]

    def notes() -> list[Exchange]:
        return [
            each
            for each in server.of("notifications/cancelled")
            if each.message["params"]["requestId"] == sent
        ]

    await eventually_async(notes, "the server is told")
    (note,) = notes()
    assert note.session == "session-1-of-the-server"
    assert (await caller.call()).ok
    assert len(server.of("initialize")) == 1


@pytest.mark.requirement("mcp:cancel")
async def test_without_a_session_the_end_of_the_connection_cancels(
    server: ScriptedServer, caller: Caller
) -> None:
    server.versions = (STATELESS,)
    await caller.call()
    server.says("tools/call", streams(b": working\n\n", ends=False))
    assert (
        await caller.call(seconds=0.1, annotations={"x-claw.timeout_ms": 100})
    ).code == "timeout"
    for seconds in growing_times(0.1):
        server.scripts.clear()
        server.says("tools/call", silent)
        before = len(server.of("tools/call"))
        assert (await caller.call(seconds=seconds)).code == "timeout"
        if len(server.of("tools/call")) > before:
            break
    await eventually_async(server.left.is_set, "the connection is closed")
    assert server.of("notifications/cancelled") == []


@pytest.mark.requirement("mcp:cancel")
async def test_a_cancellation_that_a_server_does_not_take_keeps_nobody_waiting(
    server: ScriptedServer, caller: Caller
) -> None:
    await caller.call()
    server.says("tools/call", *([silent] * 20))
    server.says("notifications/cancelled", *([silent] * 20))
    results = await asyncio.gather(*(caller.call(seconds=0.1) for _ in range(20)))
    assert {result.code for result in results} == {"timeout"}
    server.scripts.clear()  # On a busy machine some calls were given up before they were sent
    assert (await caller.call()).ok
    assert len(server.of("notifications/cancelled")) <= mcp_wire.MAX_NOTES


@pytest.mark.requirement("mcp:statuses", "mcp:once")
@pytest.mark.parametrize("status", [401, 403, 405, 429, 500, 503])
async def test_an_error_status_is_the_result_of_the_call(
    server: ScriptedServer, caller: Caller, status: int
) -> None:
    server.says("tools/call", says(b'{"error":"no"}', status))
    result = await caller.call()
    assert (result.code, result.status_code, result.ran) == (f"http_{status}", status, True)
    assert envelope(result)["error"]["details"] == {"error": "no"}
    assert len(server.of("tools/call")) == 1
    assert (await caller.call()).ok


@pytest.mark.requirement("mcp:statuses")
@pytest.mark.parametrize("method", ["initialize", "tools/call"])
async def test_a_redirect_is_not_followed(
    server: ScriptedServer, caller: Caller, method: str
) -> None:
    server.says(method, says(b"", 307, "text/plain", f"location: {server.url}/elsewhere"))
    result = await caller.call()
    assert error_of(result) == (
        "redirect_refused",
        "The service answered with a redirect, which is not followed.",
    )
    assert (result.status_code, result.ran) == (307, method == "tools/call")
    assert len(server.of(method)) == 1


@pytest.mark.requirement("mcp:credentials")
@pytest.mark.parametrize("token", ["a\r\nX-Evil: 1", "tök€n-of-the-tool", "a\0bcdefgh"])
async def test_a_credential_that_no_header_can_hold_is_a_failed_call(
    server: ScriptedServer, caller: Caller, token: str
) -> None:
    result = await caller.call(auth={"type": "bearer", "token": token})
    assert error_of(result) == (
        "request_failed",
        "The service can't be called as it is configured.",
    )
    assert (result.ran, server.received) == (False, [])
