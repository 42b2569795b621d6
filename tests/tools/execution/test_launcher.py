"""Nothing outlives a command, a call, a host or a launcher, however it ends."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.tools.execution.exec_hosts import HOSTS, Host, a_host, gone, new_marker, processes_with
from tests.waiting import eventually

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


def surviving(marker: str, end: str) -> str:
    return "\n".join([*(way.format(marker) for way in SURVIVORS), end])


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
