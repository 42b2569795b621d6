"""The tools of a principal: which it sees, and how a call of one runs."""

from __future__ import annotations

import asyncio
import fnmatch
import json
import logging
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claw_contract.toolhost_file import CallLimitsSection
from claw_mcp.protocol import MessageError
from claw_tools.errors import ErrorCode, ToolError
from claw_tools.registry import ToolRegistry, matches, matches_any
from tests.tools.logged_shell import SCHEMA, LoggedShell, MadeTool, principal, shell_with_tools
from tests.waiting import eventually_async

MEGABYTE = 1 << 20
TWO_AT_ONCE = CallLimitsSection(concurrent=2)


@pytest.mark.requirement("tools:arguments", "tools:strict-json")
@pytest.mark.parametrize(
    "arguments",
    [
        b'{"text": 7}',
        b'{"count": "5"}',
        b'{"count": 0}',
        b'{"count": true}',
        b'{"count": 1.5}',
        b'{"text": "x", "extra": 1}',
        b'{"__proto__": {}}',
        b'{"text": "a", "text": "b"}',
        b'{"count": NaN}',
        b'{"count": -Infinity}',
        b'{"count": 1e999}',
        b'{"count": %b}' % (b"9" * 5_000),
        b'{"text": %b}' % (b"[" * 20_000 + b"]" * 20_000),
        b'{"count": "%b"}' % (b"x" * MEGABYTE),
        b'{"%b": 1}' % (b"k" * MEGABYTE),
        b'{"\\ud800": 1}',
        b"{%b}" % b",".join(b'"%d":1' % number for number in range(100_000)),
        b'{%b,"z":1,"z":1}' % b",".join(b'"%d":1' % number for number in range(100_000)),
        b"[]",
        b'"text"',
        b"7",
        b"true",
    ],
    ids=lambda arguments: arguments[:30].decode(),
)
async def test_arguments_that_do_not_fit_are_refused_in_few_words_before_anything_runs(
    arguments: bytes,
) -> None:
    scene, tool = LoggedShell(), MadeTool("t")
    scene.register(tool)
    started = time.process_time()
    try:
        content = await scene.call("t", arguments)
    except MessageError:  # The whole message is no JSON, which is answered with 400
        content = None
    assert content is None or (
        content["error"]["code"] == "invalid_args" and len(json.dumps(content)) <= 2_200
    )
    assert time.process_time() - started < 5
    assert tool.calls == []


@pytest.mark.requirement("tools:arguments")
async def test_a_missing_argument_is_named_and_no_arguments_are_an_empty_object() -> None:
    scene, tool = (
        LoggedShell(),
        MadeTool(
            "t", schema={"type": "object", "required": ["path"], "additionalProperties": False}
        ),
    )
    lax = MadeTool("lax")
    scene.register(tool, lax)
    assert "path" in (await scene.call("t"))["error"]["message"]
    for params in (
        {"name": "lax"},
        {"name": "lax", "arguments": None},
        {"name": "lax", "arguments": {}},
    ):
        await scene.ask("tools/call", params)
    assert (tool.calls, lax.calls) == ([], [{}, {}, {}])


@pytest.mark.requirement("tools:timeout")
async def test_a_tool_that_hangs_past_its_time_is_ended() -> None:
    ended = asyncio.Event()

    async def hang(_args: Any) -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    scene = LoggedShell()
    scene.register(MadeTool("t", hang, seconds=0.05))
    content = await scene.call("t")
    assert (content["error"]["code"], ended.is_set()) == ("timeout", True)
    assert "0.05 s" in content["error"]["message"]
    assert [line["outcome"] for line in scene.lines] == ["timeout"]


class _FaultError(Exception):
    pass


@pytest.mark.requirement("tools:faults")
@pytest.mark.parametrize(
    "fault",
    [_FaultError("/srv/secret"), TimeoutError("x"), asyncio.CancelledError(), RecursionError()],
)
async def test_a_fault_of_a_tool_is_answered_without_its_text(
    fault: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(_args: Any) -> Any:
        raise fault

    scene = LoggedShell()
    scene.register(MadeTool("t", fail))
    with caplog.at_level(logging.ERROR):
        content = await scene.call("t")
    assert content["error"]["code"] == "execution_failed"
    assert "secret" not in content["error"]["message"]
    (record,) = caplog.records
    assert record.exc_info is not None
    assert record.exc_info[1] is fault
    assert [line["outcome"] for line in scene.lines] == ["execution_failed"]


@pytest.mark.requirement("tools:faults")
async def test_an_error_of_a_tool_is_told_with_its_code_and_message() -> None:
    async def refuse(_args: Any) -> Any:
        raise ToolError(ErrorCode.PERMISSION_DENIED, "not this file")

    scene = LoggedShell()
    scene.register(MadeTool("t", refuse))
    assert await scene.call("t") == {
        "error": {"code": "permission_denied", "message": "not this file"}
    }


@pytest.mark.requirement("tools:limits")
async def test_one_call_too_many_at_once_is_busy_and_a_cancelled_one_gives_its_place_back() -> None:
    go, running = asyncio.Event(), 0

    async def wait(_args: Any) -> Any:
        nonlocal running
        running += 1
        await go.wait()

    scene = LoggedShell(principal("a", limits=TWO_AT_ONCE), principal("b", limits=TWO_AT_ONCE))
    for registry in scene.registries.values():
        registry.register(MadeTool("t", wait))
    tasks = [asyncio.create_task(scene.outcome("t")) for _ in range(2)]
    await eventually_async(lambda: running == 2, "two calls run")
    assert await scene.outcome("t") == "busy"
    other = asyncio.create_task(scene.outcome("t", who="b"))
    await eventually_async(lambda: running == 3, "another principal's call runs")
    tasks[0].cancel()
    await asyncio.wait([tasks[0]])
    tasks[0] = asyncio.create_task(scene.outcome("t"))
    await eventually_async(lambda: running == 4, "the place is free")
    go.set()
    assert await asyncio.gather(*tasks, other) == ["ok"] * 3
    assert sorted(line["outcome"] for line in scene.lines) == [
        "busy",
        "cancelled",
        "ok",
        "ok",
        "ok",
    ]


@pytest.mark.requirement("tools:limits")
async def test_so_many_calls_start_in_a_minute_and_bad_ones_count() -> None:
    now = 0.0
    scene = LoggedShell()
    registry = ToolRegistry(
        principal("a", limits=CallLimitsSection(calls_per_minute=3)),
        scene.shell.provided,
        lambda: now,
    )
    scene.shell.add(registry)
    registry.register(MadeTool("t"))
    outcomes = []
    for second, arguments in (
        (0, {}),
        (1, {"bad": 1}),
        (2, {}),
        (59, {}),
        (60, {}),
        (60.5, {}),
        (61, {}),
    ):
        now = second
        outcomes.append(await scene.outcome("t", arguments))
    assert outcomes == ["ok", "invalid_args", "ok", "busy", "ok", "busy", "ok"]


LETTERS = st.text("ab_*?[", max_size=8)


@pytest.mark.requirement("tools:globs")
@settings(max_examples=500)
@given(glob=LETTERS, name=st.text("ab_[", max_size=8))
def test_a_glob_matches_what_the_shell_says_but_for_brackets(glob: str, name: str) -> None:
    assert matches(glob, name) == fnmatch.fnmatchcase(name, glob.replace("[", "[[]"))


@pytest.mark.requirement("tools:globs")
def test_a_glob_made_to_be_slow_is_not() -> None:
    started = time.process_time()
    for glob in ("*" + "a" * 62 + "b", "*a" * 31 + "b", "*" + "?" * 60 + "b*", "*" * 64):
        assert not matches_any([glob] * 128, "a" * 47 + "c") or glob == "*" * 64
    assert time.process_time() - started < 2


@pytest.mark.requirement("tools:globs")
def test_a_glob_is_case_sensitive_and_matches_the_whole_name() -> None:
    assert [matches("read", name) for name in ("read", "Read", "read_file", "xread", "")] == [
        True,
        False,
        False,
        False,
        False,
    ]
    assert (matches("", ""), matches("*", ""), matches("?", "")) == (True, True, False)


@pytest.mark.requirement("tools:registration")
async def test_a_tool_replaces_one_of_its_name_and_a_bad_schema_is_refused() -> None:
    scene = LoggedShell()
    old, new = MadeTool("read_file"), MadeTool("read_file")
    scene.register(old, new)
    await scene.call("read_file")
    assert (len(old.calls), len(new.calls), await scene.names()) == (0, 1, ["read_file"])
    for schema in (
        {"type": "objekt"},
        {"$ref": "https://example.com/schema"},
        {"properties": {"a": {"pattern": "("}}},
    ):
        with pytest.raises(ValueError, match="read_file"):
            scene.register(MadeTool("read_file", schema=schema))


@pytest.mark.requirement("tools:schemas")
async def test_schemas_are_those_of_what_can_be_called_sorted_by_name() -> None:
    registry = (await shell_with_tools("*")).registries["a"]
    assert [each["function"]["name"] for each in registry.schemas()] == [
        "exec_shell",
        "read_file",
        "time__now",
        "write_file",
    ]
    (only,) = registry.schemas_for_tools(["git__log"])
    function = {"name": "git__log", "description": "The tool log.", "parameters": {**SCHEMA}}
    assert only == {"type": "function", "function": function}
