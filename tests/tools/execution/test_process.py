"""One command: what it printed, bounded, and how it ended."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from claw_contract.toolhost_file import ExecSection, LimitsSection
from claw_tools.execution.containment import find_containment
from claw_tools.execution.tools import ExecShell
from claw_tools.result import fit
from tests.not_tested import skip_for_kernel
from tests.tools.execution.exec_hosts import OWNER, Host, let_others_in
from tests.waiting import eventually_async

MAX_RESULT = LimitsSection().result_bytes


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
