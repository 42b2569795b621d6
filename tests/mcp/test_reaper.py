"""No process of a server outlives the server or the wrapper."""

from __future__ import annotations

import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.mcp.wrapped import CHILD, is_alive, wrapper
from tests.waiting import eventually

RUN = [sys.executable, str(CHILD)]


def children_of(pid: int) -> list[int]:
    """The processes whose parent this one is, zombies included."""
    stats = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            stats[int(file.parent.name)] = int(
                file.read_text("utf-8").rpartition(")")[2].split()[1]
            )
        except OSError:
            continue
    return [each for each, parent in stats.items() if parent == pid]


@pytest.mark.requirement("wrapper:no-orphan")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("mode", ["", "stubborn"])
def test_no_process_of_the_server_outlives_the_wrapper(
    tmp_path: Path, number: int, mode: str
) -> None:
    with wrapper(tmp_path, *RUN, mode) as wrapped:
        client = wrapped.open()
        forked = client.result("fork")
        server = [forked["pid"], *forked["children"], *children_of(wrapped.process.pid)]
        assert len(server) == 4
        assert all(map(is_alive, server))
        with client.listening():
            code = wrapped.end(number)
        assert code == (-number if number == signal.SIGKILL else 0)
        eventually(
            lambda: not any(map(is_alive, server)), "all of them have ended, and are no zombies"
        )


@pytest.mark.requirement("wrapper:no-orphan")
def test_what_a_server_left_behind_ends_with_it_and_there_is_no_zombie(tmp_path: Path) -> None:
    with wrapper(tmp_path) as wrapped:
        client = wrapped.open()
        forked = client.result("fork")
        os.kill(forked["pid"], signal.SIGKILL)
        eventually(
            lambda: not any(map(is_alive, [forked["pid"], *forked["children"]])),
            "its processes have ended",
        )
        eventually(lambda: wrapped.states().count("ready") == 2, "there is another server")
        (reaper,) = children_of(wrapped.process.pid)
        (server,) = children_of(reaper)
        assert client.result("fork")["pid"] == server


@pytest.mark.requirement("wrapper:no-orphan")
@pytest.mark.long
def test_kills_at_any_moment_leave_nothing(tmp_path: Path) -> None:
    homes = [tmp_path / f"{number}" for number in range(12)]
    with ThreadPoolExecutor(len(homes)) as pool:  # each end waits for seconds, and does nothing
        for each in [pool.submit(kill_at, number, home) for number, home in enumerate(homes)]:
            each.result()


def kill_at(number: int, home: Path) -> None:
    """Kill a wrapper after some time: every other one when it is ready; no process stays."""
    home.mkdir()
    with wrapper(home, is_ready=number % 2 == 0) as wrapped:
        below = [
            each
            for child in children_of(wrapped.process.pid)
            for each in (child, *children_of(child))
        ]
        time.sleep(0.01 * number)  # the moment is what varies
        assert wrapped.end(signal.SIGKILL) == -signal.SIGKILL
        eventually(lambda: not any(map(is_alive, below)), "all of them have ended")
