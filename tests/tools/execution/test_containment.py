"""No command runs where commands are not contained."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from claw_contract.toolhost_file import ExecSection, LimitsSection, ToolsSection
from claw_tools.execution.containment import Containment, find_containment
from claw_tools.execution.tools import exec_tools

MAX_RESULT = LimitsSection().result_bytes


@pytest.mark.requirement("tools:exec:root-workspace")
def test_a_workspace_of_root_has_no_commands(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("the kernel refuses a workspace of root: run as root")
    held = Containment("namespaces", "", ExecSection(), 99)
    assert "chown" in str(held.problem_of(tmp_path))
    assert exec_tools(tmp_path, ToolsSection(), held, MAX_RESULT) == []


@pytest.mark.requirement("tools:exec:no-landlock")
def test_without_landlock_there_are_no_commands(tmp_path: Path) -> None:
    with find_containment(ExecSection(), max_abi=0) as found:
        assert found.form is None
        assert found.reason.startswith("commands can't be contained here")
        assert exec_tools(tmp_path, ToolsSection(), found, MAX_RESULT) == []
