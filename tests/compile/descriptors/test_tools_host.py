"""The tools of a tools host, known without asking it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from claw_compile.descriptors.tools_host import built_in_tools
from tests.compile.composed import compiled
from tests.compile.tools_host_pod import HIDDEN, codes_of, config, discovered, pod, written

BUILT_IN = [
    *("edit_file", "exec_shell", "list_directory", "memory_read", "memory_write", "message"),
    *("read_file", "spawn", "web_fetch", "web_search", "write_file"),
]


@pytest.mark.requirement("toolspod:grants-offline")
def test_the_manifest_has_the_tools_as_the_registry_has_them(tmp_path: Path) -> None:
    assert [tool.name for tool in built_in_tools().tools] == BUILT_IN
    compiled(tmp_path, pod(one="[read_file]"))
    (tool,) = json.loads(written(tmp_path, "context/one/tools.json"))["tools"]
    (declared,) = [each for each in built_in_tools().tools if each.name == "read_file"]
    assert (tool["name"], tool["inputSchema"]) == ("files.read_file", declared.input_schema)
    assert tool["execution"]["base_url"] == "http://files:8080"
    assert (tool["execution"]["transport"], tool["execution"]["path"]) == ("mcp", "/mcp")


@pytest.mark.requirement("toolspod:held-back")
@pytest.mark.parametrize(
    ("tool", "settings", "needs"),
    [
        ("exec_shell", "{exec: {enabled: true}}", "exec: {enabled: true}"),
        ("spawn", "{exec: {enabled: true}}", "exec: {enabled: true}"),
        ("web_search", "{web_search: {endpoint: 'https://search.example'}}", "web_search"),
        ("message", "{message: {channels: {ops: {webhook: 'https://hooks.example'}}}}", "message"),
    ],
)
def test_a_tool_that_the_settings_leave_out_is_refused_with_what_it_needs(
    tmp_path: Path, tool: str, settings: str, needs: str
) -> None:
    ((code, text),) = codes_of(tmp_path, pod(one=f"[{tool}]"))
    assert code == "unknown-tool"
    assert needs in text
    assert codes_of(tmp_path, pod(settings, one=f"[{tool}]")) == []


@pytest.mark.requirement("toolspod:servers")
def test_a_servers_tools_come_from_the_snapshot_and_go_to_whom_they_are_granted(
    tmp_path: Path,
) -> None:
    settings = (
        "{mcp_servers: {time: {command: uvx, args: [mcp-server-time], internal_only: false}}}"
    )
    discovered(
        tmp_path,
        HIDDEN,
        {"name": "read_file", "description": "Another.", "inputSchema": {"type": "object"}},
    )
    compiled(tmp_path, pod(settings, one="[time__now, read_file]"))
    tools = {
        tool["name"]: tool
        for tool in json.loads(written(tmp_path, "context/one/tools.json"))["tools"]
    }
    assert list(tools) == ["files.read_file", "files.time__now"]
    assert tools["files.read_file"]["description"] != "Another.", (
        "the host's own tool is what the registry says"
    )
    assert config(tmp_path)["toolhost"]["principals"]["one"]["tools"] == ["read_file", "time__now"]
    assert config(tmp_path)["tools"]["mcp_servers"]["time"] == {
        "command": "uvx",
        "args": ["mcp-server-time"],
        "internal_only": False,
    }


@pytest.mark.requirement("toolspod:servers")
def test_a_tool_of_an_internal_server_cannot_be_granted(tmp_path: Path) -> None:
    discovered(tmp_path, HIDDEN)
    ((code, text),) = codes_of(
        tmp_path, pod("{mcp_servers: {time: {command: uvx}}}", one="[time__now]")
    )
    assert code == "unknown-tool"
    assert "internal_only: false" in text


@pytest.mark.requirement("toolspod:unlisted")
def test_a_server_without_a_snapshot_is_a_warning_that_says_what_to_run(tmp_path: Path) -> None:
    ((code, text),) = codes_of(
        tmp_path, pod("{mcp_servers: {time: {command: uvx, internal_only: false}}}")
    )
    assert code == "unlisted-server"
    assert (
        "claw tools describe --config toolhost.yml > .claw-discovered/files.claw-describe.json"
        in text
    )
