"""Links to servers that are commands: honest, crashing and hostile ones."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from claw_contract.secret import Secret
from claw_tools.errors import ErrorCode
from tests.tools.serving import CHILD, behind, child, command, text_of
from tests.waiting import eventually_async

SECRET = "planted-credential-of-the-host"


def is_alive(pid: int) -> bool:
    with suppress(FileNotFoundError, ProcessLookupError):
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    return False


def environment_of(pid: int) -> dict[str, str]:
    pairs = Path(f"/proc/{pid}/environ").read_bytes().decode().rstrip("\0").split("\0")
    return dict(pair.split("=", 1) for pair in pairs)


@pytest.mark.requirement("servers:restart")
async def test_a_killed_server_fails_its_calls_at_once_and_is_there_again() -> None:
    async with behind(child(timeout_s=600)) as server:
        calls = [asyncio.create_task(server.fails("hang")) for _ in range(3)]
        await asyncio.sleep(0)
        await server.call("echo")  # The three are before it in the pipe
        assert not any(call.done() for call in calls)
        pid = server.pid
        os.kill(server.child_pid, signal.SIGKILL)
        errors = await asyncio.gather(*calls)
        assert {(error.code, "may have taken effect" in error.message) for error in errors} == {
            (ErrorCode.EXECUTION_FAILED, True)
        }
        assert await server.names() >= {"echo", "hang"}, "its tools stay while it is started again"
        assert await server.call("echo") == {"output": ""}
        assert server.pid != pid
        await server.is_ready(2)
        assert server.changes == ["child"], "the same tools are no change"
        assert server.of("ended")[0]["exit_code"] == 137


@pytest.mark.requirement("servers:down-at-start")
@pytest.mark.parametrize("program", ["/nothing/here", "false", "a\0b"])
async def test_a_command_that_never_runs_has_no_tools_and_is_tried_again(program: str) -> None:
    async with behind(command("broken", program), ready=False) as server:
        await eventually_async(lambda: len(server.of("restarts")) >= 2, "it is tried again")
        assert (server.server.state, await server.names(), server.changes) == ("down", set(), [])


@pytest.mark.requirement("servers:down-at-start")
async def test_a_command_that_is_there_later_has_its_tools_then(tmp_path: Path) -> None:
    program = tmp_path / "server"
    async with behind(command("later", str(program)), ready=False) as server:
        await eventually_async(lambda: server.of("restarts"), "it is tried again")
        error = await server.fails("echo")
        assert (error.code, "was not sent" in error.message) == (ErrorCode.EXECUTION_FAILED, True)
        (tmp_path / "new").write_text(f"#!/bin/sh\nexec python3 -S {CHILD}\n")
        (tmp_path / "new").chmod(0o755)
        (tmp_path / "new").rename(program)
        await server.is_ready()
        assert (server.changes, "echo" in await server.names()) == (["later"], True)


@pytest.mark.requirement("servers:environment")
async def test_a_child_gets_a_minimal_environment_and_what_is_declared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("LANG", "C.UTF-8")
    async with behind(child(env={"DECLARED": Secret("short"), "TMPDIR": Secret("/tmp")})) as server:
        environ = environment_of(server.child_pid)
    assert environ.keys() - {
        "HOME",
        "LANG",
        "LOGNAME",
        "PATH",
        "SHELL",
        "TERM",
        "USER",
        "TMPDIR",
    } == {"DECLARED"}
    assert (environ["DECLARED"], environ["LANG"]) == ("short", "C.UTF-8")


@pytest.mark.requirement("servers:stderr", "servers:secrets")
async def test_stderr_is_in_the_log_bounded_and_without_secrets() -> None:
    async with behind(child(env={"TOKEN": Secret(SECRET)})) as server:
        await server.call("flood", lines=5_000, text=f"using {SECRET}")
        await eventually_async(lambda: server.of("lines_dropped"), "what was dropped is told")
        assert sum(len(server.of(state)) for state in ("stderr",)) < 1_000
        assert server.of("stderr")[0]["line"] == "using •••••• 0"
        await server.call("flood", lines=1, text="x" * 100_000)
        assert SECRET not in str(server.reports)
        assert max(len(str(report)) for report in server.reports) < 9_000


@pytest.mark.requirement("servers:huge-line")
async def test_a_line_without_end_ends_that_run_only() -> None:
    async with behind(child(timeout_s=600)) as server, behind(child(name="other")) as other:
        waiting = asyncio.create_task(server.fails("hang"))
        await server.call("echo")
        error = await server.fails("large", mebibytes=50)
        assert (error.code, "may have taken effect" in error.message) == (
            ErrorCode.EXECUTION_FAILED,
            True,
        )
        assert "may have taken effect" in (await waiting).message
        await server.is_ready(2)
        await server.call("echo")
        assert "longer than" in server.of("bad_output")[0]["reason"]
        assert (len(other.of("started")), other.of("ended")) == (1, [])


@pytest.mark.requirement("servers:child-asks")
async def test_a_request_of_the_child_is_answered_and_is_no_answer() -> None:
    async with behind(child()) as server:
        ping, roots, sampling = (await server.raw("ask"))["answers"]
        assert (ping["result"], roots["result"], sampling["error"]["code"]) == (
            {},
            {"roots": []},
            -32601,
        )


@pytest.mark.requirement("servers:child-asks")
async def test_lines_that_are_no_messages_are_skipped() -> None:
    async with behind(child()) as server:
        await server.call("garbage")
        assert {report["reason"] for report in server.of("bad_output")} >= {
            "this is no JSON-RPC message"
        }
        assert server.of("ended") == []


@pytest.mark.requirement("servers:concurrent")
async def test_calls_run_at_once_over_one_session() -> None:
    async with behind(child()) as server:
        waiting = asyncio.create_task(server.call("hang"))
        said = await asyncio.gather(*(server.call("line", number=number) for number in range(50)))
        assert [json.loads(text_of(each))["params"]["arguments"]["number"] for each in said] == [
            *range(50)
        ]
        assert not waiting.done()
        waiting.cancel()


@pytest.mark.requirement("servers:no-orphan")
@pytest.mark.parametrize("mode", ["", "stubborn"])
async def test_nothing_of_a_server_outlives_the_host(mode: str) -> None:
    async with behind(child(mode)) as server:
        result = await server.raw("fork")
        pids = [result["pid"], *result["children"]]
        assert all(is_alive(pid) for pid in pids)
    await eventually_async(lambda: not any(is_alive(pid) for pid in pids), "nothing is left")


@pytest.mark.requirement("servers:no-orphan")
async def test_a_server_that_killed_its_reaper_ends_with_the_host_too() -> None:
    async with behind(child("stubborn")) as server:
        pid = server.child_pid
        os.kill(server.pid, signal.SIGKILL)
        await server.call("echo")
    await eventually_async(lambda: not is_alive(pid), "nothing is left")
