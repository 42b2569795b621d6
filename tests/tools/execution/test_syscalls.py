"""System calls by their names, on the machines that are in the table."""

from __future__ import annotations

import errno
import os
import platform
from pathlib import Path

import pytest

from claw_tools.execution.syscalls import MACHINES, call, numbers, prctl


@pytest.mark.requirement("tools:exec:architecture")
@pytest.mark.parametrize("machine", MACHINES)
def test_each_call_of_a_machine_has_a_number_of_its_own(machine: str) -> None:
    table = numbers(machine)
    assert len(set(table.values())) == len(table) > 100
    assert (numbers("x86_64")["socket"], numbers("aarch64")["socket"]) == (41, 198)


@pytest.mark.requirement("tools:exec:architecture")
def test_a_machine_that_is_not_in_the_table_has_no_calls() -> None:
    assert numbers("riscv64") == {}
    assert "chmod" not in numbers("aarch64")


@pytest.mark.requirement("tools:exec:calls")
def test_a_call_that_fails_or_is_not_known_says_which() -> None:
    with pytest.raises(OSError, match=f"nosuchcall is not known on {platform.machine()}"):
        call("nosuchcall")
    with pytest.raises(OSError, match="close_range: ") as refused:
        call("close_range", 9, 8, 0)  # The first is above the last
    assert refused.value.errno == errno.EINVAL
    with pytest.raises(OSError, match="prctl 9999: ") as unknown:
        prctl(9_999)
    assert unknown.value.errno == errno.EINVAL


@pytest.mark.requirement("tools:exec:calls")
def test_arguments_may_be_integers_and_bytes(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("text")
    assert call("truncate", os.fsencode(file), 2) == 0
    assert file.read_text() == "te"
