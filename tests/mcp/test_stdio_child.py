"""``claw mcp-stdio`` around a server that fails or is hostile: restarts, limits, and what is left
when something ends.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from claw_mcp import asgi, stdio_child, supervisor
from claw_mcp.protocol import RpcError, RpcMessage
from claw_mcp.wrapper import Wrapper, read_settings
from tests.mcp.wrapped import CHILD, RunningWrapper, is_alive, messages, wrapper
from tests.waiting import eventually

RUN = [sys.executable, str(CHILD)]


def memory_of(pid: int) -> int:
    """The most memory that a process ever had, in MiB."""
    status = Path(f"/proc/{pid}/status").read_text("utf-8")
    return (
        int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))
        // 1024
    )


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


@pytest.mark.requirement("wrapper:asks")
def test_what_the_server_asks_under_the_id_of_a_call_is_no_answer_to_it(tmp_path: Path) -> None:
    with wrapper(tmp_path) as wrapped:
        ping, roots, sampling = wrapped.open().result("ask")["answers"]
        assert (ping["result"], roots["result"], sampling["error"]["code"]) == (
            {},
            {"roots": []},
            -32601,
        )
        assert ping["id"] == roots["id"] == sampling["id"]


@pytest.mark.requirement("wrapper:bad-output")
@pytest.mark.requirement("wrapper:log")
def test_bad_output_is_logged_and_skipped(tmp_path: Path) -> None:
    with wrapper(tmp_path) as wrapped:
        assert wrapped.open().result("garbage", a=1) == {"arguments": {"a": 1}}
        shown = {line["line"]: line["reason"] for line in wrapped.lines("mcp_bad_output")}
        assert shown["not json"] == "this is no JSON-RPC message"
        assert (
            shown['{"jsonrpc":"2.0","id":987654,"result":{}}'] == "an answer that nobody waits for"
        )
        assert len(shown) == 5


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
@pytest.mark.parametrize(
    "command", [[sys.executable, "-c", "raise SystemExit(3)"], ["no-such-program-anywhere"]]
)
def test_a_server_that_never_comes_up_is_tried_ever_more_slowly_and_calls_say_so(
    tmp_path: Path, command: list[str]
) -> None:
    with wrapper(tmp_path, *command, is_ready=False) as wrapped:
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
        if command[0] == "no-such-program-anywhere":
            assert "can't be started" in wrapped.lines("mcp_stderr")[0]["line"]


class Silent:
    """An observer that hears nothing."""

    def notice(self, message: RpcMessage) -> None: ...
    def log_line(self, line: bytes) -> None: ...
    def bad_output(self, problem: str, line: bytes) -> None: ...


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
        supervisor.ChildSupervisor(["true"], dict(os.environ), Silent(), report, timing).run()
    )
    async with asyncio.timeout(60):
        await is_enough.wait()
    running.cancel()
    await asyncio.wait([running])
    assert found == waits


@pytest.mark.requirement("wrapper:unread-input")
async def test_too_many_calls_that_wait_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert stdio_child._MAX_CALLS == 1024
    monkeypatch.setattr(stdio_child, "_MAX_CALLS", 1)
    child = await stdio_child.StdioChild.start(RUN, dict(os.environ), Silent())
    waiting = asyncio.ensure_future(child.call("tools/call", {"name": "hang"}, 60))
    await asyncio.sleep(0)
    with pytest.raises(RpcError, match="too many calls wait"):
        await child.call("seen", {}, 60)
    await child.stop()
    with pytest.raises(RpcError, match="ended before it answered"):
        await waiting


@pytest.mark.requirement("wrapper:http")
async def test_a_body_that_does_not_arrive_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asgi._BODY_SECONDS == 30
    monkeypatch.setattr(asgi, "_BODY_SECONDS", 0.01)
    sent: list[dict[str, Any]] = []

    async def never() -> dict[str, Any]:
        return await asyncio.get_running_loop().create_future()

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    app = Wrapper(read_settings({}, ["true"])).app
    await app(
        {"type": "http", "method": "POST", "path": "/mcp", "headers": [(b"host", b"localhost")]},
        never,
        send,
    )
    assert sent[0]["status"] == 408


@pytest.mark.requirement("wrapper:long-line")
def test_a_line_of_a_hundred_megabytes_ends_the_run_in_bounded_memory(tmp_path: Path) -> None:
    with wrapper(tmp_path) as wrapped:
        client = wrapped.open()
        assert client.call("large", mebibytes=100)["error"]["code"] == -32000
        assert client.result("echo", a=1)["arguments"] == {"a": 1}
        assert [line["reason"] for line in wrapped.lines("mcp_bad_output")] == [
            "a line is longer than 8388608 bytes"
        ]
        assert memory_of(wrapped.process.pid) < 200


@pytest.mark.requirement("wrapper:unread-input")
def test_a_server_that_reads_nothing_costs_bounded_memory_and_its_calls_end(tmp_path: Path) -> None:
    with wrapper(tmp_path, *RUN, "deaf", CLAW_MCP_STDIO_REQUEST_TIMEOUT_MS="1000") as wrapped:
        client = wrapped.open()
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: client.call("echo", text="x" * 3_000_000), range(16)))
        errors = {answer["error"]["message"] for answer in answers}
        assert errors == {
            "the server does not read its input",
            "the server did not answer within 1 s",
        }
        assert memory_of(wrapped.process.pid) < 300


@pytest.mark.requirement("wrapper:cancel")
def test_a_call_that_times_out_is_cancelled_at_the_server_and_its_late_answer_is_dropped(
    tmp_path: Path,
) -> None:
    with wrapper(tmp_path, CLAW_MCP_STDIO_REQUEST_TIMEOUT_MS="300") as wrapped:
        client = wrapped.open()
        assert "did not answer" in client.call("slow", seconds=1)["error"]["message"]
        eventually(lambda: "result" in client.call("echo"), "the server answers again")
        heard = eventually(
            lambda: messages(client.send("seen"))[-1].get("result"), "it answers in its time"
        )
        assert any(
            each["params"].get("reason") == "timed out"
            for each in heard["seen"]
            if "params" in each
        )
        assert wrapped.lines("mcp_bad_output") == []


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
    for number in range(12):
        with wrapper(tmp_path, is_ready=number % 2 == 0) as wrapped:
            below = [
                each
                for child in children_of(wrapped.process.pid)
                for each in (child, *children_of(child))
            ]
            time.sleep(0.01 * number)  # the moment is what varies
            assert wrapped.end(signal.SIGKILL) == -signal.SIGKILL
            eventually(lambda: not any(map(is_alive, below)), "all of them have ended")  # noqa: B023 - called at once


def answer_of(wrapped: RunningWrapper, **headers: str) -> int:
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-06-18"},
    }
    return httpx2.post(wrapped.url, json=message, headers=headers).status_code


@pytest.mark.requirement("wrapper:token")
def test_the_originals_token_is_asked_for_and_is_not_in_the_servers_environment(
    tmp_path: Path,
) -> None:
    with wrapper(tmp_path, CLAW_MCP_STDIO_AUTH_TOKEN="right") as wrapped:
        statuses = [answer_of(wrapped), answer_of(wrapped, authorization="Bearer wrong")]
        assert (statuses, answer_of(wrapped, authorization="Bearer right")) == ([401, 401], 200)
        assert (
            wrapped.health()
            == httpx2.get(wrapped.url.replace("/mcp", "/healthz")).status_code
            == 200
        )


@pytest.mark.requirement("mcp:odd-answers")
def test_an_answer_with_half_of_a_surrogate_pair_is_an_answer(tmp_path: Path) -> None:
    with wrapper(tmp_path) as wrapped:
        assert wrapped.open().result("half") == {
            "content": [{"type": "text", "text": "cut \ufffd"}]
        }
