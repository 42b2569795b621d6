"""The composition of a host: its groups, its providers and its servers."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from claw_contract.secret import Secret
from claw_contract.toolhost_file import (
    ChannelSection,
    McpServerSection,
    MessageSection,
    SearchSection,
    ToolsSection,
)
from claw_tools.built_in import NotOfferedError, Parts, ToolGroup
from claw_tools.describe import report_tools
from claw_tools.host import Host, find_secrets
from claw_tools.settings import Principal
from claw_tools.tool import Tool
from tests.tools.logged_shell import (
    MadeProvider,
    MadeTool,
    host_settings,
    made_group,
    principal,
    refused_group,
)
from tests.waiting import DEADLINE, eventually_async


@pytest.mark.requirement("host:groups", "host:check", "host:health")
async def test_a_tool_that_can_not_be_had_costs_no_other_one_and_its_reason_is_kept() -> None:
    def make_some(who: Principal, _parts: Parts) -> Iterable[Tool]:
        if who.name == "b":
            raise NotOfferedError("redis is not installed", is_fault=True)
        return [MadeTool("one")]

    groups = [
        made_group("first"),
        refused_group("off", is_fault=False),
        ToolGroup(("one", "two"), make_some, "it has no endpoint"),
    ]
    host = Host(host_settings(principal(), principal("b", ["o*"])), lambda *_: None, groups=groups)
    assert [[tool.name for tool in registry.tools()] for registry in host.registries] == [
        ["first", "one"],
        [],
    ]
    lines, is_sound = report_tools(host)
    assert lines == [
        "first  a: registered; b: registered, but hidden: no glob names it",
        "off    not registered: the kernel has no such thing",
        "one    a: registered; b: not registered: redis is not installed",
        "two    a: not registered: it has no endpoint; b: not registered: redis is not installed",
    ]
    assert not is_sound
    tools = {"first": "registered", "off": "off", "one": "registered", "two": "off"}
    assert host.health() == {"ok": True, "tools": tools, "servers": {}}


@pytest.mark.requirement("host:groups")
async def test_a_workspace_that_can_not_be_opened_is_an_error_with_the_principal() -> None:
    def make(_principal: Principal, _parts: Parts) -> Iterable[Tool]:
        raise PermissionError(13, "Permission denied")

    with pytest.raises(ValueError, match=r"^principal a: /: Permission denied$"):
        Host(host_settings(), lambda *_: None, groups=[ToolGroup(("x",), make)])


@pytest.mark.requirement("host:groups")
async def test_what_a_tool_holds_is_ended_with_the_host() -> None:
    ended = []

    class HeldTool(MadeTool):
        async def aclose(self) -> None:
            ended.append(self.name)

    host = Host(
        host_settings(), lambda *_: None, groups=[ToolGroup(("x",), lambda *_: [HeldTool("x")])]
    )
    await host.close()
    assert ended == ["x"]


@pytest.mark.requirement("host:list-changed")
async def test_clients_are_told_when_the_tools_of_a_provider_are_there() -> None:
    told = 0

    def count() -> None:
        nonlocal told
        told += 1

    broken = MadeProvider("broken")
    broken.list_tools = None  # type: ignore[assignment, method-assign]
    host = Host(host_settings(), lambda *_: None, [MadeProvider("x", "one"), broken], groups=[])
    host.on_change = count
    running = asyncio.create_task(host.run())
    await eventually_async(lambda: told == 2, "both providers are listed")
    assert [tool.name for tool in host.registries[0].tools()] == ["x__one"]
    assert await host.wait_for_lists(0.01) == ["broken"]
    running.cancel()
    await asyncio.wait([running])


@pytest.mark.requirement("host:log")
def test_all_credentials_of_the_settings_are_known_to_the_log() -> None:
    names = ["token", "key", "hook", "redis://bus", "variable", "header"]
    token, key, hook, bus, variable, header = (Secret(name) for name in names)
    channels = {
        "h": ChannelSection(webhook="http://x", token=hook),
        "b": ChannelSection(redis=bus, stream="s"),
        "n": ChannelSection(webhook="http://y"),
    }
    servers = {
        "x": McpServerSection(command="x", env={"A": variable}),
        "y": McpServerSection(url="http://x", headers={"B": header}),
    }
    tools = ToolsSection(
        web_search=SearchSection(endpoint="http://x", api_key=key),
        message=MessageSection(channels=channels),
        mcp_servers=servers,
    )
    whole = host_settings(principal(token=token), principal("b"), tools=tools)
    assert sorted(each.reveal() for each in find_secrets(whole)) == sorted(names)


@pytest.mark.requirement("host:list-changed", "host:health", "tools:internal")
async def test_the_tools_of_a_server_are_there_once_it_answers_and_internal_ones_for_those_who_ask() -> (
    None
):
    pytest.importorskip("claw_tools.servers.server")
    program, args = sys.executable, [str(Path(__file__).parents[1] / "mcp" / "child.py")]
    servers = {
        "open": McpServerSection(command=program, args=args, internal_only=False),
        "closed": McpServerSection(command=program, args=args),
    }
    lines: list[Any] = []
    host = Host(
        host_settings(tools=ToolsSection(mcp_servers=servers)),
        lambda *line: lines.append(line),
        groups=[],
    )
    assert host.health()["servers"] == {"open": "starting", "closed": "starting"}
    running = asyncio.create_task(host.run())
    (registry,) = host.registries
    await eventually_async(
        lambda: "open__echo" in {tool.name for tool in registry.tools()},
        "the open server's tools are there",
    )
    await eventually_async(
        lambda: "closed__echo" in {tool.name for tool in registry.tools(["*"])},
        "and the closed one's for who asks",
    )
    assert {tool.name.partition("__")[0] for tool in registry.tools()} == {"open"}
    assert (await host.wait_for_lists(DEADLINE), host.health()["servers"]) == (
        [],
        {"open": "ready", "closed": "ready"},
    )
    running.cancel()
    await asyncio.wait([running])
    assert {kind for kind, _ in lines} == {"tool_host_server"}
