"""The server side of MCP over HTTP, without an HTTP library: statuses, sessions, streams."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest

from claw_mcp.server import HttpRequest
from tests.mcp.http_host import HEADERS, META, STATELESS, Host, code_of, last
from tests.waiting import eventually_async


@pytest.mark.requirement("wrapper:http")
@pytest.mark.parametrize(
    ("raw", "headers", "status", "code"),
    [
        (b"{", {}, 400, -32700),
        (b"\xff", {}, 400, -32700),
        (b"[" * 100_000, {}, 413, -32600),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', {}, 400, -32602),
        (b"{}", {}, 400, -32600),
        (b"7", {}, 400, -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', {}, 400, -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', {}, 400, -32600),
        (b'{"jsonrpc":"2.0","id":[1],"method":"ping"}', {}, 400, -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":7}', {}, 400, -32600),
        (b" " * 1001, {}, 413, -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping"}', {"Content_Type": "text/plain"}, 400, -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping"}', {"Accept": "text/html"}, 406, -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping"}', {"Host": "no"}, 421, -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping"}', {"Host": ""}, 421, -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping"}', {"Origin": "http://no"}, 403, -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping"}', {"Mcp_Session_Id": ""}, 400, -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping"}', {"Mcp_Session_Id": "unknown"}, 404, -32600),
        (b'{"jsonrpc":"2.0","method":"x"}', {"Mcp_Session_Id": "unknown"}, 404, -32600),
    ],
)
async def test_what_is_not_sound_has_its_status_and_its_code(
    host: Host, raw: bytes, headers: dict[str, str], status: int, code: int
) -> None:
    session = await host.open()
    response = await host.send("POST", raw=raw, **{"Mcp_Session_Id": session, **headers})
    assert (response.status, code_of(await last(response))) == (status, code)
    assert host.backend.running == []


@pytest.mark.requirement("wrapper:http")
async def test_notifications_and_answers_are_accepted_and_other_methods_are_not(host: Host) -> None:
    session = await host.open()
    for message in (
        {"method": "notifications/initialized"},
        {"id": 1, "result": {}},
        {"id": 1, "error": {"code": 1}},
    ):
        response = await host.send("POST", {"jsonrpc": "2.0", **message}, Mcp_Session_Id=session)
        assert (response.status, await last(response)) == (202, None)
    for method in ("PUT", "HEAD", "OPTIONS", "PATCH"):
        response = await host.send(method, Mcp_Session_Id=session)
        assert (response.status, dict(response.headers)["allow"]) == (405, "GET, POST, DELETE")
    for method in ("GET", "DELETE"):
        assert [
            (await host.send(method, Mcp_Session_Id=each)).status for each in ("", "unknown")
        ] == [400, 404]
        response = await host.send(method, Mcp_Session_Id=session, **STATELESS)
        assert (response.status, dict(response.headers)["allow"]) == (405, "POST")
    assert (await host.send("GET", Mcp_Session_Id=session, Accept="application/json")).status == 406


@pytest.mark.requirement("wrapper:http")
async def test_errors_of_a_session_are_answers_and_a_fault_of_ours_says_nothing_of_itself(
    host: Host,
) -> None:
    session = await host.open()
    status, message = await host.ask("none", session)
    assert (status, message["error"]) == (
        200,
        {"code": -32601, "message": "none", "data": {"big": 2**80}},
    )
    status, message = await host.ask("fail", session)
    assert (status, message["error"]) == (200, {"code": -32603, "message": "the server failed"})
    status, message = await host.ask("initialize", params={"refuse": True})
    assert (status, code_of(message), len(host.server.sessions)) == (200, -32000, 1)


@pytest.mark.requirement("wrapper:http")
async def test_a_header_that_is_there_twice_fits_nothing(host: Host) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "note", "params": {"_meta": META}}
    twice = [("mcp-method", "note"), ("Mcp-Method", "note")]
    fields = [*HEADERS.items(), *STATELESS.items(), *twice]
    response = await host.server.handle(
        HttpRequest("POST", "/mcp", fields, json.dumps(message).encode())
    )
    assert (response.status, code_of(await last(response))) == (400, -32020)


@pytest.mark.requirement("wrapper:json-or-events")
@pytest.mark.parametrize(
    ("method", "accept", "kind"),
    [
        ("quiet", "application/json, text/event-stream", "application/json"),
        ("quiet", "*/*", "application/json"),
        ("quiet", "", "application/json"),
        ("quiet", "text/event-stream", "text/event-stream"),
        ("note", "application/json, text/event-stream", "text/event-stream"),
        ("note", "application/json", "application/json"),
        ("initialize", "text/event-stream", "text/event-stream"),
    ],
)
async def test_an_answer_is_a_stream_where_something_precedes_it_and_it_is_accepted(
    host: Host, method: str, accept: str, kind: str
) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": method}
    response = await host.send("POST", message, Accept=accept, Mcp_Session_Id=await host.open())
    assert dict(response.headers)["content-type"] == kind
    assert "result" in await last(response)


@pytest.mark.requirement("wrapper:json-or-events")
async def test_an_answer_that_takes_long_becomes_a_stream_that_is_not_silent(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("claw_mcp.server._SILENT_SECONDS", 0.01)
    response = await host.send(
        "POST", {"jsonrpc": "2.0", "id": 1, "method": "wait"}, Mcp_Session_Id=await host.open()
    )
    assert dict(response.headers)["content-type"] == "text/event-stream"
    assert [await anext(response.chunks) for _ in range(2)] == [b": ping\n\n"] * 2
    host.backend.go.set()
    assert "result" in await last(response)


@pytest.mark.requirement("wrapper:sessions")
async def test_too_many_requests_at_once_in_a_session_are_refused(host: Host) -> None:
    session = await host.open()
    waiting = [asyncio.create_task(host.ask("wait", session, request_id=n)) for n in range(256)]
    await eventually_async(lambda: len(host.backend.running) == 256, "the requests run")
    status, message = await host.ask("quiet", session, request_id="more")
    assert (status, message["id"], code_of(message)) == (503, "more", -32000)
    host.backend.go.set()
    assert {status for status, _ in await asyncio.gather(*waiting)} == {200}
    assert (await host.ask("quiet", session))[0] == 200


@pytest.mark.requirement("wrapper:sessions")
async def test_a_newer_stream_of_a_session_takes_the_place_of_the_older_one(host: Host) -> None:
    session = await host.open()
    older, newer = [await host.send("GET", Mcp_Session_Id=session) for _ in range(2)]
    assert [chunk async for chunk in older.chunks] == [b": open\n\n"]
    assert await anext(newer.chunks) == b": open\n\n"
    host.server.broadcast("notifications/message", b'{"data":1}')
    assert b'"data":1' in await anext(newer.chunks)


@pytest.mark.requirement("wrapper:streams")
async def test_a_thousand_streams_keep_nobody_out(host: Host) -> None:
    async with contextlib.AsyncExitStack() as stack:
        streams = []
        for _ in range(1000):
            stream = await host.send("GET", Mcp_Session_Id=await host.open())
            await stack.enter_async_context(contextlib.aclosing(stream.chunks))  # type: ignore[type-var]
            streams.append(stream)

        newcomer = await host.open()
        assert (await host.ask("quiet", newcomer))[0] == 200
        assert [chunk async for chunk in streams[0].chunks] == [b": open\n\n"]
        assert await anext(streams[-1].chunks) == b": open\n\n"
        host.server.broadcast("notifications/message", b'{"data":1}')
        assert b'"data":1' in await anext(streams[-1].chunks)


@pytest.mark.requirement("wrapper:sessions")
async def test_a_client_that_leaves_before_the_first_byte_of_a_stream_leaves_nothing_behind(
    host: Host,
) -> None:
    stream = await host.send("GET", Mcp_Session_Id=await host.open())
    subscription = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "subscriptions/listen",
        "params": {"_meta": META},
    }
    subscribed = await host.send(
        "POST", subscription, **STATELESS, Mcp_Method="subscriptions/listen"
    )
    assert host.server.listening() == {""}
    for response in (stream, subscribed):
        await response.chunks.aclose()  # type: ignore[attr-defined]
    await eventually_async(lambda: host.server.listening() == set(), "nobody listens any more")
