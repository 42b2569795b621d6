"""Sessions of the server side: whose they are, and how many."""

from __future__ import annotations

import asyncio

import pytest

from claw_mcp.sessions import Outbox
from tests.mcp.http_host import Host, code_of, last
from tests.waiting import eventually_async


@pytest.mark.requirement("wrapper:sessions")
async def test_a_session_is_its_principals_alone(host: Host) -> None:
    session = await host.open("alice")
    assert (await host.ask("quiet", session, principal="alice"))[0] == 200
    for method in ("GET", "DELETE", "POST"):
        response = await host.send(
            method,
            {"jsonrpc": "2.0", "id": 1, "method": "quiet"},
            principal="mallory",
            Mcp_Session_Id=session,
        )
        assert (response.status, (await last(response))["error"]["message"]) == (
            404,
            "Session not found",
        )
    assert len(host.backend.running) == 1


@pytest.mark.requirement("wrapper:sessions")
async def test_one_session_too_many_ends_the_principals_own_that_was_idle_longest() -> None:
    host = Host(max_sessions=2)
    other, *own = [await host.open(principal) for principal in ("bob", "alice", "alice")]
    waiting = asyncio.create_task(host.ask("wait", own[0], principal="alice"))
    await eventually_async(lambda: host.backend.running, "the request runs")
    newest = await host.open("alice")
    assert [each.id for each in host.backend.ended] == [own[1]]
    assert [(await host.ask("quiet", each, principal="alice"))[0] for each in (own[0], newest)] == [
        200,
        200,
    ]
    assert (await host.ask("quiet", other, principal="bob"))[0] == 200
    busy = asyncio.create_task(host.ask("wait", newest, principal="alice"))
    await eventually_async(lambda: len(host.backend.running) == 5, "the requests run")
    status, message = await host.ask("initialize", principal="alice")
    assert (status, code_of(message)) == (503, -32000)
    await host.server.close()
    assert [code_of((await task)[1]) for task in (waiting, busy)] == [-32800, -32800]
    assert len(host.server.sessions) == 0


@pytest.mark.requirement("wrapper:sessions")
async def test_an_idle_session_ends_and_one_whose_client_listens_does_not() -> None:
    host = Host(idle_seconds=0.0)
    idle, listening = await host.open(), await host.open()
    host.server.sessions._idle_seconds = 60
    stream = await host.send("GET", Mcp_Session_Id=listening)
    assert await anext(stream.chunks) == b": open\n\n"
    host.server.sessions._idle_seconds = 0.0
    assert (await host.ask("quiet", "unknown"))[0] == 404
    assert [each.id for each in host.backend.ended] == [idle]
    await stream.chunks.aclose()  # type: ignore[attr-defined]
    assert (await host.ask("quiet", listening))[0] == 404
    await host.server.close()


@pytest.mark.requirement("wrapper:sessions")
async def test_a_thousand_sessions_that_nobody_ends_are_bounded() -> None:
    host = Host(max_sessions=100)
    sessions = [await host.open() for _ in range(1000)]
    assert (len(host.server.sessions), len(host.backend.ended)) == (100, 900)
    assert [(await host.ask("quiet", each))[0] for each in (sessions[0], sessions[-1])] == [
        404,
        200,
    ]
    await host.server.close()


@pytest.mark.requirement("wrapper:sessions")
async def test_what_waits_for_a_client_that_does_not_read_is_bounded() -> None:
    outbox = Outbox()
    for number in range(100):
        outbox.put(str(number).encode().ljust(1 << 20))
    kept = []
    while outbox:
        kept.append(outbox.take().strip())
    assert kept == [b"0", b"1", b"2"]
    outbox.put(b"again")
    assert outbox.take() == b"again"
