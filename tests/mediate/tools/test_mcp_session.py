"""Sessions with an MCP server: how one is opened, shared, replaced and ended."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from claw_mediate.tools import mcp, mcp_session
from tests.mcp.calling import READ, Caller, calling, envelope, error_of, tool, until
from tests.mcp.scripted_server import HANDSHAKE, STATELESS, Exchange, ScriptedServer
from tests.waiting import growing_times

OPENING = ["initialize", "notifications/initialized", "tools/list"]


def methods(server: ScriptedServer) -> list[str]:
    return [exchange.rpc for exchange in server.received]


@pytest.mark.requirement("mcp:handshake")
async def test_a_session_is_opened_and_each_message_names_it(
    server: ScriptedServer, caller: Caller
) -> None:
    assert envelope(await caller.call('{"text":"hi"}')) == {
        "ok": True,
        "data": 'you said {"text": "hi"}',
    }
    assert methods(server) == [*OPENING, "tools/call"]
    first, *others = server.received
    assert first.message["params"]["protocolVersion"] == "2025-11-25"
    assert first.message["params"]["capabilities"] == {}
    assert first.message["params"]["clientInfo"]["name"] == "clawdapus"
    assert "mcp-session-id" not in first.headers
    for message in others:
        assert message.session == "session-1-of-the-server"
        assert message.headers["mcp-protocol-version"] == "2025-11-25"
    for message in server.received:
        assert message.headers["accept"] == "application/json, text/event-stream"
        assert message.headers["content-type"] == "application/json"
    ids = [message.message["id"] for message in server.received if "id" in message.message]
    assert len(set(ids)) == 3
    call = server.of("tools/call")[0]
    assert call.message["params"] == {"name": "echo", "arguments": {"text": "hi"}}
    assert (call.headers["x-claw-id"], call.headers["x-claw-turn"]) == ("analyst", "turn_1")
    assert call.headers["idempotency-key"] == "turn_1.1.0"


@pytest.mark.requirement("mcp:one-session")
async def test_a_session_is_kept_and_shared_by_calls_at_the_same_time(
    server: ScriptedServer, caller: Caller
) -> None:
    waiting = []

    async def wait_for_the_other(exchange: Exchange) -> None:
        waiting.append(exchange.message["id"])
        await until(lambda: len(waiting) == 2)
        await exchange.result({"structuredContent": {"id": exchange.message["id"]}})

    server.says("tools/call", wait_for_the_other, wait_for_the_other)
    results = await asyncio.gather(caller.call(), caller.call())
    assert sorted(envelope(result)["data"]["id"] for result in results) == sorted(waiting)
    await caller.call()
    assert [methods(server).count(name) for name in OPENING] == [1, 1, 1]
    assert {exchange.session for exchange in server.of("tools/call")} == {"session-1-of-the-server"}


@pytest.mark.requirement("mcp:agents-apart")
async def test_two_agents_have_a_session_and_connections_each(
    server: ScriptedServer, caller: Caller
) -> None:
    for _ in range(2):
        for agent_id in ("analyst", "trader"):
            assert (await caller.call(agent_id=agent_id)).ok
    used = {
        (exchange.headers["x-claw-id"], exchange.session) for exchange in server.of("tools/call")
    }
    assert used == {("analyst", "session-1-of-the-server"), ("trader", "session-2-of-the-server")}
    peers: dict[int, set[str]] = {}
    for exchange in server.of("tools/call"):
        peers.setdefault(id(exchange.writer), set()).add(exchange.headers["x-claw-id"])
    assert all(len(agents) == 1 for agents in peers.values())


@pytest.mark.requirement("mcp:one-session")
async def test_another_credential_at_the_same_server_is_another_session(
    server: ScriptedServer, caller: Caller
) -> None:
    one, two = (
        tool(server, auth={"type": "bearer", "token": f"token-{name}"}) for name in ("one", "two")
    )
    for used in (one, two, one, two):
        assert (await caller.call(used=used)).ok
    used_sessions = [
        (exchange.headers["authorization"], exchange.session)
        for exchange in server.of("tools/call")
    ]
    assert used_sessions[:2] == used_sessions[2:]
    assert len(set(used_sessions)) == 2
    assert server.of("DELETE") == []


@pytest.mark.requirement("mcp:one-session")
async def test_all_calls_wait_for_a_slow_start_even_when_the_first_has_ended(
    server: ScriptedServer, caller: Caller
) -> None:
    go_on = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def slow(exchange: Exchange) -> None:
        await until(go_on.is_set)
        await exchange.server._initialize(exchange)

    server.says("initialize", slow)
    for seconds in growing_times(0.05):
        late = await caller.call(seconds=seconds)
        if late.code != "timeout":  # It gives up shortly before it is cut off
            break
    assert error_of(late) == ("request_failed", "The service took too long to open a session.")
    assert not late.ran
    waiting = [asyncio.ensure_future(caller.call()) for _ in range(3)]
    await asyncio.sleep(0)
    loop.call_soon(go_on.set)
    assert all(result.ok for result in await asyncio.gather(*waiting))
    assert [methods(server).count(name) for name in OPENING] == [1, 1, 1]


@pytest.mark.requirement("mcp:gone-session")
@pytest.mark.parametrize("streams", [False, True])
async def test_calls_in_a_session_that_is_gone_are_repeated_in_a_new_one(
    server: ScriptedServer, caller: Caller, streams: bool
) -> None:
    server.streams = streams
    await caller.call()
    server.forget_sessions()
    results = await asyncio.gather(*(caller.call(f'{{"text":"{number}"}}') for number in range(12)))
    assert [envelope(result)["data"] for result in results] == [
        f'you said {{"text": "{number}"}}' for number in range(12)
    ]
    assert methods(server).count("initialize") == 2
    done = [
        exchange
        for exchange in server.of("tools/call")[1:]
        if exchange.session == "session-2-of-the-server"
    ]
    assert len(done) == 12
    ids = [exchange.message["id"] for exchange in server.of("tools/call")]
    assert len(ids) == len(set(ids))


@pytest.mark.requirement("mcp:gone-session", "mcp:once")
async def test_a_second_404_is_the_result(server: ScriptedServer, caller: Caller) -> None:
    async def gone(exchange: Exchange) -> None:
        await exchange.respond(404, b"no such session", content_type="text/plain")

    server.says("tools/call", gone, gone)
    result = await caller.call()
    assert (result.code, result.status_code, result.ran) == ("http_404", 404, True)
    assert len(server.of("tools/call")) == 2
    assert (await caller.call()).ok


@pytest.mark.requirement("mcp:once")
@pytest.mark.parametrize("versions", [HANDSHAKE, (STATELESS,)])
async def test_404_without_a_session_is_the_result_and_not_repeated(
    server: ScriptedServer, caller: Caller, versions: tuple[str, ...]
) -> None:
    server.versions, server.has_sessions = versions, False

    async def gone(exchange: Exchange) -> None:
        await exchange.respond(404, b"nothing here", content_type="text/plain")

    server.says("tools/call", gone)
    assert (await caller.call()).code == "http_404"
    assert len(server.of("tools/call")) == 1


@pytest.mark.requirement("mcp:eras")
@pytest.mark.parametrize("version", HANDSHAKE)
async def test_messages_have_the_version_that_the_server_chose(
    server: ScriptedServer, caller: Caller, version: str
) -> None:
    server.versions = (version,)
    result = await caller.call()
    assert result.ok
    assert result.mcp is not None
    assert (result.mcp.protocol, result.mcp.server) == (version, "scripted 1.2")
    assert server.of("tools/call")[0].headers["mcp-protocol-version"] == version


@pytest.mark.requirement("mcp:eras")
@pytest.mark.parametrize(
    ("status", "code", "data"),
    [
        (400, -32000, None),
        (400, -32022, {"supported": [STATELESS], "requested": "2025-11-25"}),
        (400, -32020, None),
        (400, -32602, None),
        (200, -32600, {"supported": [STATELESS]}),
        (404, -32601, None),
        (200, -32601, None),
    ],
)
async def test_a_server_that_refuses_the_handshake_is_asked_without(
    server: ScriptedServer, caller: Caller, status: int, code: int, data: object
) -> None:
    server.versions = (STATELESS,)

    async def refuse(exchange: Exchange) -> None:
        await exchange.error(code, "no", data, status=status)

    server.says("initialize", refuse)
    for agent_id in ("analyst", "trader", "analyst"):
        assert (await caller.call(agent_id=agent_id)).ok
    assert methods(server).count("initialize") == 1, "remembered for the server"
    assert methods(server).count("tools/list") == 2


@pytest.mark.requirement("mcp:eras")
async def test_a_servers_era_is_forgotten_when_it_fails(
    server: ScriptedServer, caller: Caller
) -> None:
    server.versions = (STATELESS,)
    assert (await caller.call()).ok
    server.versions = HANDSHAKE  # another server is at this address now
    refused = await caller.call()
    assert refused.code == "mcp_error"
    result = await caller.call()
    assert result.ok
    assert result.mcp is not None
    assert result.mcp.protocol == "2025-11-25"


@pytest.mark.requirement("mcp:eras")
@pytest.mark.parametrize("version", ["1999-01-01", None, 5, ["2025-11-25"]])
async def test_a_version_that_nobody_knows_is_a_clear_failure(
    server: ScriptedServer, caller: Caller, version: object
) -> None:
    async def odd(exchange: Exchange) -> None:
        await exchange.result({"protocolVersion": version, "capabilities": {}})

    server.says("initialize", odd)
    result = await caller.call()
    assert error_of(result) == (
        "request_failed",
        "The service speaks no version of MCP that the proxy knows.",
    )
    assert not result.ran
    assert server.of("tools/call") == []


@pytest.mark.requirement("mcp:stateless")
async def test_without_handshake_each_request_says_all_of_itself(
    server: ScriptedServer, caller: Caller
) -> None:
    server.versions = (STATELESS,)
    schema = {
        "type": "object",
        "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
    }
    server.tools = [{"name": "café", "inputSchema": schema}]
    result = await caller.call('{"region":"Zürich"}', name="café", schema=schema)
    assert result.ok
    assert result.mcp is not None
    assert (result.mcp.protocol, result.mcp.session, result.mcp.server) == (
        STATELESS,
        None,
        "scripted 1.2",
    )
    listed, call = server.received[-2:]
    for exchange in (listed, call):
        meta = exchange.message["params"]["_meta"]
        assert meta["io.modelcontextprotocol/protocolVersion"] == STATELESS
        assert meta["io.modelcontextprotocol/clientCapabilities"] == {}
        assert exchange.headers["mcp-protocol-version"] == STATELESS
        assert exchange.headers["mcp-method"] == exchange.rpc
        assert exchange.session == ""
    assert call.headers["mcp-name"] == "=?base64?Y2Fmw6k=?="
    assert call.headers["mcp-param-region"] == "=?base64?WsO8cmljaA==?="
    assert call.message["params"]["arguments"] == {"region": "Zürich"}


@pytest.mark.requirement("mcp:once")
async def test_after_a_400_the_session_is_not_used_again_nor_the_call_repeated(
    server: ScriptedServer, caller: Caller
) -> None:
    await caller.call()

    async def refuse(exchange: Exchange) -> None:
        await exchange.error(-32600, "Bad session", status=400)

    server.says("tools/call", refuse)
    assert (await caller.call()).code == "mcp_error"
    assert (await caller.call()).ok
    assert len(server.of("tools/call")) == 3
    assert methods(server).count("initialize") == 2


@pytest.mark.requirement("mcp:ends")
async def test_sessions_end_when_the_proxy_stops(server: ScriptedServer, tmp_path: Path) -> None:
    async with calling(server, tmp_path) as caller:
        for agent_id in ("analyst", "trader"):
            await caller.call(agent_id=agent_id)
    assert server.sessions == set()
    assert {exchange.session for exchange in server.of("DELETE")} == {
        "session-1-of-the-server",
        "session-2-of-the-server",
    }
    assert all(
        exchange.headers["mcp-protocol-version"] == "2025-11-25" for exchange in server.of("DELETE")
    )


@pytest.mark.requirement("mcp:ends")
async def test_a_stop_does_not_wait_for_a_server_that_is_silent(
    server: ScriptedServer, tmp_path: Path
) -> None:
    async def silent(exchange: Exchange) -> None:
        await exchange.until_left()

    server.says("DELETE", silent)
    async with calling(server, tmp_path) as caller:
        await caller.call()
    await until(lambda: server.of("DELETE"))


@pytest.mark.requirement("mcp:ends")
async def test_a_session_ends_when_it_was_not_used_for_a_while(
    server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp, "SESSION_IDLE_SECONDS", 0.05)
    async with calling(server, tmp_path) as caller:
        assert (await caller.call()).ok
        await until(lambda: not server.sessions)
        assert (await caller.call()).ok
        assert methods(server).count("initialize") == 2
        await until(lambda: not server.sessions)


@pytest.mark.requirement("mcp:ends")
async def test_a_session_ends_when_its_agent_changes_and_a_call_in_it_finishes_first(
    server: ScriptedServer, caller: Caller
) -> None:
    await caller.call(agent_id="trader")
    go_on = asyncio.Event()

    async def slow(exchange: Exchange) -> None:
        await until(go_on.is_set)
        await exchange.result({"content": []})

    server.says("tools/call", slow)
    running = asyncio.ensure_future(caller.call())
    await until(lambda: len(server.of("tools/call")) == 2)
    caller.executor.release("analyst")
    assert (await caller.call()).ok
    assert len(server.sessions) == 3
    go_on.set()
    assert (await running).ok
    await until(lambda: len(server.sessions) == 2)
    assert [exchange.session for exchange in server.of("DELETE")] == [
        server.of("tools/call")[1].session
    ]
    caller.executor.release("analyst")
    await until(lambda: len(server.sessions) == 1)
    assert server.sessions == {server.of("tools/call")[0].session}


@pytest.mark.requirement("mcp:ends")
async def test_a_session_ends_when_its_credential_changes(
    server: ScriptedServer, caller: Caller, tmp_path: Path
) -> None:
    used = tool(server, auth={"type": "bearer", "token": {"secret": "token"}})
    for token in ("first-token", "second-token"):
        (tmp_path / "token").write_text(token, encoding="utf-8")
        assert (await caller.call(used=used)).ok
    await until(lambda: server.of("DELETE"))
    (ended,) = server.of("DELETE")
    assert (ended.session, ended.headers["authorization"]) == (
        "session-1-of-the-server",
        "Bearer first-token",
    )
    assert server.of("tools/call")[1].headers["authorization"] == "Bearer second-token"


@pytest.mark.requirement("mcp:unreadable")
async def test_a_session_that_cannot_be_opened_in_time_is_given_up(
    server: ScriptedServer, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(exchange: Exchange) -> None:
        await exchange.until_left()

    for seconds in growing_times(0.05):
        server.scripts.clear()
        server.says("tools/list", silent)
        with monkeypatch.context() as patch:
            patch.setattr(mcp_session, "OPEN_SECONDS", seconds)
            result = await caller.call(annotations=READ)
        assert error_of(result) == (
            "request_failed",
            "The service took too long to open a session.",
        )
        if server.of("tools/list"):
            break
    await until(lambda: not server.sessions)
    assert (await caller.call()).ok


@pytest.mark.requirement("mcp:eras")
async def test_a_server_that_chooses_the_stateless_version_in_the_handshake_is_asked_so(
    server: ScriptedServer, caller: Caller
) -> None:
    server.versions = (STATELESS,)

    async def choose(exchange: Exchange) -> None:
        await exchange.result({"protocolVersion": STATELESS, "capabilities": {}})

    server.says("initialize", choose)
    result = await caller.call()
    assert result.mcp is not None
    assert result.mcp.protocol == STATELESS


@pytest.mark.requirement("mcp:unreadable")
@pytest.mark.parametrize("method", ["initialize", "tools/list"])
async def test_an_error_while_the_session_is_opened_is_told_with_its_code(
    server: ScriptedServer, caller: Caller, method: str
) -> None:
    async def refuse(exchange: Exchange) -> None:
        await exchange.error(-32603, "secret words")

    server.says(method, refuse)
    assert error_of(await caller.call()) == (
        "request_failed",
        "The service refused to open a session (error -32603).",
    )


@pytest.mark.requirement("mcp:handshake")
@pytest.mark.parametrize("info", [None, "desk", {"name": 5}])
async def test_a_tool_of_a_server_without_a_name_is_called(
    server: ScriptedServer, caller: Caller, info: object
) -> None:
    async def unnamed(exchange: Exchange) -> None:
        exchange.server.has_sessions = False
        await exchange.result(
            {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": info}
        )

    server.says("initialize", unnamed)
    result = await caller.call()
    assert result.mcp is not None
    assert (result.ok, result.mcp.server) == (True, "")


@pytest.mark.requirement("mcp:ends")
async def test_a_stop_while_a_session_is_opened_ends_the_call(
    server: ScriptedServer, caller: Caller
) -> None:
    async def silent(exchange: Exchange) -> None:
        await exchange.until_left()

    server.says("initialize", silent)
    running = asyncio.ensure_future(caller.call())
    await until(lambda: server.of("initialize"))
    await caller.executor.close()
    assert error_of(await running) == ("request_failed", "The proxy ends the session.")
