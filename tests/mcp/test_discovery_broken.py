"""``claw discover`` at servers that break: one error each, nothing written, and no
process left behind.
"""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from claw_mcp import client_protocol, discovery
from tests.mcp.discovering import DiscoveryPod, tool
from tests.waiting import eventually, growing_times

CLAW = [sys.executable, "-c", "from claw_cli.app import main; main()"]


def is_alive(pid: int) -> bool:
    """Return True if there is such a process; a zombie does not count."""
    try:
        return (
            Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
            != "Z"
        )
    except (FileNotFoundError, ProcessLookupError):
        return False


def pid_of(file: str) -> int:
    return eventually(
        lambda: int(text) if (path := Path(file)).exists() and (text := path.read_text()) else None,
        file,
    )


FAULTS: dict[str, str] = {
    "exit": "it ended with exit code 3 before it had answered: run it by itself to see why",
    "half": "it ended with exit code 0 before it had answered: run it by itself to see why; what "
    "it wrote to standard"
    ' output was skipped: this is no JSON-RPC message: \'{"jsonrpc": "2.0", "id": 1, "res\'',
    "huge": (
        "its answer can't be read; what it wrote to standard output was skipped: a line is "
        "longer than 8388608 bytes"
    ),
    "endless": "its list of tools has more than 100 pages: a fault of the server",
    "repeats": "page 2 of its tools leads back to an earlier one: a fault of the server",
    "no-list": "its answer to 'tools/list' has no list of tools: a fault of the server",
    "bad-cursor": "the cursor of its tools is no text, or too long: a fault of the server",
    "refuses": "it refused 'initialize': 'no licence'",
    "refuses-list": "it refused 'tools/list': 'no licence'",
}


@pytest.mark.requirement("discovery:broken-servers", "discovery:no-orphan", "discovery:pages")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_server_is_one_error(web: DiscoveryPod, fault: str) -> None:
    Path("server.pid").touch()
    web.serves([tool("a")], [tool("b")], fault=fault, pid="server.pid")
    first, *rest = web.refuses().splitlines()
    assert first == f"error: web: {FAULTS[fault]}"
    assert rest == (["  | no configuration"] if fault == "exit" else [])
    assert not is_alive(pid_of("server.pid"))


@pytest.mark.requirement("discovery:time", "discovery:broken-servers", "discovery:no-orphan")
@pytest.mark.parametrize(
    ("fault", "step"),
    [
        ("silent", "to answer 'initialize'"),
        ("deaf", "to answer 'initialize'"),
        ("garbage", "to answer 'initialize'"),
        ("silent-list", "to list its tools"),
    ],
)
def test_a_server_that_does_not_answer_is_ended_after_its_time(
    web: DiscoveryPod, fault: str, step: str
) -> None:
    for seconds in growing_times(1.5):
        Path("server.pid").write_text("", encoding="utf-8")
        web.serves([tool("a")], fault=fault, pid="server.pid")
        words = web.refuses("--timeout", f"{seconds:g}")
        has_begun = bool(Path("server.pid").read_text(encoding="utf-8"))
        if has_begun and step in words and (fault != "garbage" or "hello" in words):
            break
    wait = f"error: web: it took longer than {seconds:g} s {step}: "
    wait += "give it more time with --timeout, or see why it does not answer"
    assert words.startswith(wait)
    noise = (
        "; what it wrote to standard output was skipped: this is no JSON-RPC message: 'hello hello "
    )
    assert words.removeprefix(wait).startswith(noise if fault == "garbage" else "\n")
    assert not is_alive(pid_of("server.pid"))


@pytest.mark.requirement("discovery:broken-servers")
def test_a_list_that_no_compile_would_read_is_refused(web: DiscoveryPod) -> None:
    Path("padding").write_text("x" * 60_000, encoding="utf-8")
    web.serves([tool(f"t{number}", "<PAD>") for number in range(80)], echoes=["PAD"])
    words = web.refuses(PAD="x" * 60_000)
    assert words.startswith("error: the snapshot of web has ")
    assert words.endswith(" bytes, and a compile reads 4194304: offer fewer tools\n")


@pytest.mark.requirement("discovery:time", "discovery:pages")
def test_the_limits_of_a_discovery() -> None:
    assert discovery.SECONDS == 30
    assert (client_protocol.MAX_PAGES, client_protocol.MAX_TOOLS) == (100, 1000)
    assert client_protocol.MAX_LIST_BYTES == 8 * 1024 * 1024


@pytest.mark.requirement("discovery:no-orphan")
@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, None), (signal.SIGKILL, -9)],
    ids=["term", "hangup", "interrupt", "kill"],
)
def test_a_signal_ends_the_server_and_its_own_children(
    web: DiscoveryPod, number: signal.Signals, code: int | None
) -> None:
    web.serves(fault="silent", child="child.pid", pid="server.pid")
    environ: dict[str, Any] = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(
        [*CLAW, "discover", "web"], env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        pids = [pid_of("child.pid"), pid_of("server.pid")]
        assert all(is_alive(pid) for pid in pids)
        running.send_signal(number)
        output = running.communicate(timeout=60)
    eventually(
        lambda: not any(is_alive(pid) for pid in pids), "the end of the server and its child"
    )
    assert running.returncode == code or (code is None and running.returncode != 0)
    assert b"Traceback" not in output[1]
    assert not web.file.parent.exists()


@pytest.mark.requirement("discovery:no-orphan")
def test_children_of_a_server_that_ended_by_itself_are_ended_too(web: DiscoveryPod) -> None:
    web.serves([tool("a")], child="child.pid")
    web.discovers()
    assert not is_alive(pid_of("child.pid"))


@pytest.mark.requirement("discovery:progress")
def test_a_terminal_shows_what_is_waited_for(web: DiscoveryPod) -> None:
    web.serves([tool("a")], [tool("b")])
    ours, theirs = pty.openpty()
    environ: dict[str, Any] = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "TERM": "xterm",
    }
    with subprocess.Popen(
        [*CLAW, "discover", "web"], env=environ, stdout=subprocess.PIPE, stderr=theirs
    ) as running:
        os.close(theirs)
        shown = b""
        while chunk := _read(ours):
            shown += chunk
        printed = running.communicate(timeout=60)[0]
    os.close(ours)
    assert running.returncode == 0
    assert b"waiting for web to" in shown
    assert printed.startswith(b"web: 2 tools of listed 1.0\n")
    assert b"\x1b" not in printed


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # the other side is closed
        return b""
