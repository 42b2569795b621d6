"""``exec_shell`` and ``spawn``: their arguments and their limits."""

from __future__ import annotations

from pathlib import Path

import pytest

from claw_contract.json_schema import check_instance
from claw_contract.toolhost_file import ExecSection, LimitsSection, ToolsSection
from claw_tools.execution.containment import Containment
from claw_tools.execution.tools import ExecShell, Spawn
from claw_tools.tool import Tool
from tests.tools.execution.exec_hosts import Host, gone, new_marker

MAX_RESULT = LimitsSection().result_bytes


def both_tools(root: Path, section: ExecSection, held: Containment) -> tuple[Tool, Tool]:
    """Return ``exec_shell`` and ``spawn``."""
    tools = ToolsSection(exec=section)
    return ExecShell(root, section, held, MAX_RESULT), Spawn(root, tools, held, MAX_RESULT)


@pytest.mark.requirement("tools:exec:busy")
def test_a_sixth_process_is_refused_at_once(host: Host) -> None:
    marker = new_marker()
    calls = [host.start("spawn", command="sleep", args=[marker]) for _ in range(5)]
    assert host.call("spawn", command="true")["error"] == "busy"
    for call in calls:
        host.cancel(call)
    assert {host.finish(call)["error"] for call in calls} == {"cancelled"}
    assert host.call("spawn", command="true")["result"]["exit_code"] == 0
    gone(marker)


@pytest.mark.requirement("tools:exec:spawn")
def test_arguments_of_spawn_are_literal(host: Host) -> None:
    result = host.call("spawn", command="echo", args=["$(id)", "; id", "*"])["result"]
    assert result["stdout"] == "$(id) ; id *\n"
    assert host.call("spawn", command="echo", args=["a\0b"])["error"] == "invalid_args"
    assert host.call("exec_shell", command="echo a\0b")["error"] == "invalid_args"
    answer = host.call("spawn", command="sh -c id")
    assert (answer["error"], answer["message"]) == (
        "execution_failed",
        "the command can't be started: no such program",
    )


@pytest.mark.requirement("tools:exec:timeout-values")
@pytest.mark.parametrize("value", [0, -1, 301, 1e9, "5", True, None])
def test_a_time_that_is_none_does_not_fit_the_schema(tmp_path: Path, value: object) -> None:
    held = Containment("namespaces", "", ExecSection(), 99)
    for tool in both_tools(tmp_path, ExecSection(), held):
        assert check_instance(tool.parameters, {"command": "true", "timeout": value}, 8)
        assert not check_instance(tool.parameters, {"command": "true", "timeout": 300}, 8)


@pytest.mark.requirement("tools:exec:timeout-values")
def test_the_time_of_a_call_that_names_none_is_at_most_the_longest(tmp_path: Path) -> None:
    held = Containment("namespaces", "", ExecSection(), 99)
    for longest, defaults in ((300, [30, 60]), (40, [30, 40]), (10, [10, 10])):
        tools = both_tools(tmp_path, ExecSection(max_timeout_s=longest), held)
        assert [tool.parameters["properties"]["timeout"]["default"] for tool in tools] == defaults
