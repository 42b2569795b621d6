"""The processes of a call: how many, and how much memory they take."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools.execution.exec_hosts import a_host, new_marker, processes_with
from tests.waiting import eventually


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
