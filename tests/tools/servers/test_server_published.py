"""Published MCP servers behind the host, and those of the official SDK in both
eras; internal tools on the outside.
"""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from claw_contract.base import JsonObject
from claw_mcp.protocol import RpcError, RpcMessage
from claw_mcp.sessions import ClientRequest, Session
from claw_tools.audit import CallLog
from claw_tools.errors import ErrorCode
from claw_tools.registry import ToolRegistry
from claw_tools.settings import Principal
from claw_tools.shell import McpServerShell
from tests.mcp_peers.peers import npm_program
from tests.mcp_peers.sdk import SDKS, Mode, Sdk, program, sdk_server
from tests.tools.serving import address, behind, child, command
from tests.waiting import eventually_async


@pytest.mark.requirement("servers:stdio", "servers:results")
async def test_server_everything_is_behind_the_host() -> None:
    words = (*npm_program("mcp-server-everything"), "stdio")
    async with behind(command("everything", *words)) as server:
        assert {"echo", "get-tiny-image", "get-structured-content"} <= await server.names()
        assert await server.call("echo", message="hello") == {"output": "Echo: hello"}
        assert "[image, image/png, 4033 bytes]" in (await server.call("get-tiny-image"))["output"]
        assert (
            "[resource_link, Blob Resource 1"
            in (await server.call("get-resource-links", count=2))["output"]
        )
        blob = await server.call("get-resource-reference", resourceType="Blob", resourceId=1)
        assert re.search(
            r"text/plain, 5[56] bytes\]", blob["output"]
        )  # It tells the time of day, of one or two digits
        weather = json.loads(bytes(await server.call("get-structured-content", location="Chicago")))
        assert weather.keys() == {"temperature", "conditions", "humidity"}
        wrong = await server.fails("get-sum", a="one")
        assert wrong.code == ErrorCode.EXECUTION_FAILED


@pytest.mark.requirement("servers:stdio")
async def test_mcp_server_time_is_behind_the_host() -> None:
    async with behind(
        command("time", program("mcp-server-time"), "--local-timezone", "UTC")
    ) as server:
        assert await server.names() == {"get_current_time", "convert_time"}
        tokyo = await server.call(
            "convert_time", source_timezone="UTC", time="12:00", target_timezone="Asia/Tokyo"
        )
        assert b"T21:00:00+09:00" in bytes(tokyo)
        error = await server.fails("get_current_time", timezone="Nowhere/None")
        assert error.code == ErrorCode.EXECUTION_FAILED


@pytest.mark.requirement("servers:url")
@pytest.mark.parametrize("mode", ["json", "sse", "stateless"])
@pytest.mark.parametrize("sdk", SDKS)
async def test_servers_of_the_official_sdk_are_called_and_told_of_the_end_of_a_call(
    sdk: Sdk, mode: Mode, tmp_path: Path
) -> None:
    with sdk_server(sdk, mode, tmp_path / "sdk") as peer:
        async with behind(address("sdk", peer.url, timeout_s=30)) as server:
            total = await server.call("add", a=2**70, b=1)
            assert total == {"output": str(2**70 + 1)}
            assert json.loads(bytes(await server.call("structured", symbol="A"))) == {
                "symbol": "A",
                "shares": 3,
            }
            assert "image/png" in (await server.call("image"))["output"]
            assert (await server.fails("fails", message="out of stock")).message.endswith(
                "out of stock"
            )
            assert "nord" in str(bytes(await server.call("routed", region="nord")))
            if mode != "stateless":  # a server without sessions does not know which call ends
                slow = asyncio.create_task(server.call("slow", seconds=60))
                await eventually_async(lambda: peer.calls("slow"), "the call is there")
                slow.cancel()
                await eventually_async(
                    lambda: peer.calls("slow")[-1].get("cancelled"), "the server is told"
                )


@pytest.mark.requirement("servers:restart", "servers:url")
async def test_a_killed_url_server_fails_its_calls_at_once_and_is_there_again(
    tmp_path: Path,
) -> None:
    with sdk_server(2, "sse", tmp_path / "sdk") as peer:
        async with behind(address("sdk", peer.url, timeout_s=600)) as server:
            calls = [asyncio.create_task(server.fails("slow", seconds=60)) for _ in range(3)]
            await eventually_async(lambda: len(peer.calls("slow")) == 3, "the calls are there")
            peer.kill()
            errors = await asyncio.gather(*calls)
            assert all("may have taken effect" in error.message for error in errors)
            await asyncio.to_thread(peer.start)
            await eventually_async(lambda: server.server.state == "ready", "it is there again")
            assert "A" in str(bytes(await server.call("structured", symbol="A")))
            assert (len(peer.calls("slow")), server.changes) == (3, ["sdk"])


async def ask(shell: McpServerShell, method: str, **params: Any) -> JsonObject:
    """Return the result of a request to the host's MCP server."""
    message = RpcMessage("2.0", method, msgspec.Raw(b"1"), msgspec.Raw(json.dumps(params).encode()))
    result: JsonObject = json.loads(await shell.answer(ClientRequest(Session("agent"), message)))
    return result


@pytest.mark.requirement("servers:internal")
async def test_internal_tools_are_there_for_the_globs_of_a_request_and_within_those_of_the_principal(
    tmp_path: Path,
) -> None:
    lines: list[JsonObject] = []
    shell = McpServerShell(CallLog(lambda _, members: lines.append(members)), 1 << 16)
    inner, outer = child(name="inner"), child(name="outer", internal_only=False)
    async with behind(inner) as internal, behind(outer) as public:
        for each in (internal, public):
            shell.register_provider(each.server, internal=each.server.is_internal)
            assert await shell.provided.refresh(each.server.namespace) == []
        principal = Principal("agent", tmp_path, ("inner__echo", "inner__line", "outer__*"))
        shell.add(ToolRegistry(principal, shell.provided))
        plain = {tool["name"] for tool in (await ask(shell, "tools/list"))["tools"]}
        assert plain == {f"outer__{name}" for name in await public.names()}
        meta = {"claw/allowedTools": ["inner__*"]}
        surfaced = {tool["name"] for tool in (await ask(shell, "tools/list", _meta=meta))["tools"]}
        assert surfaced == {"inner__echo", "inner__line"}
        called = await ask(
            shell, "tools/call", name="inner__line", arguments={"a": 2**60 + 1}, _meta=meta
        )
        assert str(2**60 + 1) in called["structuredContent"]["output"]
        with pytest.raises(RpcError, match="no tool 'inner__line'"):
            await ask(shell, "tools/call", name="inner__line")
        with pytest.raises(RpcError, match="no tool 'inner__die'"):
            await ask(shell, "tools/call", name="inner__die", _meta=meta)
    assert [line["outcome"] for line in lines] == ["ok", "not_found", "not_found"]
