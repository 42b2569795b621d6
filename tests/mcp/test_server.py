"""The server side of MCP over HTTP, without an HTTP library: statuses, sessions, streams."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from claw_mcp.protocol import CAPABILITIES_META, VERSION_META, RpcError, write_notification
from claw_mcp.server import HttpRequest, HttpResponse, StreamableHttpServer
from claw_mcp.sessions import ClientRequest, Outbox, Session
from tests.waiting import eventually_async

HEADERS = {
    "Host": "ok",
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
}
META = {VERSION_META: "2026-07-28", CAPABILITIES_META: {}}
STATELESS = {"MCP-Protocol-Version": "2026-07-28"}


class Echo:
    """A backend whose methods are what they do."""

    def __init__(self) -> None:
        self.ended: list[Session] = []
        self.running: list[ClientRequest] = []
        self.go = asyncio.Event()

    async def describe(self, request: ClientRequest) -> Mapping[str, Any]:
        if b"refuse" in bytes(request.message.params):
            raise RpcError(-32000, "not now")
        return {"capabilities": {"tools": {}}, "serverInfo": {"name": "echo", "version": "1"}}

    async def answer(self, request: ClientRequest) -> bytes:
        self.running.append(request)
        match request.method:
            case "note":
                request.send(write_notification("notifications/progress", b'{"progress":1}'))
            case "wait":
                await self.go.wait()
            case "fail":
                raise ZeroDivisionError
            case "none":
                raise RpcError(-32601, "none", {"big": 2**80})
        return b'{"big":123456789012345678901234567890}'

    def end_session(self, session: Session) -> None:
        self.ended.append(session)


class Host:
    """The part of an HTTP library: it passes requests to a server and reads its responses."""

    def __init__(self, **settings: Any) -> None:
        self.backend = Echo()
        self.server = StreamableHttpServer(
            self.backend,
            is_allowed_host=lambda host: host == "ok",
            is_allowed_origin=lambda origin: origin == "http://ok",
            **settings,
        )

    async def send(
        self,
        method: str,
        body: Any = None,
        principal: str = "",
        raw: bytes | None = None,
        **headers: str,
    ) -> HttpResponse:
        fields = {**HEADERS, **{name.replace("_", "-"): value for name, value in headers.items()}}
        data = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        return await self.server.handle(
            HttpRequest(method, "/mcp", [(n, v) for n, v in fields.items() if v], data), principal
        )

    async def ask(
        self, method: str, session: str = "", request_id: Any = 1, **more: Any
    ) -> tuple[int, Any]:
        """The status and the last message of the answer."""
        message = {
            "jsonrpc": "2.0",
            "id": request_id,
            "method": method,
            "params": more.pop("params", {}),
        }
        if request_id is None:
            del message["id"]
        headers = {"Mcp_Session_Id": session} if session else {}
        response = await self.send("POST", message, **headers, **more)
        return response.status, await last(response)

    async def open(self, principal: str = "") -> str:
        params = {"protocolVersion": "2025-11-25"}
        message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        response = await self.send("POST", message, principal)
        assert response.status == 200
        return dict(response.headers)["mcp-session-id"]


async def last(response: HttpResponse) -> Any:
    body = b"".join([chunk async for chunk in response.chunks])
    if dict(response.headers).get("content-type") == "text/event-stream":
        body = [line[5:] for line in body.splitlines() if line.startswith(b"data:")][-1]
    return json.loads(body) if body else None


@pytest.fixture
async def host() -> AsyncIterator[Host]:
    host = Host(max_body=1000)
    yield host
    await host.server.close()


def code_of(message: Any) -> int:
    code: int = message["error"]["code"]
    return code


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
@pytest.mark.parametrize(
    ("method", "params", "headers", "status", "code"),
    [
        ("note", {}, {}, 400, -32602),
        ("note", {"_meta": {VERSION_META: "2026-07-28"}}, {}, 400, -32602),
        ("note", {"_meta": META}, {"Mcp_Method": ""}, 400, -32020),
        ("note", {"_meta": META}, {"Mcp_Method": "other"}, 400, -32020),
        ("note", {"_meta": META}, {"MCP_Protocol_Version": ""}, 400, -32020),
        ("note", {"_meta": {**META, VERSION_META: "2027-01-01"}}, {}, 400, -32020),
        (
            "note",
            {"_meta": {**META, VERSION_META: "2027-01-01"}},
            {"MCP_Protocol_Version": "2027-01-01"},
            400,
            -32022,
        ),
        ("tools/call", {"_meta": META, "name": "a"}, {}, 400, -32020),
        ("tools/call", {"_meta": META, "name": "a"}, {"Mcp_Name": "b"}, 400, -32020),
        ("tools/call", {"_meta": META, "name": "é"}, {"Mcp_Name": "=?base64?w6k?="}, 400, -32020),
        ("tools/call", {"_meta": META, "name": "é"}, {"Mcp_Name": "=?base64?w6k=?="}, 200, None),
        ("resources/read", {"_meta": META, "uri": "u"}, {"Mcp_Name": "u"}, 200, None),
        ("ping", {"_meta": META}, {}, 404, -32601),
        ("initialize", {"_meta": META}, {}, 404, -32601),
        ("none", {"_meta": META}, {}, 404, -32601),
        ("subscriptions/listen", {"_meta": META}, {"Accept": "application/json"}, 400, -32600),
    ],
)
async def test_the_stateless_era_has_statuses_of_its_own(
    host: Host, method: str, params: Any, headers: dict[str, str], status: int, code: int | None
) -> None:
    fields = {"MCP_Protocol_Version": "2026-07-28", "Mcp_Method": method, **headers}
    answered, message = await host.ask(method, params=params, **fields)
    assert answered == status, message
    assert (message.get("error") or {}).get("code") == code
    if code is None:
        assert message["result"]["resultType"] == "complete"
        assert ("ttlMs" in message["result"]) == (method == "resources/read")
        assert message["result"]["big"] == 123456789012345678901234567890
    if code == -32022:
        assert message["error"]["data"] == {"supported": ["2026-07-28"], "requested": "2027-01-01"}


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


@pytest.mark.requirement("wrapper:streams")
async def test_a_thousand_subscriptions_keep_no_request_out(host: Host) -> None:
    subscription = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "subscriptions/listen",
        "params": {"_meta": META},
    }
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(1000):
            stream = await host.send(
                "POST", subscription, **STATELESS, Mcp_Method="subscriptions/listen"
            )
            assert stream.status == 200
            await stack.enter_async_context(contextlib.aclosing(stream.chunks))  # type: ignore[type-var]
            await asyncio.sleep(0)  # one that was ended has a turn of the loop to end

        status, _ = await host.ask("quiet", params={"_meta": META}, **STATELESS, Mcp_Method="quiet")
        assert status == 200
        assert host.server.listening() == {""}
    await eventually_async(lambda: host.server.listening() == set(), "nobody listens any more")


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
