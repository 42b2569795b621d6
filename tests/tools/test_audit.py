"""The line of the log for each call."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import Any

import pytest

from claw_contract.limits import LineLimit
from claw_contract.toolhost_file import CallLimitsSection
from claw_tools.audit import CallLog, CallRecord
from tests.tools.logged_shell import LoggedShell, MadeTool, principal
from tests.waiting import eventually_async

FIVE_A_MINUTE = CallLimitsSection(calls_per_minute=5)


@pytest.mark.requirement("tools:audit")
async def test_each_call_is_one_line_whatever_becomes_of_it() -> None:
    async def hang(_args: Any) -> Any:
        await asyncio.Event().wait()

    scene, going = LoggedShell(principal("a", ["t", "slow"])), MadeTool("slow", hang)
    scene.register(MadeTool("t"), going, MadeTool("hidden"))
    for name, arguments in (
        ("t", {"text": "hi"}),
        ("t", {"bad": 1}),
        ("hidden", {}),
        ("x" * 200, {}),
    ):
        await scene.outcome(name, arguments)
    task = asyncio.create_task(scene.call("slow"))
    await eventually_async(lambda: going.calls, "the call runs")
    task.cancel()
    await asyncio.wait([task])
    assert [(line["tool"][:10], line["outcome"]) for line in scene.lines] == [
        ("t", "ok"),
        ("t", "invalid_args"),
        ("hidden", "not_found"),
        ("x" * 10, "not_found"),
        ("slow", "cancelled"),
    ]
    assert {line["principal"] for line in scene.lines} == {"a"}
    assert len(scene.lines[3]["tool"]) == 128
    assert scene.lines[0]["bytes"] == len(json.dumps({"did": "t"}, separators=(",", ":")))
    assert scene.lines[0]["argument_names"] == ["text"]


@pytest.mark.requirement("tools:audit-arguments")
async def test_a_line_has_names_and_a_digest_and_with_full_the_arguments() -> None:
    raw = b'{"text":"the-secret-text","zz":1}'
    for audit in ("digest", "full"):
        scene = LoggedShell(audit=audit)
        scene.register(MadeTool("t"))
        await scene.outcome("t", raw)
        (line,) = scene.lines
        assert line["argument_names"] == ["text", "zz"]
        assert line["arguments_digest"] == hashlib.sha256(raw).hexdigest()
        assert ("the-secret-text" in json.dumps(line)) == (audit == "full")
        assert line.get("arguments") == (json.loads(raw) if audit == "full" else None)


@pytest.mark.requirement("tools:audit-arguments")
async def test_the_names_in_a_line_are_bounded() -> None:
    scene = LoggedShell()
    scene.register(MadeTool("t"))
    await scene.outcome("t", {f"{number:03}{'n' * 100}": 1 for number in range(100)})
    (line,) = scene.lines
    assert (len(line["argument_names"]), {len(name) for name in line["argument_names"]}) == (
        32,
        {64},
    )


@pytest.mark.requirement("tools:audit-refusals")
async def test_calls_that_nobody_ran_do_not_fill_the_log() -> None:
    scene = LoggedShell(principal("a", limits=FIVE_A_MINUTE), principal("b", limits=FIVE_A_MINUTE))
    scene.register(MadeTool("work"))
    for _ in range(500):
        assert (await scene.outcome("none")).startswith("-32602")
    for _ in range(5):
        assert await scene.outcome("work") == "ok"
    for _ in range(500):
        assert await scene.outcome("work") == "busy"
    assert [line["outcome"] for line in scene.lines].count("ok") == 5
    assert len(scene.lines) == 60 + 5

    await scene.outcome("none", who="b")
    assert [line["principal"] for line in scene.lines[65:]] == ["b"], "each has lines of its own"


@pytest.mark.requirement("tools:audit-refusals")
def test_the_next_line_says_how_many_refused_calls_have_none() -> None:
    lines: list[dict[str, Any]] = []
    log = CallLog(lambda _, members: lines.append(members))
    now = [0.0]
    log._refusals = LineLimit(2, clock=lambda: now[0])
    for minute in (0, 61):
        now[0] = minute
        for _ in range(5):
            log.refuse_call(CallRecord("a", "none", b"{}"), "not_found")
    assert [line.get("left_out") for line in lines] == [None, None, 3, None]
