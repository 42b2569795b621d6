"""MCP servers behind the host at URLs, at the level of bytes: both eras, lost sessions, broken
connections, hostile answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import pytest

from claw_contract.secret import Secret
from claw_contract.strict_json import read_strict_object
from claw_tools.errors import ErrorCode, ToolError
from tests.mcp.scripted_server import HANDSHAKE, STATELESS, Exchange, ScriptedServer
from tests.tools.serving import NamedSection, address, behind
from tests.waiting import eventually_async, free_port

TOKEN = "planted-token-of-the-url"


def at(server: ScriptedServer, **more: Any) -> NamedSection:
    return address("desk", f"{server.url}/mcp", **more)


async def hold(exchange: Exchange) -> None:
    await exchange.until_left()


def page(number: int, last: int) -> dict[str, Any]:
    tool = {"name": f"tool-{number}", "inputSchema": {"type": "object"}}
    return {"tools": [tool], **({} if number == last else {"nextCursor": str(number)})}


@pytest.mark.requirement("servers:url")
@pytest.mark.parametrize("versions", [HANDSHAKE, (STATELESS,)])
@pytest.mark.parametrize("streams", [False, True])
async def test_a_url_server_is_called_in_both_eras_in_json_and_in_events(
    server: ScriptedServer, versions: tuple[str, ...], *, streams: bool
) -> None:
    server.versions, server.streams = versions, streams
    sent = '{"text": "hello", "n": 123456789012345678901234567890, "d": 1.10}'
    async with behind(at(server, headers={"Authorization": Secret(f"Bearer {TOKEN}")})) as desk:
        assert await desk.names() == {"echo"}
        result = await desk.server.call_tool("echo", read_strict_object(sent))
        assert "you said" in result["output"]
        (call,) = server.of("tools/call")
        assert b"123456789012345678901234567890" in call.body
        assert b'"d":1.10' in call.body
        assert call.headers["authorization"] == f"Bearer {TOKEN}"
        if server.is_stateless:
            assert (call.headers["mcp-name"], call.headers["mcp-method"], call.session) == (
                "echo",
                "tools/call",
                "",
            )
        else:
            assert call.session in server.sessions
    await eventually_async(
        lambda: len(server.of("DELETE")) == (0 if server.is_stateless else 1),
        "the session is ended",
    )


@pytest.mark.requirement("servers:not-repeated")
async def test_a_lost_session_is_opened_anew_and_the_calls_are_made_once_more(
    server: ScriptedServer,
) -> None:
    async with behind(at(server)) as desk:
        server.forget_sessions()
        results = await asyncio.gather(
            *(desk.call("echo", text=str(number)) for number in range(5))
        )
        assert [f'"{number}"' in result["output"] for number, result in enumerate(results)] == [
            True
        ] * 5
        assert len(server.of("initialize")) == 2, "they share the new session"
        assert len(server.of("tools/call")) <= 10
        assert desk.changes == ["desk"]


@pytest.mark.requirement("servers:not-repeated")
async def test_a_server_that_always_forgets_is_asked_twice_and_no_more(
    server: ScriptedServer,
) -> None:
    async with behind(at(server)) as desk:
        server.says("tools/call", *[lambda exchange: exchange.respond(404)] * 9)
        error = await desk.fails("echo", text="a")
        assert (error.code, "not sent" in error.message) == (ErrorCode.EXECUTION_FAILED, True)
        assert len(server.of("tools/call")) == 2


async def reset(exchange: Exchange) -> None:
    exchange.reset()


async def half(exchange: Exchange) -> None:
    await exchange.begin_stream()
    await exchange.chunk(b'data: {"jsonrpc": "2.0", "id"')
    exchange.reset()


async def huge(exchange: Exchange) -> None:
    await exchange.begin_stream()
    await exchange.chunk(b"data: " + b"x" * (9 << 20))


async def zipped(exchange: Exchange) -> None:
    await exchange.respond(200, b"\x1f\x8b", "content-encoding: gzip")


@pytest.mark.requirement("servers:not-repeated")
@pytest.mark.parametrize(
    "script",
    [
        reset,
        half,
        huge,
        zipped,
        lambda exchange: exchange.respond(503, b"sorry, http://10.0.0.1/ fell over"),
        lambda exchange: exchange.respond(200, b"<html>", content_type="text/html"),
        lambda exchange: exchange.respond(202),
    ],
)
async def test_a_call_without_answer_is_not_repeated_and_says_that_it_may_have_happened(
    server: ScriptedServer, script: Any
) -> None:
    async with behind(at(server)) as desk:
        server.says("tools/call", script)
        error = await desk.fails("echo", text="a")
        assert (error.code, "may have taken effect" in error.message) == (
            ErrorCode.EXECUTION_FAILED,
            True,
        )
        assert "127.0.0.1" not in error.message
        assert "10.0.0.1" not in error.message
        assert len(server.of("tools/call")) == 1
        await desk.call("echo", text="b")


@pytest.mark.requirement("servers:down-at-start")
@pytest.mark.parametrize("versions", [HANDSHAKE, (STATELESS,)])
async def test_a_url_server_that_comes_later_has_its_tools_then_and_may_go_and_come_again(
    versions: tuple[str, ...],
) -> None:
    port = free_port()
    async with behind(address("desk", f"http://127.0.0.1:{port}/"), ready=False) as desk:
        await eventually_async(lambda: len(desk.of("restarts")) >= 2, "it is tried again")
        assert (desk.server.state, await desk.names()) == ("down", set())
        assert "can't be reached" in desk.of("failed")[0]["reason"]
        server = ScriptedServer(versions, port=port).start()
        await desk.is_ready()
        assert (desk.changes, await desk.names()) == (["desk"], {"echo"})
        server.stop()
        error = await desk.fails("echo", text="a")
        assert (error.code, "was not sent" in error.message) == (ErrorCode.EXECUTION_FAILED, True)
        server = ScriptedServer(versions, port=port).start()
        await eventually_async(lambda: desk.server.state == "ready", "it is there again")
        await desk.call("echo", text="a")
        # A client that is cancelled while it closes several dead connections leaves some to the
        # garbage collector (httpcore2).
        await eventually_async(lambda: server.of("tools/list"), "no dead connection is left")
    server.stop()


@pytest.mark.requirement("servers:timeout")
async def test_a_call_to_a_url_that_takes_too_long_is_cancelled(server: ScriptedServer) -> None:
    async with behind(at(server, timeout_s=0.3)) as desk:
        while not server.of(
            "tools/call"
        ):  # On a busy machine its time may be over before the server has it
            server.says("tools/call", hold)
            error = await desk.fails("echo", text="a")
        server.scripts.clear()
        assert (error.code, "may have taken effect" in error.message) == (ErrorCode.TIMEOUT, True)
        sent = server.of("tools/call")[0].message["id"]

        def cancelled() -> list[int]:
            return [
                each.message["params"]["requestId"] for each in server.of("notifications/cancelled")
            ]

        await eventually_async(lambda: sent in cancelled(), "the server is told")
        while True:  # Its time may be over before the answer
            with contextlib.suppress(ToolError):
                await desk.call("echo", text="b")
                break
        assert cancelled().count(sent) == 1


@pytest.mark.requirement("servers:concurrent")
async def test_a_call_that_waits_holds_no_other_back(server: ScriptedServer) -> None:
    async with behind(at(server)) as desk:
        server.says("tools/call", hold)
        waiting = asyncio.create_task(desk.call("echo", text="a"))
        await eventually_async(lambda: server.of("tools/call"), "the first is there")
        await asyncio.gather(*(desk.call("echo", text="b") for _ in range(20)))
        assert (waiting.done(), len(server.of("initialize"))) == (False, 1)
        waiting.cancel()
        await asyncio.wait([waiting])


@pytest.mark.requirement("servers:list-changed")
async def test_a_url_server_says_on_its_own_stream_that_its_tools_have_changed(
    server: ScriptedServer,
) -> None:
    go = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def announce(exchange: Exchange) -> None:
        await exchange.begin_stream()
        loop.call_soon_threadsafe(go.set)
        await eventually_async(lambda: len(server.tools) != 1, "the test changes the tools")
        await exchange.event({"method": "notifications/tools/list_changed"})
        await exchange.until_left()

    server.says("GET", announce)
    async with behind(at(server)) as desk:
        await go.wait()
        server.tools = [*server.tools, {"name": "second", "inputSchema": {"type": "object"}}]
        await eventually_async(lambda: len(desk.changes) == 2, "the change is told")
        assert await desk.names() == {"echo", "second"}


@pytest.mark.requirement("servers:list-changed")
async def test_a_stateless_server_says_so_to_those_who_listen(server: ScriptedServer) -> None:
    server.versions = (STATELESS,)

    async def announce(exchange: Exchange) -> None:
        assert exchange.message["params"]["notifications"] == {"toolsListChanged": True}
        await exchange.begin_stream()
        server.tools = [{"name": "other", "inputSchema": {"type": "object"}}]
        await exchange.event({"method": "notifications/tools/list_changed"})
        await exchange.until_left()

    server.says("subscriptions/listen", announce)
    async with behind(at(server)) as desk:
        await eventually_async(
            lambda: desk.server._tools is not None and "other" in desk.server._tools,
            "the list is read anew",
        )


@pytest.mark.requirement("servers:pages")
async def test_every_page_of_a_list_is_read(server: ScriptedServer) -> None:
    server.says("tools/list", *(_page_script(number, 3) for number in range(4)))
    async with behind(at(server)) as desk:
        assert await desk.names() == {f"tool-{number}" for number in range(4)}
        cursors = [each.message["params"].get("cursor") for each in server.of("tools/list")]
        assert cursors == [None, "0", "1", "2"]


@pytest.mark.requirement("servers:pages")
async def test_a_list_without_end_gives_no_tools(server: ScriptedServer) -> None:
    server.says("tools/list", *(_page_script(number, 1_000) for number in range(100)))
    async with behind(at(server), ready=False) as desk:
        await eventually_async(lambda: desk.of("failed"), "it is given up")
        assert "more than 100 pages" in desk.of("failed")[0]["reason"]
        await eventually_async(lambda: desk.changes, "an honest list is taken later")
        assert await desk.names() == {"echo"}


def _page_script(number: int, last: int) -> Any:
    return lambda exchange: exchange.result(page(number, last))


@pytest.mark.requirement("servers:child-asks")
async def test_a_request_of_a_url_server_with_the_id_of_the_call_is_answered_and_is_no_answer(
    server: ScriptedServer,
) -> None:
    async def ask(exchange: Exchange) -> None:
        number = exchange.message["id"]
        await exchange.begin_stream()
        for method in ("ping", "roots/list", "sampling/createMessage"):
            await exchange.event({"id": number, "method": method})
        await exchange.event(
            {"id": number, "result": {"content": [{"type": "text", "text": "the answer"}]}}
        )
        await exchange.end_stream()

    server.says("tools/call", ask)
    async with behind(at(server)) as desk:
        assert await desk.call("echo", text="a") == {"output": "the answer"}
        await eventually_async(lambda: len(server.of("")) == 3, "all are answered")
        answers = sorted(
            json.dumps(each.message.get("result", "refused")) for each in server.of("")
        )
        assert answers == ['"refused"', '{"roots": []}', "{}"]


@pytest.mark.requirement("servers:credentials")
async def test_a_redirect_is_not_followed_with_the_credential(server: ScriptedServer) -> None:
    other = ScriptedServer().start()
    async with behind(at(server, headers={"x-key": Secret(TOKEN)})) as desk:
        server.says(
            "tools/call", lambda exchange: exchange.respond(307, b"", f"location: {other.url}/mcp")
        )
        error = await desk.fails("echo", text="a")
        assert error.code == ErrorCode.EXECUTION_FAILED
        assert other.url not in error.message
    assert other.received == []
    other.stop()


@pytest.mark.requirement("servers:credentials")
async def test_the_proxies_of_the_environment_get_nothing(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = ScriptedServer().start()
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, other.url)
    async with behind(at(server, headers={"x-key": Secret(TOKEN)})) as desk:
        await desk.call("echo", text="a")
    assert other.received == []
    other.stop()


@pytest.mark.requirement("servers:secrets")
async def test_what_a_url_server_echoes_of_the_credential_is_redacted(
    server: ScriptedServer,
) -> None:
    async with behind(at(server, headers={"authorization": Secret(f"Bearer {TOKEN}")})) as desk:
        assert TOKEN not in str(await desk.call("echo", text=TOKEN))
        server.says(
            "tools/call", lambda exchange: exchange.error(-32000, f"no {TOKEN} " + "x" * 9_000)
        )
        error = await desk.fails("echo", text="a")
        assert (error.code, TOKEN in error.message, len(error.message) < 2_100) == (
            ErrorCode.EXECUTION_FAILED,
            False,
            True,
        )
        assert error.message.startswith("the server refused the call: no ••••••")


@pytest.mark.requirement("servers:credentials")
async def test_a_refused_credential_is_in_the_log_with_the_remedy(server: ScriptedServer) -> None:
    server.says("initialize", *[lambda exchange: exchange.respond(401)] * 9)
    async with behind(at(server), ready=False) as desk:
        await eventually_async(lambda: desk.of("failed"), "it fails")
        assert desk.of("failed")[0]["reason"] == (
            "the URL refuses the credential with status 401: correct its 'headers' in toolhost.yml"
        )
