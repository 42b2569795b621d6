"""A stdio server that ends is started again."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from claw_mcp import supervisor
from tests.mcp.wrapped import SilentObserver, is_alive, messages, wrapper
from tests.waiting import eventually


@pytest.mark.requirement("wrapper:restart")
@pytest.mark.requirement("wrapper:health")
def test_a_server_that_dies_fails_its_calls_at_once_and_its_successor_serves_the_same_sessions(
    tmp_path: Path,
) -> None:
    with wrapper(tmp_path) as wrapped:
        clients = [wrapped.open() for _ in range(3)]
        clients[0].send("resources/subscribe", {"uri": "test://kept"})
        clients[0].send("logging/setLevel", {"level": "debug"})
        with ThreadPoolExecutor(3) as pool:
            hanging = [pool.submit(client.call, "hang") for client in clients[1:]]
            eventually(
                lambda: len(clients[0].seen("tools/call")) == 2, "the calls are at the server"
            )
            assert clients[0].call("die")["error"]["code"] == -32000
            assert {each.result(30)["error"]["code"] for each in hanging} == {-32000}
        started = clients[2].result("echo", again=True)
        assert started["arguments"] == {"again": True}, (
            "a call that comes while there is no server waits for one"
        )
        seen = messages(clients[1].send("seen"))[-1]["result"]["seen"]
        assert [message["method"] for message in seen] == [
            "notifications/initialized",
            "resources/subscribe",
            "logging/setLevel",
        ]
        assert wrapped.states()[:6] == ["started", "ready", "ended", "restarts", "started", "ready"]
        assert [
            line["exit_code"] for line in wrapped.lines("mcp_server") if line["state"] == "ended"
        ] == [128 + signal.SIGKILL]


@pytest.mark.requirement("wrapper:restart")
@pytest.mark.requirement("wrapper:health")
def test_a_server_that_never_comes_up_is_tried_ever_more_slowly_and_calls_say_so(
    tmp_path: Path,
) -> None:
    """Both at once: a call waits ten seconds for a server."""
    commands = ([sys.executable, "-c", "raise SystemExit(3)"], ["no-such-program-anywhere"])
    with ThreadPoolExecutor(len(commands)) as pool:
        _, missing = pool.map(lambda command: call_in_vain(tmp_path, command), commands)
    assert "can't be started" in missing[0]


def call_in_vain(home: Path, command: list[str]) -> list[str]:
    """Call a server that never comes up; return what the log has of its standard error."""
    with wrapper(home, *command, is_ready=False) as wrapped:
        assert wrapped.health() == 503
        assert httpx2.get(wrapped.url.replace("/mcp", "/healthz")).status_code == 503
        message = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {"protocolVersion": "2025-06-18"},
        }
        answer = httpx2.post(wrapped.url, json=message, timeout=60)
        assert answer.json()["error"]["code"] == -32000
        waits = [
            line["wait_ms"] for line in wrapped.lines("mcp_server") if line["state"] == "restarts"
        ]
        assert waits[:4] == [200, 400, 800, 1600]
        return [line["line"] for line in wrapped.lines("mcp_stderr")]


@pytest.mark.requirement("wrapper:restart")
@pytest.mark.parametrize(
    ("healthy_seconds", "waits"), [(3600, [20, 40, 50, 50]), (0, [20, 20, 20, 20])]
)
async def test_a_restart_waits_longer_up_to_a_limit_and_after_a_good_run_as_little_as_at_first(
    monkeypatch: pytest.MonkeyPatch, healthy_seconds: float, waits: list[int]
) -> None:
    monkeypatch.setattr(supervisor, "_HEALTHY_SECONDS", healthy_seconds)
    found: list[int] = []
    is_enough = asyncio.Event()

    def report(state: str, **members: Any) -> None:
        if state == "restarts":
            found.append(members["wait_ms"])
        if len(found) == len(waits):
            is_enough.set()

    timing = supervisor.TimeLimits(first_restart=0.02, max_restart=0.05)
    running = asyncio.ensure_future(
        supervisor.ChildSupervisor(
            ["true"], dict(os.environ), SilentObserver(), report, timing
        ).run()
    )
    async with asyncio.timeout(60):
        await is_enough.wait()
    running.cancel()
    await asyncio.wait([running])
    assert found == waits


@pytest.mark.requirement("wrapper:no-orphan")
async def test_a_supervisor_that_is_cancelled_while_it_ends_its_server_ends_it_all_the_same() -> (
    None
):
    pids: list[int] = []
    is_started = asyncio.Event()

    def report(state: str, **members: Any) -> None:
        if state == "started":
            pids.append(members["pid"])
            is_started.set()

    server = supervisor.ChildSupervisor(
        ["cat"], dict(os.environ), SilentObserver(), report, supervisor.TimeLimits()
    )
    running = asyncio.ensure_future(server.run())
    async with asyncio.timeout(60):
        await is_started.wait()
    for _ in range(2):
        running.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    await asyncio.wait([running])
    assert not is_alive(pids[0])
