"""The file system that a command sees in namespaces of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from claw_tools.execution.filesystem import DEVICES, SYSTEM
from tests.tools.execution.exec_hosts import a_host


@pytest.mark.requirement("tools:exec:files")
def test_a_command_sees_its_workspace_and_the_system_and_writes_no_other_place(
    tmp_path: Path,
) -> None:
    with a_host("nobody-namespaces", tmp_path) as host:
        top = set(host.run("ls /")["stdout"].split())
        assert {"workspace", "tmp", "usr", "dev"} <= top
        assert top <= {*SYSTEM, "workspace", "tmp", "dev", "etc", "proc"}
        assert set(DEVICES) <= set(host.run("ls /dev")["stdout"].split())
        assert host.run("pwd; id -un")["stdout"].split() == ["/workspace", "worker"]

        for place in ("/new", "/usr/new", "/etc/new", "/dev/new"):
            refused = host.run(f"echo x > {place}")
            assert refused["exit_code"] != 0, place
        assert host.run("echo x > new && echo x > /tmp/new && cat new")["stdout"] == "x\n"
        assert (host.home / "workspace" / "new").read_text() == "x\n"
