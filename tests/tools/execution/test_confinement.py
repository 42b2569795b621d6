"""The resources that a command may use and make."""

from __future__ import annotations

from pathlib import Path

import pytest

from claw_tools.execution.containment import FORMS
from tests.tools.execution.exec_hosts import SECRET, Host, running_host


@pytest.mark.requirement("tools:exec:files-size")
def test_a_file_and_the_temporary_folder_have_a_size(host: Host) -> None:
    assert host.run("ulimit -f; ulimit -c; ulimit -n")["stdout"].split() == [
        str((1 << 30) // 512),
        "0",
        "1024",
    ]
    if host.form == "namespaces":
        result = host.run("head -c 300M /dev/zero > /tmp/large; ls /tmp; echo x > /tmp/y")
        assert "No space left" in result["stderr"]
        assert host.run("ls /tmp")["stdout"] == ""


@pytest.mark.requirement("tools:exec:network", "tools:exec:allow-own")
@pytest.mark.parametrize("form", FORMS)
def test_with_a_network_no_unix_socket_can_be_made_and_with_a_list_no_own_program_is_run(
    tmp_path: Path, form: str
) -> None:
    for each in (tmp_path, *tmp_path.parents[:2]):
        each.chmod(0o755)
    with running_host(f"nobody-{form}", tmp_path, network=True, allow=["python3", "env"]) as host:
        script = (
            "import socket; socket.socket(socket.AF_INET); print(1); socket.socket(socket.AF_UNIX)"
        )
        result = host.run(f"/usr/bin/python3 -c '{script}'")
        assert result["stdout"] == "1\n"
        assert "PermissionError" in result["stderr"]
        assert SECRET not in host.run("env")["stdout"]
        (host.workspace / "cat").symlink_to("/usr/bin/cat")
        (host.workspace / "own").write_bytes(Path("/usr/bin/true").read_bytes())
        (host.workspace / "own").chmod(0o755)
        assert host.call("exec_shell", command="./cat own")["error"] == "permission_denied"
        assert host.run("env ./own")["exit_code"] == 126, (
            "the kernel refuses what the list can't see"
        )
