"""``exec_shell`` and ``spawn``: results, limits, and the end of everything that they start."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from claw_contract.json_schema import check_instance
from claw_contract.toolhost_file import ExecSection, LimitsSection, ToolsSection
from claw_tools.execution.containment import FORMS, Containment, find_containment
from claw_tools.execution.tools import ExecShell, Spawn, exec_tools
from claw_tools.result import fit
from claw_tools.tool import Tool
from tests.not_tested import skip_for_kernel
from tests.tools.execution.exec_hosts import (
    HOSTS,
    OWNER,
    SECRET,
    Host,
    let_others_in,
    processes_with,
    running_host,
)
from tests.waiting import eventually, eventually_async

MAX_RESULT = LimitsSection().result_bytes


def both_tools(root: Path, section: ExecSection, held: Containment) -> tuple[Tool, Tool]:
    """Return ``exec_shell`` and ``spawn``."""
    tools = ToolsSection(exec=section)
    return ExecShell(root, section, held, MAX_RESULT), Spawn(root, tools, held, MAX_RESULT)


SURVIVORS = (
    "sleep {0} &",
    "(sleep {0} &)",
    "setsid sleep {0} &",
    "nohup sleep {0} >/dev/null 2>&1 &",
    "setsid setsid sh -c 'sleep {0}' >/dev/null 2>&1 &",
    "sh -c \"trap '' TERM HUP INT QUIT; sleep {0}\" &",
    "setsid nohup sh -c \"trap '' TERM HUP; sleep {0} & sleep {0}\" &",
    "sh -c 'kill -STOP $$; sleep {0}' &",
    "sh -c 'sleep {0} & exec sleep {0}' <&- >&- 2>&- &",
    "( ( setsid sh -c 'exec sleep {0}' & ) & )",
    "timeout 500 sleep {0} &",
    "sh -c 'while true; do setsid sleep {0} & sleep 1; done' &",
)
"""Twelve ways to outlive a command."""


@pytest.fixture(scope="module", params=HOSTS)
def host(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Host]:
    home = tmp_path_factory.mktemp("commands")
    let_others_in(home)
    with running_host(request.param, home) as running:
        yield running


def surviving(marker: str, end: str) -> str:
    return "\n".join([*(way.format(marker) for way in SURVIVORS), end])


def new_marker() -> str:
    return f"7{time.time_ns() % 10**9}"


def gone(marker: str) -> None:
    eventually(lambda: not processes_with(marker), f"the end of what names {marker}")


@pytest.mark.requirement("tools:exec:result")
def test_a_result_tells_the_code_the_signal_and_both_streams(host: Host) -> None:
    result = host.run("echo out; echo err >&2; exit 7")
    assert (result["exit_code"], result["stdout"], result["stderr"], result["truncated"]) == (
        7,
        "out\n",
        "err\n",
        False,
    )
    result = host.run("kill -SEGV $$")
    assert (result["exit_code"], result["signal"]) == (139, "SIGSEGV")
    assert host.run("echo x > new && cat new && rm new")["stdout"] == "x\n"


@pytest.mark.requirement("tools:exec:output")
@pytest.mark.parametrize("command", ["yes", "head -c 1G /dev/zero", "head -c 1G /dev/zero >&2"])
def test_output_is_bounded_while_it_is_made(host: Host, command: str) -> None:
    result = host.run(command)
    assert result["truncated"]
    assert result["ended_for"] == "it printed more than 16 MiB"
    assert result["stdout_bytes"] + result["stderr_bytes"] < 64 << 20
    assert len(result["stdout"]) + len(result["stderr"]) < 66 << 10


@pytest.mark.requirement("tools:exec:output")
def test_the_beginning_and_the_end_of_long_output_are_kept(host: Host) -> None:
    result = host.run(
        "echo first; head -c 200000 /dev/zero | tr '\\0' x; echo; echo last; head -c "
        "200000 /dev/zero >&2"
    )
    assert result["stdout"].startswith("first\n")
    assert result["stdout"].endswith("\nlast\n")
    assert result["stdout_bytes"] == 200_012
    assert result["stderr_bytes"] == 200_000
    assert not fit(result, 64 << 10).is_truncated, "the end of the output is cut from no result"


@pytest.mark.requirement("tools:exec:survivors")
def test_nothing_outlives_a_command_that_ends(host: Host) -> None:
    marker = new_marker()
    assert host.run(surviving(marker, "exit 3"))["exit_code"] == 3
    assert processes_with(marker) == []
    launcher = host.hello["launcher"]
    eventually(
        lambda: not Path(f"/proc/{launcher}/task/{launcher}/children").read_text(),
        "no zombie is left",
    )


@pytest.mark.requirement("tools:exec:timeout")
def test_nothing_outlives_a_command_whose_time_is_over(host: Host) -> None:
    marker = new_marker()
    answer = host.call(
        "exec_shell", command=surviving(marker, f"trap '' TERM; sleep {marker}"), timeout=1
    )
    assert answer["error"] == "timeout"
    assert processes_with(marker) == []


@pytest.mark.requirement("tools:exec:cancellation")
def test_nothing_outlives_a_call_that_is_cancelled(host: Host) -> None:
    marker = new_marker()
    call = host.start("exec_shell", command=surviving(marker, f"sleep {marker}"))
    eventually(lambda: len(processes_with(marker)) > 8, "the command")
    host.cancel(call)
    assert host.finish(call)["error"] == "cancelled"
    assert processes_with(marker) == []


@pytest.mark.requirement("tools:exec:cancellation")
async def test_a_call_that_is_cancelled_at_any_step_leaves_no_descriptor(tmp_path: Path) -> None:
    let_others_in(tmp_path)
    if os.geteuid() == 0:
        os.chown(tmp_path, OWNER, OWNER)

    def count() -> int:
        return sum(1 for _ in Path("/proc/self/fd").iterdir())

    with find_containment(ExecSection()) as held:
        if held.form is None:
            skip_for_kernel("commands", held.reason)
        tool = ExecShell(tmp_path, ExecSection(), held, MAX_RESULT)
        await tool.execute({"command": "true"})
        before = count()
        for steps in range(8):
            call = asyncio.create_task(tool.execute({"command": "true"}))
            for _ in range(steps):
                await asyncio.sleep(0)
            call.cancel()
            await asyncio.wait([call])
        await eventually_async(lambda: count() == before, "all descriptors are closed")


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


@contextmanager
def a_host(kind: str, home: Path) -> Iterator[Host]:
    let_others_in(home)
    with running_host(kind, home) as running:
        yield running


@pytest.mark.requirement("tools:exec:bombs")
@pytest.mark.parametrize("kind", ["nobody-namespaces", "nobody-landlock"])
def test_a_bomb_of_processes_leaves_the_host_responsive(tmp_path: Path, kind: str) -> None:
    with a_host(kind, tmp_path) as host:
        marker = new_marker()
        bomb = "import os, time\nwhile True:\n try: os.fork()\n except OSError: time.sleep(0.2)"
        call = host.start("spawn", command="/usr/bin/python3", args=["-c", bomb, marker], timeout=5)
        eventually(lambda: len(processes_with(marker)) > 50, "the bomb")
        assert (
            len(processes_with(marker)) < 300
        )  # The user's own, beside 256, by a count that is made before
        assert host.call("spawn", command="true")["result"]["exit_code"] == 0
        assert host.finish(call)["error"] == "timeout"
        assert processes_with(marker) == []
        assert host.run("echo well")["stdout"] == "well\n"


@pytest.mark.requirement("tools:exec:bombs")
@pytest.mark.parametrize("kind", ["nobody-namespaces", "nobody-landlock"])
def test_memory_is_limited_for_a_process_and_for_all_of_a_call(tmp_path: Path, kind: str) -> None:
    with a_host(kind, tmp_path) as host:
        assert "MemoryError" in host.run("/usr/bin/python3 -c 'bytearray(2 << 30)'")["stderr"]
        shared = (
            "import mmap, time; m = mmap.mmap(-1, 700 << 20); [m.write(b'x' * (1 << 20)) for "
            "_ in range(700)]; time.sleep(60)"
        )
        result = host.run(
            f'for i in 1 2; do /usr/bin/python3 -c "{shared}" & done; wait', timeout=60
        )
        assert result["ended_for"] == "it took too much memory"


@pytest.mark.requirement("tools:exec:kill-9")
@pytest.mark.parametrize("kind", HOSTS)
@pytest.mark.parametrize("whom", ["host", "launcher"])
def test_nothing_outlives_a_host_or_a_launcher_that_is_killed(
    tmp_path: Path, kind: str, whom: str
) -> None:
    marker = new_marker()
    with a_host(kind, tmp_path) as host:
        call = host.start("exec_shell", command=surviving(marker, f"sleep {marker}"))
        eventually(lambda: len(processes_with(marker)) > 8, "the command")
        os.kill(host.process.pid if whom == "host" else host.hello["launcher"], signal.SIGKILL)
        gone(marker)
        if whom == "launcher":
            assert host.finish(call)["result"]["signal"] == "SIGKILL"
            assert host.run("echo again")["stdout"] == "again\n"


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
