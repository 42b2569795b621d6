"""The judge's tables, row by row, as pure functions of a ledger."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from claw_mediate.core import tool_result
from claw_mediate.core.judge import (
    MAX_CALLS,
    AnswerAll,
    AnswerOne,
    Finish,
    Ledger,
    RunCalls,
    ends_turn,
    judge,
    next_step,
    tool_use_after,
)
from claw_mediate.core.types import Deliver, Refuse, RunTools, ToolCall, ToolResult, ToolUse
from tests.mediate.made import called, granted, limits, reply

GET = granted("desk.get", annotations={"readOnly": True})
QUOTE = granted("desk.quote", annotations={"readOnly": True})
SET = granted("desk.set", method="POST")
PING = granted("desk.ping", method="POST", annotations={"parallel_safe": True})
END = granted("desk.end", method="POST", annotations={"x-claw.terminalOnSuccess": True})
POLL = granted("desk.poll", method="POST", annotations={"x-claw.repeatable": True})
ELSEWHERE = granted("other.set", method="POST")
NATIVE = called(None, owner="native")
UNKNOWN = called(None)
ONLY_RUNNERS = replace(NATIVE, is_answerable=False)


def ledger(**more: Any) -> Ledger:
    return Ledger.start(limits(**more), 0.0)


def ran(call: ToolCall, *, status: int = 200) -> ToolResult:
    return tool_result.read_http_response(call, status, b"{}", 2, 100)


def after(book: Ledger, *answers: ToolResult, tool_use: ToolUse = ToolUse.RELEASED) -> Ledger:
    """Return the ledger after a round with these results."""
    book = book.add_results(tuple(answers), book.now)
    return book.close_round(reply(*(answer.call for answer in answers)), tuple(answers), tool_use)


def codes(verdict: Any) -> list[str | None]:
    assert isinstance(verdict, AnswerAll)
    return [answer.code for answer in verdict.results]


def settled(book: Ledger, call: ToolCall) -> str | None:
    """Return the code with which the call is answered without running, or None if it runs."""
    step = next_step(book, (call,))
    return step.result.code if isinstance(step, AnswerOne) else None


@pytest.mark.requirement("loop:no-calls")
@pytest.mark.parametrize("calls", [(), (NATIVE,), (NATIVE, NATIVE)])
def test_no_call_of_ours_is_the_answer(calls: tuple[ToolCall, ...]) -> None:
    said = reply(*calls)
    assert judge(ledger(), said) == Finish(Deliver(said, (), ()))


@pytest.mark.requirement("loop:managed-only", "loop:unknown-tool")
@pytest.mark.parametrize("calls", [(called(GET),), (UNKNOWN,), (called(GET), UNKNOWN, called(SET))])
def test_managed_and_unknown_calls_are_run(calls: tuple[ToolCall, ...]) -> None:
    assert judge(ledger(), reply(*calls)) == RunCalls(calls)


@pytest.mark.requirement("loop:managed-first-native-behind")
@pytest.mark.parametrize("first", [called(GET), UNKNOWN])
def test_a_native_suffix_is_dropped_and_the_prefix_runs(first: ToolCall) -> None:
    assert judge(ledger(), reply(first, NATIVE, NATIVE)) == RunCalls((first,))


def keeping(**more: Any) -> Ledger:
    """Return the ledger of a turn of which the provider keeps every response."""
    return Ledger.start(limits(**more), 0.0, keeps_rounds=True)


@pytest.mark.requirement("responses:conversation-rejects")
@pytest.mark.parametrize("first", [called(GET), UNKNOWN])
def test_a_native_suffix_that_is_kept_is_answered(first: ToolCall) -> None:
    calls = (first, NATIVE, NATIVE)
    assert judge(keeping(), reply(*calls)) == RunCalls(calls)
    assert settled(keeping(), NATIVE) == "managed_tools_first"
    assert settled(replace(keeping(), now=90.0), NATIVE) == "tool_budget_exhausted"


@pytest.mark.requirement("responses:conversation-rejects")
def test_rounds_of_repeats_end_though_native_calls_stand_behind_them() -> None:
    book = keeping()
    repeat = (
        tool_result.duplicate_tool_call(called(GET), 1, 1),
        tool_result.managed_tools_first(NATIVE, others_ran=True),
    )
    assert tool_use_after(after(after(book, *repeat), *repeat), repeat) is ToolUse.FORBIDDEN
    only_native = (tool_result.managed_tools_first(NATIVE),)
    assert (
        tool_use_after(after(after(book, *only_native), *only_native), only_native)
        is ToolUse.RELEASED
    )


@pytest.mark.requirement("responses:conversation-unanswerable")
@pytest.mark.parametrize(
    "calls", [(called(GET), ONLY_RUNNERS), (ONLY_RUNNERS, called(GET)), (UNKNOWN, ONLY_RUNNERS)]
)
@pytest.mark.parametrize("rounds", [0, 1])
def test_a_kept_call_that_can_not_be_answered_refuses_the_turn(
    calls: tuple[ToolCall, ...], rounds: int
) -> None:
    book = keeping(max_rounds=rounds)
    verdict = judge(book, reply(*calls))
    assert isinstance(verdict, Finish)
    assert isinstance(verdict.outcome, Refuse)
    assert (verdict.outcome.status, verdict.outcome.code) == (502, "native_call_unanswerable")
    alone = reply(ONLY_RUNNERS)
    assert judge(book, alone) == Finish(Deliver(alone, (), ()))


@pytest.mark.requirement("loop:native-before-managed")
@pytest.mark.parametrize(
    "calls",
    [
        (NATIVE, called(GET)),
        (NATIVE, UNKNOWN),
        (called(GET), NATIVE, called(SET)),
        (UNKNOWN, NATIVE, UNKNOWN),
    ],
)
@pytest.mark.parametrize("tool_use", [ToolUse.AS_REQUESTED, ToolUse.RELEASED])
def test_native_before_ours_rejects_every_call_and_leaves_the_choice_alone(
    calls: tuple[ToolCall, ...], tool_use: ToolUse
) -> None:
    verdict = judge(replace(ledger(), tool_use=tool_use), reply(*calls))
    assert codes(verdict) == ["managed_tools_first"] * len(calls)
    assert isinstance(verdict, AnswerAll)
    assert verdict.tool_use is tool_use


@pytest.mark.requirement("budget:rounds")
@pytest.mark.parametrize(
    "calls", [(called(GET),), (UNKNOWN,), (called(GET), NATIVE), (NATIVE, called(GET))]
)
def test_when_rounds_are_spent_every_call_is_answered_and_tools_are_forbidden(
    calls: tuple[ToolCall, ...],
) -> None:
    verdict = judge(after(ledger(max_rounds=1), ran(called(SET))), reply(*calls))
    assert codes(verdict) == ["tool_budget_exhausted"] * len(calls)
    assert isinstance(verdict, AnswerAll)
    assert verdict.tool_use is ToolUse.FORBIDDEN


@pytest.mark.requirement("budget:soft-deadline")
def test_behind_the_soft_deadline_the_same_happens() -> None:
    late = replace(ledger(), now=90.0)
    assert codes(judge(late, reply(called(GET)))) == ["tool_budget_exhausted"]
    assert judge(replace(ledger(), now=89.9), reply(called(GET))) == RunCalls((called(GET),))
    assert settled(late, called(GET)) == "tool_budget_exhausted"
    assert tool_use_after(late, (ran(called(GET)),)) is ToolUse.FORBIDDEN


@pytest.mark.requirement("budget:on-budget-error")
def test_on_budget_error_refuses_at_once() -> None:
    verdict = judge(
        after(ledger(max_rounds=1, on_budget="error"), ran(called(SET))), reply(called(GET))
    )
    assert isinstance(verdict, Finish)
    assert isinstance(verdict.outcome, Refuse)
    assert (verdict.outcome.status, verdict.outcome.code) == (502, "tool_budget_exhausted")
    assert len(verdict.outcome.rounds) == 1


@pytest.mark.requirement("budget:finalization-fails")
@pytest.mark.parametrize("calls", [(called(GET),), (NATIVE,), (UNKNOWN,)])
def test_any_call_though_tools_are_forbidden_is_a_502(calls: tuple[ToolCall, ...]) -> None:
    verdict = judge(replace(ledger(), tool_use=ToolUse.FORBIDDEN), reply(*calls))
    assert isinstance(verdict, Finish)
    assert isinstance(verdict.outcome, Refuse)
    assert verdict.outcome.status == 502


@pytest.mark.requirement("attack:many-calls")
def test_a_reply_of_more_calls_than_a_reply_may_hold_runs_none_of_them() -> None:
    assert isinstance(judge(ledger(), reply(*[called(SET)] * MAX_CALLS)), RunCalls)
    assert codes(judge(ledger(), reply(*[called(SET)] * (MAX_CALLS + 1)))) == ["too_many_calls"] * (
        MAX_CALLS + 1
    )
    assert isinstance(judge(ledger(), reply(*[NATIVE] * (MAX_CALLS + 1))), Finish), (
        "the runner's own are its own business"
    )


@pytest.mark.requirement("calls:terminal-on-success")
def test_a_terminal_call_must_be_the_last_one() -> None:
    assert (
        codes(judge(ledger(), reply(called(END), called(GET)))) == ["terminal_on_success_order"] * 2
    )
    assert codes(judge(ledger(), reply(called(END), NATIVE))) == ["terminal_on_success_order"] * 2
    assert judge(ledger(), reply(called(GET), called(END))) == RunCalls((called(GET), called(END)))


@pytest.mark.requirement("calls:terminal-on-success")
def test_only_a_terminal_call_that_ran_well_ends_the_turn() -> None:
    assert ends_turn((ran(called(GET)), ran(called(END))))
    assert not ends_turn((ran(called(END), status=500),))
    assert not ends_turn((ran(called(GET)),))
    assert not ends_turn((tool_result.duplicate_tool_call(called(END), 1, 1),))


@pytest.mark.requirement("calls:order-of-checks")
def test_the_order_of_checks_is_unknown_then_arguments_then_repeat_then_schema() -> None:
    picky = granted("desk.get", annotations={"readOnly": True}, schema={"required": ["a"]})
    assert settled(ledger(), called(None, '{"a":')) == "unknown_tool"
    assert settled(ledger(), called(picky, '{"a":')) == "invalid_arguments"
    assert settled(ledger(), called(picky)) == "schema_validation"
    assert settled(ledger(), called(picky, '{"a":1}')) is None
    seen = after(ledger(), ran(called(granted("desk.get", annotations={"readOnly": True}))))
    assert settled(seen, called(picky)) == "duplicate_tool_call"


@pytest.mark.requirement("calls:duplicate")
@pytest.mark.parametrize(
    "text", ['{"a":1}', '{ "a": 1.0 }', '{"a":10e-1}', '{"a":1,"claw_id":"x"}']
)
def test_an_equal_call_is_answered_with_its_first_round_and_count(text: str) -> None:
    book = after(ledger(), ran(called(SET, '{"a":1}')))
    step = next_step(book, (called(SET, text),))
    assert isinstance(step, AnswerOne)
    assert (step.result.code, step.result.first_round, step.result.repeats) == (
        "duplicate_tool_call",
        1,
        1,
    )
    again = next_step(after(book, step.result), (called(SET, text),))
    assert isinstance(again, AnswerOne)
    assert (again.result.first_round, again.result.repeats) == (1, 2)


@pytest.mark.requirement("calls:duplicate")
def test_a_call_with_other_arguments_or_of_another_tool_is_no_repeat() -> None:
    book = after(ledger(), ran(called(GET, '{"a":1}')))
    assert settled(book, called(GET, '{"a":2}')) is None
    assert settled(book, called(QUOTE, '{"a":1}')) is None


@pytest.mark.requirement("calls:duplicate-exceptions")
def test_a_repeatable_tool_may_be_repeated() -> None:
    assert settled(after(ledger(), ran(called(POLL))), called(POLL)) is None


@pytest.mark.requirement("calls:duplicate-exceptions")
def test_a_read_that_failed_may_be_repeated_and_a_write_may_not() -> None:
    assert settled(after(ledger(), ran(called(GET), status=503)), called(GET)) is None
    assert (
        settled(after(ledger(), ran(called(SET), status=503)), called(SET)) == "duplicate_tool_call"
    )


@pytest.mark.requirement("calls:duplicate-exceptions")
def test_a_read_may_be_repeated_after_a_write_in_its_own_service_that_ran() -> None:
    book = after(ledger(), ran(called(GET)))
    assert settled(after(book, ran(called(SET))), called(GET)) is None
    assert settled(after(book, ran(called(SET), status=500)), called(GET)) is None
    assert settled(after(book, ran(called(ELSEWHERE))), called(GET)) == "duplicate_tool_call"
    assert (
        settled(after(book, tool_result.invalid_arguments(called(SET), "x")), called(GET))
        == "duplicate_tool_call"
    )
    assert (
        settled(after(after(ledger(), ran(called(SET))), ran(called(GET))), called(GET))
        == "duplicate_tool_call"
    )


@pytest.mark.requirement("calls:idle-rounds")
def test_the_third_round_of_nothing_but_repeats_forbids_tools() -> None:
    repeat = tool_result.duplicate_tool_call(called(SET), 1, 1)
    book = after(ledger(), ran(called(SET)))
    assert tool_use_after(book, (repeat,)) is ToolUse.RELEASED
    book = after(after(book, repeat), repeat)
    assert tool_use_after(book, (repeat,)) is ToolUse.FORBIDDEN
    assert tool_use_after(book, (repeat, ran(called(GET)))) is ToolUse.RELEASED


@pytest.mark.requirement("injection:tool-choice-released")
def test_a_forced_choice_is_released_by_a_managed_call_and_by_nothing_else() -> None:
    assert tool_use_after(ledger(), (ran(called(GET)),)) is ToolUse.RELEASED
    assert (
        tool_use_after(ledger(), (tool_result.invalid_arguments(called(GET), "x"),))
        is ToolUse.RELEASED
    )
    assert tool_use_after(ledger(), (tool_result.unknown_tool(UNKNOWN),)) is ToolUse.AS_REQUESTED


@pytest.mark.requirement("calls:parallel")
@pytest.mark.parametrize(
    ("calls", "together"),
    [
        ([called(GET), called(QUOTE)], 2),
        ([called(GET), called(PING), called(QUOTE)], 3),
        ([called(GET), called(SET)], 1),
        ([called(SET), called(GET)], 1),
        ([called(SET), called(SET, '{"a":1}')], 1),
        ([called(GET), called(GET)], 1),
        ([called(GET), called(GET, '{"a":1}'), called(GET, '{"a":2}'), called(GET, '{"a":3}')], 3),
        ([called(GET), UNKNOWN, called(QUOTE)], 1),
        ([called(GET), called(QUOTE, '{"a":')], 1),
    ],
)
def test_neighbours_that_are_safe_run_together_up_to_the_limit(
    calls: list[ToolCall], together: int
) -> None:
    step = next_step(ledger(max_parallel=3), tuple(calls))
    assert isinstance(step, RunTools)
    assert list(step.calls) == calls[:together]


@pytest.mark.requirement("budget:per-tool")
@pytest.mark.parametrize(("now", "seconds"), [(0.0, 30.0), (80.0, 10.0)])
def test_a_call_has_its_own_time_and_never_more_than_the_turn(now: float, seconds: float) -> None:
    step = next_step(replace(ledger(), now=now), (called(GET),))
    assert isinstance(step, RunTools)
    assert step.seconds == seconds


@pytest.mark.requirement("live:last-word")
@pytest.mark.parametrize(
    ("has_flowed", "now", "tool_use", "seconds"),
    [
        (True, 85.0, ToolUse.FORBIDDEN, 15.0),
        (True, 99.0, ToolUse.FORBIDDEN, 10.0),
        (True, 130.0, ToolUse.FORBIDDEN, 10.0),
        (True, 99.0, ToolUse.RELEASED, 1.0),
        (False, 99.0, ToolUse.FORBIDDEN, 1.0),
        (False, 130.0, ToolUse.FORBIDDEN, -30.0),
    ],
)
def test_behind_a_reply_that_flowed_the_last_model_call_has_what_is_reserved_for_it(
    *, has_flowed: bool, now: float, tool_use: ToolUse, seconds: float
) -> None:
    book = ledger().add_response(reply(called(GET)), now, has_flowed=has_flowed)
    book = after(book, tool_result.tool_budget_exhausted(called(GET)), tool_use=tool_use)
    assert book.model_seconds_left == seconds
