"""A call: its arguments, its time, its limits, its line of the log."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
from decimal import Decimal
from typing import Any

import pytest

from claw_contract.limits import LineLimit
from claw_contract.toolhost_file import CallLimitsSection
from claw_mcp.protocol import MessageError, RpcError, read_messages, write_request
from claw_mcp.sessions import ClientRequest, Session
from claw_tools.audit import CallLog, CallRecord
from claw_tools.errors import ErrorCode, ToolError
from claw_tools.registry import ToolRegistry
from tests.tools.scene import MadeProvider, MadeTool, Scene, principal
from tests.waiting import eventually_async

MEGABYTE = 1 << 20
TWO_AT_ONCE = CallLimitsSection(concurrent=2)
FIVE_A_MINUTE = CallLimitsSection(calls_per_minute=5)


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
    scene, tool = Scene(), MadeTool("t")
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
        Scene(),
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


@pytest.mark.requirement("tools:arguments")
@pytest.mark.parametrize(
    "params", [{}, {"name": 7}, {"name": None}, {"name": ["t"]}, {"arguments": {}}, []]
)
async def test_a_call_without_a_name_is_an_error_of_the_protocol(params: Any) -> None:
    scene = Scene()
    with pytest.raises(RpcError) as refused:
        await scene.ask("tools/call", params)
    assert (refused.value.code, scene.lines) == (-32602, [])


@pytest.mark.requirement("tools:arguments")
async def test_unknown_methods_and_cursors_are_errors_of_the_protocol() -> None:
    scene = Scene()
    for method, params, code in (
        ("resources/list", {}, -32601),
        ("tools/list", {"cursor": "2"}, -32602),
    ):
        with pytest.raises(RpcError) as refused:
            await scene.ask(method, params)
        assert refused.value.code == code
    assert await scene.ask("tools/list", {"cursor": None}) == {"tools": []}


@pytest.mark.requirement("tools:exact-numbers")
async def test_a_number_keeps_its_exact_value_on_the_way_to_a_tool_and_back() -> None:
    async def echo(args: dict[str, Any]) -> Any:
        return args

    scene, tool = Scene(), MadeTool("t", echo, schema={"type": "object"})
    scene.register(tool)
    sent = b'{"a":123456789012345678901234567890,"b":0.1000000000000000055511151231257827,"c":1.10}'
    request = write_request(b"1", "tools/call", b'{"name":"t","arguments":%b}' % sent)
    (message,) = read_messages(request)
    answer = await scene.shell.answer(ClientRequest(Session("a"), message))
    assert tool.calls == [
        {
            "a": 123456789012345678901234567890,
            "b": Decimal("0.1000000000000000055511151231257827"),
            "c": Decimal("1.1"),
        }
    ]
    assert b'"structuredContent":%b' % sent in answer


@pytest.mark.requirement("tools:timeout")
async def test_a_tool_that_hangs_past_its_time_is_ended() -> None:
    ended = asyncio.Event()

    async def hang(_args: Any) -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    scene = Scene()
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

    scene = Scene()
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

    scene = Scene()
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

    scene = Scene(principal("a", limits=TWO_AT_ONCE), principal("b", limits=TWO_AT_ONCE))
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
    scene = Scene()
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


@pytest.mark.requirement("tools:audit")
async def test_each_call_is_one_line_whatever_becomes_of_it() -> None:
    async def hang(_args: Any) -> Any:
        await asyncio.Event().wait()

    scene, going = Scene(principal("a", ["t", "slow"])), MadeTool("slow", hang)
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
        scene = Scene(audit=audit)
        scene.register(MadeTool("t"))
        await scene.outcome("t", raw)
        (line,) = scene.lines
        assert line["argument_names"] == ["text", "zz"]
        assert line["arguments_digest"] == hashlib.sha256(raw).hexdigest()
        assert ("the-secret-text" in json.dumps(line)) == (audit == "full")
        assert line.get("arguments") == (json.loads(raw) if audit == "full" else None)


@pytest.mark.requirement("tools:audit-arguments")
async def test_the_names_in_a_line_are_bounded() -> None:
    scene = Scene()
    scene.register(MadeTool("t"))
    await scene.outcome("t", {f"{number:03}{'n' * 100}": 1 for number in range(100)})
    (line,) = scene.lines
    assert (len(line["argument_names"]), {len(name) for name in line["argument_names"]}) == (
        32,
        {64},
    )


@pytest.mark.requirement("tools:visible-is-callable")
async def test_a_providers_tool_is_called_with_checked_arguments() -> None:
    scene, provider = Scene(), MadeProvider("time", "now")
    await scene.provide(provider)
    assert (await scene.outcome("time__now", {"text": 1}), provider.calls) == ("invalid_args", [])
    assert await scene.call("time__now", {"text": "x"}) == {"did": "time/now"}
    assert provider.calls == [("now", {"text": "x"})]


@pytest.mark.requirement("tools:audit-refusals")
async def test_calls_that_nobody_ran_do_not_fill_the_log() -> None:
    scene = Scene(principal("a", limits=FIVE_A_MINUTE), principal("b", limits=FIVE_A_MINUTE))
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
