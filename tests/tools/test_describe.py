"""The descriptor of a host, and what ``claw tools check`` says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import pytest

from claw_compile.descriptors.descriptor import read_descriptor
from claw_compile.parsing.json_reader import read_json
from claw_compile.parsing.node import Source
from claw_contract.descriptor import DescriptorV2
from claw_tools.built_in import ToolGroup
from claw_tools.describe import describe, report_tools
from claw_tools.host import Host
from claw_tools.provider import ToolDefinition
from claw_tools.settings import Principal
from tests.tools.logged_shell import (
    MadeProvider,
    MadeTool,
    host_settings,
    made_group,
    principal,
    refused_group,
)


@pytest.mark.requirement("host:check")
async def test_what_nobody_asked_for_is_no_fault_and_what_was_asked_for_is() -> None:
    for is_fault in (False, True):
        host = Host(
            host_settings(),
            lambda *_: None,
            groups=[made_group("first"), refused_group("off", is_fault=is_fault)],
        )
        assert report_tools(host)[1] is not is_fault
        assert host.health()["tools"]["off"] == ("fault" if is_fault else "off")


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
            host_settings(*chosen), lambda *_: None, [MadeProvider("x", "a.b", "c")], groups=[group]
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
    host = Host(host_settings(), lambda *_: None, [slow], groups=[])
    with pytest.raises(ValueError, match="slow: no list of tools within"):
        await describe(host, 0.05, is_offline=False)
