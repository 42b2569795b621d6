"""Attacks from inside a command, as root's host and as nobody's, in namespaces and
by Landlock alone.
"""

from __future__ import annotations

import json
import os
import platform
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from claw_tools.execution.syscalls import numbers
from tests.tools.execution.exec_hosts import HOSTS, SECRET, Host, let_others_in, running_host

pytestmark = pytest.mark.skipif(
    not Path("/usr/bin/python3").exists(),
    reason="python3 is not installed: apt-get install python3",
)
INSIDE = Path(__file__).with_name("attacks_inside.py")
REFUSED = {"denied 1", "denied 38"}
"""The answers of the filter of system calls; the kernel itself would have found fault
with the arguments.
"""


@dataclass
class AttackedHost:
    """A host whose command has tried everything, and what came of each attempt."""

    host: Host
    found: dict[str, str]
    victim: subprocess.Popen[bytes]
    other: Path


@pytest.fixture(scope="module", params=HOSTS)
def attacked(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AttackedHost]:
    yield from _attack(request.param, tmp_path_factory.mktemp("exec"))


def _attack(kind: str, home: Path, max_abi: int = 99) -> Iterator[AttackedHost]:
    let_others_in(home)
    other = home / "other"
    other.mkdir()
    for path in (other / "secret", home / "config.yml", home / "id_rsa"):
        path.write_text(SECRET)
        path.chmod(0o666)
    with running_host(kind, home, max_abi) as host, socket.create_server(("127.0.0.1", 0)) as tcp:
        other.chmod(0o777)
        os.chown(
            other / "secret", host.user, host.user
        )  # Its own file: only containment stands between
        setuid = host.workspace / "setuid-id"
        setuid.write_bytes(Path("/usr/bin/id").read_bytes())
        setuid.chmod(0o4755)
        (host.workspace / "attacks.py").write_bytes(INSIDE.read_bytes())
        unix, abstract = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
        unix.bind(str(host.workspace / "service.sock"))
        name = f"claw-{os.getpid()}-{home.name}"
        abstract.bind(f"\0{name}")
        for each in (unix, abstract):
            each.listen()
        victim = subprocess.Popen(
            ["sleep", "100"], user=host.user, group=host.user, extra_groups=[]
        )
        given = {
            "other": str(other), "ssh": str(home / "id_rsa"), "config": str(home / "config.yml"), "host": host.process.pid,
            "victim": victim.pid, "tcp": tcp.getsockname()[1], "abstract": name,
            "numbers": numbers(platform.machine()), "machine": platform.machine(),
        }  # fmt: skip
        try:
            answer = host.call(
                "spawn", command="/usr/bin/python3", args=["attacks.py", json.dumps(given)]
            )
            assert answer["result"]["stdout"], answer
            yield AttackedHost(host, json.loads(answer["result"]["stdout"]), victim, other)
        finally:
            victim.kill()
            victim.wait()
            unix.close()
            abstract.close()


FILES = (
    *(
        "read-shadow",
        "read-passwd",
        "read-ssh",
        "read-other-workspace",
        "read-config",
        "list-other-workspace",
        "symlink-out",
    ),
    *(
        "hard-link-out",
        "rename-out",
        "truncate",
        "chmod",
        "chown",
        "utime",
        "xattr",
        "write-other-workspace",
        "write-usr",
    ),
    *("write-etc", "write-root", "write-beside", "write-by-dots", "device"),
)
WATCHES = ("watch-other-workspace", "watch-secret", "notify-of-folder", "fanotify")
PROC = (
    *(
        "environ-of-host",
        "environ-of-parent",
        "environ-of-first",
        "memory-of-first",
        "root-of-host",
        "sysctl",
        "sysrq",
    ),
    "own-score",
)
SOCKETS = (
    "tcp",
    "tcp6",
    "udp",
    "raw",
    "packet",
    "netlink",
    "vsock",
    "unix",
    "abstract",
    "unix-datagram",
)
OTHERS = (
    *(
        "kill-host",
        "kill-victim",
        "kill-by-pidfd",
        "kill-from-child",
        "queue-signal",
        "limits-of-victim",
    ),
    *("priority-of-victim", "priority-of-user", "cores-of-victim", "owner-of-signals"),
)
CALLS = (
    *(
        "unshare-user",
        "unshare-net",
        "clone-user",
        "clone3",
        "mount",
        "open-tree",
        "fsopen",
        "setns",
        "chroot",
        "pivot-root",
    ),
    *(
        "ptrace-me",
        "ptrace-victim",
        "read-memory",
        "bpf",
        "keyctl",
        "userfaultfd",
        "io-uring",
        "perf",
        "open-by-handle",
    ),
    *(
        "modules",
        "kexec",
        "memfd",
        "system-v",
        "message-queue",
        "tiocsti",
        "tiocsti-high-bits",
        "x32",
    ),
)


def breaches(attacked: AttackedHost, names: tuple[str, ...]) -> dict[str, str]:
    return {
        name: attacked.found[name]
        for name in names
        if not attacked.found[name].startswith("denied")
    }


@pytest.mark.requirement("tools:exec:form")
def test_the_form_that_is_asked_for_holds(attacked: AttackedHost) -> None:
    assert attacked.host.form in attacked.host.hello["reason"].lower()


@pytest.mark.requirement("tools:exec:files")
def test_no_file_outside_the_workspace_is_read_or_changed(attacked: AttackedHost) -> None:
    assert breaches(attacked, FILES) == {}
    assert (attacked.other / "secret").read_text() == SECRET
    assert (attacked.other / "secret").stat().st_mtime > 0
    assert sorted(each.name for each in attacked.other.iterdir()) == ["secret"]


@pytest.mark.requirement("tools:exec:watches")
def test_nobody_elses_folder_or_file_is_watched(attacked: AttackedHost) -> None:
    assert breaches(attacked, WATCHES) == {}


@pytest.mark.requirement("tools:exec:proc")
def test_no_environment_memory_or_setting_is_found_in_proc(attacked: AttackedHost) -> None:
    assert breaches(attacked, PROC) == {}


@pytest.mark.requirement("tools:exec:sockets")
def test_no_socket_leads_anywhere(attacked: AttackedHost) -> None:
    assert breaches(attacked, SOCKETS) == {}


@pytest.mark.requirement("tools:exec:signals")
def test_no_process_outside_is_signalled_or_slowed(attacked: AttackedHost) -> None:
    assert breaches(attacked, OTHERS) == {}
    assert attacked.victim.poll() is None
    assert attacked.host.process.poll() is None


@pytest.mark.requirement("tools:exec:calls")
def test_system_calls_that_loosen_the_kernel_are_refused(attacked: AttackedHost) -> None:
    assert {
        name: attacked.found[name] for name in CALLS if attacked.found[name] not in REFUSED
    } == {}


@pytest.mark.requirement("tools:exec:architecture")
def test_a_call_of_another_architecture_ends_the_process(attacked: AttackedHost) -> None:
    assert attacked.found.get("foreign-architecture", "denied").startswith("denied")


@pytest.mark.requirement("tools:exec:setuid")
def test_nobody_gains_rights(attacked: AttackedHost) -> None:
    assert breaches(attacked, ("set-user", "new-rights", "own-limits")) == {}
    assert attacked.host.run("./setuid-id -u")["stdout"].strip() == str(attacked.host.user)
    assert attacked.host.run("id -u; id -G")["stdout"].split() == [str(attacked.host.user)] * 2


@pytest.mark.requirement("tools:exec:descriptors")
def test_no_descriptor_is_inherited(attacked: AttackedHost) -> None:
    assert breaches(attacked, ("descriptors",)) == {}


@pytest.mark.requirement("tools:exec:environment")
def test_the_environment_is_made_for_the_command(attacked: AttackedHost) -> None:
    lines = attacked.host.run("env")["stdout"].splitlines()
    assert {line.partition("=")[0] for line in lines} <= {
        "PATH",
        "HOME",
        "LANG",
        "TMPDIR",
        "TERM",
        "PWD",
    }
    assert attacked.host.run("cat") | {"duration_ms": 0} == attacked.host.run("true") | {
        "duration_ms": 0
    }


@pytest.mark.requirement("tools:exec:old-landlock")
@pytest.mark.parametrize("abi", [1, 5])
def test_an_old_landlock_is_made_up_for_by_the_filter(tmp_path: Path, abi: int) -> None:
    for attacked in _attack("nobody-landlock", tmp_path, abi):
        assert breaches(attacked, (*FILES, *WATCHES, *PROC, *SOCKETS, *OTHERS)) == {}
        assert attacked.victim.poll() is None
