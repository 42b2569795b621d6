"""A server behind the host: its list, its calls, and what it says."""

from __future__ import annotations

import asyncio

import pytest

from claw_contract.secret import Secret
from claw_tools.errors import ErrorCode
from claw_tools.servers.server import pause_after
from tests.tools.serving import behind, child, text_of
from tests.waiting import eventually_async

SECRET = "planted-credential-of-the-host"


@pytest.mark.requirement("servers:isolation")
async def test_a_server_that_crashes_in_a_loop_disturbs_no_other() -> None:
    async with behind(child(name="sound")) as sound, behind(child(name="crashing")) as crashing:
        pid = sound.pid
        for _ in range(3):
            await crashing.is_ready(len(crashing.of("started")))
            lost, heard = await asyncio.gather(
                crashing.fails("die"), sound.call("line", text="hello")
            )
            assert "may have taken effect" in lost.message
            assert '"hello"' in text_of(heard)
            await eventually_async(
                lambda: len(crashing.of("started")) == len(crashing.of("restarts")) + 1,
                "it is started again",
            )
        waits = [report["wait_ms"] for report in crashing.of("restarts")]
        assert waits == sorted({*waits}), "each wait is longer than the one before"
        assert (sound.pid, sound.of("restarts"), sound.changes) == (pid, [], ["sound"])


@pytest.mark.requirement("servers:down-at-start")
def test_a_list_that_fails_for_hours_is_asked_for_again_every_half_minute() -> None:
    assert [pause_after(failures) for failures in (0, 1, 2, 10_000)] == [0.5, 1.0, 2.0, 30.0]


@pytest.mark.requirement("servers:list-changed")
async def test_a_list_that_has_changed_is_read_anew() -> None:
    async with behind(child()) as server:
        await server.call("change", kind="tools")
        await server.call("grow", name="grown")
        await eventually_async(lambda: len(server.changes) == 2, "the change is told")
        assert "grown" in await server.names()
        assert [report["tools"] for report in server.of("changed")][1] - server.of("changed")[0][
            "tools"
        ] == 1


@pytest.mark.requirement("servers:timeout")
async def test_a_call_that_takes_too_long_is_cancelled_at_the_server() -> None:
    async with behind(child(timeout_s=0.3)) as server:
        error = await server.fails("hang")
        assert (error.code, "may have taken effect" in error.message) == (ErrorCode.TIMEOUT, True)
        (cancelled,) = [
            each for each in await server.seen() if each["method"] == "notifications/cancelled"
        ]
        assert isinstance(cancelled["params"]["requestId"], int)


@pytest.mark.requirement("servers:timeout")
async def test_a_caller_that_leaves_cancels_the_call_at_the_server() -> None:
    async with behind(child()) as server:
        call = asyncio.create_task(server.call("hang"))
        await server.call("echo")
        call.cancel()
        await asyncio.wait([call])
        methods = [each["method"] for each in await server.seen()]
        assert methods.count("notifications/cancelled") == 1


@pytest.mark.requirement("servers:secrets")
async def test_what_a_server_says_of_its_own_credential_is_redacted_before_it_is_cut() -> None:
    async with behind(child(env={"TOKEN": Secret(SECRET)})) as server:
        said = await server.call(
            "result", result={"structuredContent": {"a": SECRET, SECRET: 1}, "content": []}
        )
        assert SECRET.encode() not in bytes(said)
        text = {"type": "text", "text": "x" * 1_990 + SECRET}
        error = await server.fails("result", result={"content": [text], "isError": True})
        assert (SECRET[:6] in error.message, len(error.message) <= 2_000) == (False, True)
        assert SECRET not in str(await server.call("environment"))
