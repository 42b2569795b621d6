"""`make demo`, whole: it proves what it says, and leaves nothing behind, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.pods.processes import DESK, alive, children, eventually


@contextmanager
def demo(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """The demo as a process whose temporary files go to a directory of the test's."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(("OPENAI_", "ANTHROPIC_"))}
    env |= {"TMPDIR": str(tmp_path), "HOME": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, str(DESK / "demo.py")]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def read_until(process: subprocess.Popen[str], words: str) -> str:
    assert process.stdout is not None
    seen = ""
    for line in process.stdout:
        seen += line
        if words in line:
            return seen
    raise AssertionError(f"the demo never printed {words!r}:\n{seen}")


def rest(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.read()


def assert_nothing_is_left(tmp_path: Path, pids: dict[int, str]) -> None:
    eventually(lambda: not [pid for pid in pids if alive(pid)], f"the children of the demo are gone: {pids}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.requirement("pods:demo")
def test_the_demo_shows_the_whole_job_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with demo(tmp_path) as process:
        output = read_until(process, "== the database")
        pids = children(process.pid)
        output += rest(process)
        assert process.wait() == 0, output
    assert "FAIL" not in output
    for line in (
        "no OPENAI_API_KEY: using the SCRIPTED model of pods/trading-desk",
        "mitmdump -s addons/cllama.py is ready",
        "round 1: trading-api.get_market_context {}",
        "ok   the analyst's model was never offered execute_trade",
        "executor (anthropic SDK) ← Buy 10 NVDA.",
        "round 2: trading-api.execute_trade",
        "intervention: managed_prefix_native_suffix_serialized",
        "ok   write_note went to the runner, which ran it once",
        "trading-api.get_order_history",
        "order of executor: buy 10 NVDA, filled",
        "ok   SQLite shows exactly one trade",
        "ok   no agent token and no tool token in any byte that the model received",
        "== everything came true",
    ):
        assert line in output, output
    assert_nothing_is_left(tmp_path, pids)


@pytest.mark.requirement("pods:demo-stops-clean")
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_every_child_and_removes_every_file(tmp_path: Path, sign: signal.Signals) -> None:
    with demo(tmp_path) as process:
        read_until(process, "mitmdump -s addons/cllama.py is ready")
        pids = children(process.pid)
        process.send_signal(sign)
        output = rest(process)
        assert process.wait() == 128 + sign, output
    assert len(pids) >= 3
    assert f"stopped by {sign.name}" in output
    assert_nothing_is_left(tmp_path, pids)


@pytest.mark.requirement("pods:demo-fails-clearly")
def test_a_demo_without_its_proxy_fails_and_says_so(tmp_path: Path) -> None:
    with demo(tmp_path) as process:
        read_until(process, "mitmdump -s addons/cllama.py is ready")
        pids = children(process.pid)
        [proxy] = [pid for pid, command in pids.items() if "mitmdump" in command]
        os.kill(proxy, signal.SIGKILL)
        output = rest(process)
        assert process.wait() == 1, output
    assert "== the demo failed" in output
    assert "APIConnectionError" in output
    assert_nothing_is_left(tmp_path, pids)
