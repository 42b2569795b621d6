"""The composition of a host: its groups, its providers, its descriptor, and what
``claw tools check`` says.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from claw_compile.descriptors.descriptor import read_descriptor
from claw_compile.parsing.json_reader import read_json
from claw_compile.parsing.node import Source
from claw_contract.descriptor import DescriptorV2
from claw_contract.secret import Secret
from claw_contract.toolhost_file import (
    ChannelSection,
    McpServerSection,
    MessageSection,
    SearchSection,
    ToolsSection,
)
from claw_tools.built_in import NotOfferedError, Parts, ToolGroup
from claw_tools.describe import describe, report_tools
from claw_tools.host import Host, find_secrets
from claw_tools.provider import ToolDefinition, load_providers
from claw_tools.settings import HostSettings, Principal
from claw_tools.tool import Tool
from tests.tools.hosting import CONFIG, run
from tests.tools.scene import MadeProvider, MadeTool, principal
from tests.waiting import DEADLINE, eventually_async


def settings(*principals: Principal, **more: Any) -> HostSettings:
    return HostSettings(principals=principals or (principal(token_variable="TOKEN_A"),), **more)


def made(*names: str) -> ToolGroup:
    return ToolGroup(names, lambda _principal, _parts: [MadeTool(name) for name in names])


def refusing(name: str, *, is_fault: bool) -> ToolGroup:
    def make(_principal: Principal, _parts: Parts) -> Iterable[Tool]:
        raise NotOfferedError("the kernel has no such thing", is_fault=is_fault)

    return ToolGroup((name,), make)


@pytest.mark.requirement("host:groups", "host:check", "host:health")
async def test_a_tool_that_can_not_be_had_costs_no_other_one_and_its_reason_is_kept() -> None:
    def make_some(who: Principal, _parts: Parts) -> Iterable[Tool]:
        if who.name == "b":
            raise NotOfferedError("redis is not installed", is_fault=True)
        return [MadeTool("one")]

    groups = [
        made("first"),
        refusing("off", is_fault=False),
        ToolGroup(("one", "two"), make_some, "it has no endpoint"),
    ]
    host = Host(settings(principal(), principal("b", ["o*"])), lambda *_: None, groups=groups)
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


@pytest.mark.requirement("host:check")
async def test_what_nobody_asked_for_is_no_fault_and_what_was_asked_for_is() -> None:
    for is_fault in (False, True):
        host = Host(
            settings(), lambda *_: None, groups=[made("first"), refusing("off", is_fault=is_fault)]
        )
        assert report_tools(host)[1] is not is_fault
        assert host.health()["tools"]["off"] == ("fault" if is_fault else "off")


@pytest.mark.requirement("host:groups")
async def test_a_workspace_that_can_not_be_opened_is_an_error_with_the_principal() -> None:
    def make(_principal: Principal, _parts: Parts) -> Iterable[Tool]:
        raise PermissionError(13, "Permission denied")

    with pytest.raises(ValueError, match=r"^principal a: /: Permission denied$"):
        Host(settings(), lambda *_: None, groups=[ToolGroup(("x",), make)])


@pytest.mark.requirement("host:groups")
async def test_what_a_tool_holds_is_ended_with_the_host() -> None:
    ended = []

    class HeldTool(MadeTool):
        async def aclose(self) -> None:
            ended.append(self.name)

    host = Host(settings(), lambda *_: None, groups=[ToolGroup(("x",), lambda *_: [HeldTool("x")])])
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
    host = Host(settings(), lambda *_: None, [MadeProvider("x", "one"), broken], groups=[])
    host.on_change = count
    running = asyncio.create_task(host.run())
    await eventually_async(lambda: told == 2, "both providers are listed")
    assert [tool.name for tool in host.registries[0].tools()] == ["x__one"]
    assert await host.wait_for_lists(0.01) == ["broken"]
    running.cancel()
    await asyncio.wait([running])


@pytest.mark.requirement("host:describe")
async def test_the_descriptor_compiles_and_is_the_same_bytes_each_time() -> None:
    group = ToolGroup(
        (), lambda *_: [MadeTool("zeta"), MadeTool("alpha", annotations={"readOnlyHint": True})]
    )
    principals = (
        principal(token_variable="TOKEN_A"),
        principal("b", ["alpha", "x__*"], token_variable="TOKEN_A"),
    )

    async def once(*chosen: Principal) -> str:
        host = Host(
            settings(*chosen), lambda *_: None, [MadeProvider("x", "a.b", "c")], groups=[group]
        )
        return await describe(host, 10, is_offline=False)

    text = await once(*principals)
    assert {text, await once(*principals), await once(*reversed(principals))} == {text}
    read = read_json(Source("tools.json", text)).then(
        lambda root: read_descriptor("tools.json", root)
    )
    assert (read.diagnostics, read.value is not None) == ((), True)
    assert read.value is not None
    descriptor = read.value.descriptor
    assert isinstance(descriptor, DescriptorV2)
    assert [tool.name for tool in descriptor.tools] == ["alpha", "x__a_b_d191bf19", "x__c", "zeta"]
    assert [tool.effect for tool in descriptor.tools] == ["read", "unknown", "unknown", "unknown"]
    assert descriptor.auth is not None
    assert descriptor.mcp is not None
    assert (descriptor.auth.type, descriptor.auth.env, descriptor.mcp.path) == (
        "bearer",
        "TOKEN_A",
        "/mcp",
    )
    only = json.loads(await once(principals[1]))
    assert [tool["name"] for tool in only["tools"]] == ["alpha", "x__a_b_d191bf19", "x__c"]
    mixed = json.loads(await once(principals[0], principal("c", token_variable="TOKEN_C")))
    assert mixed["auth"] == {"type": "bearer"}


@pytest.mark.requirement("host:describe")
async def test_a_provider_that_does_not_list_in_time_is_an_error_and_no_shorter_descriptor() -> (
    None
):
    slow = MadeProvider("slow")

    async def hang() -> Sequence[ToolDefinition]:
        await asyncio.Event().wait()
        raise AssertionError

    slow.list_tools = hang  # type: ignore[method-assign]
    host = Host(settings(), lambda *_: None, [slow], groups=[])
    with pytest.raises(ValueError, match="slow: no list of tools within"):
        await describe(host, 0.05, is_offline=False)


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
    whole = settings(principal(token=token), principal("b"), tools=tools)
    assert sorted(each.reveal() for each in find_secrets(whole)) == sorted(names)


@pytest.mark.requirement("tools:entry-points", "host:check", "host:describe")
def test_an_installed_package_is_found_and_its_namespace_is_taken(
    packages: Path, tmp_path: Path
) -> None:
    (tmp_path / "toolhost.yml").write_text(CONFIG)
    checked = run("check", home=tmp_path, packages=packages)
    assert "made__echo      registered, by an installed package\n" in checked.stdout
    assert any(
        line.startswith("exec_shell      not registered: write 'exec:")
        for line in checked.stdout.splitlines()
    )
    described = run("describe", "--principal", "b", home=tmp_path, packages=packages)
    assert (described.returncode, described.stderr) == (0, "")
    document = json.loads(described.stdout)
    assert document["auth"] == {"type": "bearer", "env": "TOKEN_B"}
    assert [(tool["name"], tool["annotations"]) for tool in document["tools"]] == [
        ("made__echo", {"readOnlyHint": True})
    ]
    (tmp_path / "toolhost.yml").write_text(
        f"{CONFIG}tools: {{mcp_servers: {{made: {{command: x}}}}}}\n"
    )
    taken = run("check", home=tmp_path, packages=packages)
    assert (taken.returncode, taken.stdout) == (1, "")
    assert "toolhost.yml:7:23: tools.mcp_servers.made: the name 'made' is taken" in taken.stderr


@pytest.mark.requirement("tools:entry-points")
@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("raise RuntimeError('broken at import')", "RuntimeError: broken at import"),
        ("import sys\nsys.exit(3)", "SystemExit: 3"),
        ("def Made():\n    raise OSError('no disk')", "OSError: no disk"),
        ("Made = 7", "TypeError"),
        ("", "AttributeError"),
        (
            "class Made:\n    namespace = 'x'\n    async def list_tools(self): ...",
            "has no 'call_tool'",
        ),
        (
            "class Made:\n    namespace = 'a__b'\n    list_tools = call_tool = None",
            "give it another name",
        ),
        (
            "class Made:\n    namespace = 7\n    list_tools = call_tool = None",
            "give it another name",
        ),
    ],
)
def test_a_package_that_is_broken_is_one_line_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, words: str
) -> None:
    information = tmp_path / "bad_tools-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: bad-tools\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[claw.tool_providers]\nbad = bad_tools:Made\n")
    (tmp_path / "bad_tools.py").write_text(body)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "bad_tools", raising=False)
    with pytest.raises(ValueError, match=words) as refused:
        Host(settings(), lambda *_: None, load_providers(), groups=[])
    assert "\n" not in str(refused.value)


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
        settings(tools=ToolsSection(mcp_servers=servers)),
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
