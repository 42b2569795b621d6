"""`make demo` as a process: its checks pass, and it leaves nothing behind, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.docs.readme import hidden_calls, seen_answer
from tests.pods.processes import DESK, alive, children, eventually


@contextmanager
def demo(tmp_path: Path, **provider: str) -> Iterator[subprocess.Popen[str]]:
    """Yield the demo as a process whose temporary files are in a directory of the test; the model
    is scripted without a key.
    """
    env = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("OPENAI_", "ANTHROPIC_"))
    }
    env |= {"TMPDIR": str(tmp_path), "HOME": str(tmp_path), "PYTHONUNBUFFERED": "1"} | provider
    command = [sys.executable, str(DESK / "demo.py")]
    with subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
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
    raise AssertionError(f"the demo did not print {words!r}:\n{seen}")


def rest(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.read()


def assert_nothing_is_left(tmp_path: Path, pids: dict[int, str]) -> None:
    eventually(
        lambda: not [pid for pid in pids if alive(pid)],
        f"the children of the demo are gone: {pids}",
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.requirement("docs:first-screen")
@pytest.mark.requirement("pods:demo")
@pytest.mark.requirement("pods:demo-live")
def test_the_demo_shows_the_whole_job_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with demo(tmp_path) as process:
        output = read_until(process, "== Audit")
        pids = children(process.pid)
        output += rest(process)
        assert process.wait() == 0, output
    assert "FAIL" not in output
    for line in (
        "OPENAI_API_KEY is not set, so a SCRIPTED model answers",
        "claw mcp-stdio serves journal.py, a stdio MCP server, on http://127.0.0.1:",
        "mitmdump -s addons/cllama.py is ready",
        "round 1: trading-api.get_market_context {}",
        "ok    The analyst's model was never offered execute_trade.",
        "ok    The journal has one entry, and the proxy named its author: the analyst.",
        "executor (anthropic SDK): Read the journal about NVDA, then buy 10 NVDA.",
        'round 1: journal.find_entries {"word": "NVDA"}',
        "round 3: trading-api.execute_trade",
        "ok    The executor's runner received the analyst's entry in its one answer.",
        "intervention: managed_prefix_native_suffix_serialized",
        "ok    The executor's runner received write_note and ran it once.",
        "ok    The proxy ran the quote first, then handed write_note to the runner.",
        "ok    The proxy ran get_order_history for the executor.",
        "executor (responses SDK): Quote TSLA and write a note, at once.",
        "ok    Its runner received write_note, and not the quote that the proxy ran first.",
        "ok    Its responses repeat the runner's own tool, and none that the proxy added.",
        "ok    The runner had the model's first words before the tool was called.",
        "ok    It had the price after the call, in the same answer.",
        "analyst may not call: trading-api.execute_trade",
        "executor may not call: journal.add_entry",
        (
            "ok    The journal was called over MCP 2025-11-25 to desk-journal 0.1.0: analyst "
            "in session "
        ),
        "order in the database: executor, buy 10 NVDA, filled",
        "ok    The database has exactly one order: the executor bought 10 NVDA.",
        "ok    The model received no agent token and no tool token, in no byte of any request.",
        "== Every check passed",
    ):
        assert line in output, output
    for words in (seen_answer(), *hidden_calls()):
        assert words in as_running_text(output), words
    assert_nothing_is_left(tmp_path, pids)


def as_running_text(output: str) -> str:
    """Return the two columns of the demo's tables one after the other, without line breaks."""
    rows = [line.split("│") for line in output.splitlines() if line.count("│") == 3]
    columns = [" ".join(row[place] for row in rows) for place in (1, 2)]
    return " ".join(" ".join(columns).split())


NOBODY = {"OPENAI_API_KEY": "unused", "OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}
"""A provider that is never asked, where a demo ends before its first turn: no model
has to start.
"""


@pytest.mark.requirement("pods:demo-stops-clean")
@pytest.mark.parametrize(
    ("sign", "moment", "started"),
    [
        (signal.SIGINT, "mitmdump -s addons/cllama.py is ready", 3),
        (
            signal.SIGTERM,
            "trading_api.py is ready",
            1,
        ),  # early: all that a demo starts takes seconds
    ],
)
def test_a_signal_stops_every_child_and_removes_every_file(
    tmp_path: Path, sign: signal.Signals, moment: str, started: int
) -> None:
    with demo(tmp_path, **NOBODY) as process:
        read_until(process, moment)
        pids = children(process.pid)
        process.send_signal(sign)
        output = rest(process)
        assert process.wait() == 128 + sign, output
    assert len(pids) >= started
    assert f"Stopped by {sign.name}." in output
    assert_nothing_is_left(tmp_path, pids)


@pytest.mark.requirement("pods:demo-fails-clearly")
def test_a_demo_without_its_proxy_fails_and_names_the_error(tmp_path: Path) -> None:
    with demo(tmp_path, **NOBODY) as process:
        read_until(process, "mitmdump -s addons/cllama.py is ready")
        pids = children(process.pid)
        [proxy] = [pid for pid, command in pids.items() if "mitmdump" in command]
        os.kill(proxy, signal.SIGKILL)
        output = rest(process)
        assert process.wait() == 1, output
    assert "== The demo failed:" in output
    assert "APIConnectionError" in output
    assert_nothing_is_left(tmp_path, pids)
