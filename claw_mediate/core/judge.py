"""Every rule of docs/spec/mediation.md section 4, as pure functions of the ledger.

The first table is ``judge``: the first row that holds decides about a response.

    the response has                          verdict
    ────────────────────────────────────────  ────────────────────────────────────────────────────
    any call, though tools are forbidden      Finish(Refuse): 502
    no calls, or native calls only            Finish(Deliver): the runner runs the native calls
    a call that only the runner can answer,   Finish(Refuse): 502
      next to ours (``keeps_rounds`` only)
    calls, and rounds or time are spent       AnswerAll: tool_budget_exhausted, then the last
                                                model call. ``on_budget: error``: Finish(Refuse)
    more than ``MAX_CALLS`` calls             AnswerAll: too_many_calls; nothing runs
    a native call before one of ours          AnswerAll: managed_tools_first; nothing runs
    a terminal call that is not the last      AnswerAll: terminal_on_success_order; nothing runs
    calls of ours first, then native calls    RunCalls: ours. The native calls after them leave
                                                the transcript
      the same, with ``keeps_rounds``         RunCalls: all. The native calls after ours are
                                                answered with managed_tools_first

"Ours" are the calls of managed and of unknown tools: the proxy answers both. ``keeps_rounds``: the
provider keeps every response as it was, so nothing can leave the transcript.

The second table is ``next_step``: the first row that holds answers a call of ``RunCalls`` without
running it.

    the call                                  result
    ────────────────────────────────────────  ────────────────────────────────────────────────────
    was sent by an earlier attempt            none: it "runs", which gives its journaled result
    comes when the time for tools is spent    tool_budget_exhausted
    is native                                 managed_tools_first
    names no tool that is granted             unknown_tool
    has arguments that are no JSON object     invalid_arguments
    repeats an earlier call of this turn      duplicate_tool_call
    breaks the schema of its tool             schema_validation
"""

import msgspec
from msgspec.structs import replace

from claw_contract.base import JsonObject
from claw_contract.manifest import Tool
from claw_mediate.core import tool_result
from claw_mediate.core.tool_call import find_violations
from claw_mediate.core.types import (
    Deliver,
    ModelResponse,
    Outcome,
    Refuse,
    Round,
    RunTools,
    ToolCall,
    ToolResult,
    ToolUse,
    TurnLimits,
    UnreadableArguments,
)


class AnsweredCall(msgspec.Struct, frozen=True):
    """A call's result, and the number of the round in which it was answered."""

    result: ToolResult
    round: int


class Ledger(msgspec.Struct, frozen=True):
    """The state of one turn. Times are seconds of one clock, whose zero does not matter."""

    limits: TurnLimits
    started_at: float
    now: float
    model_call_at: float  # When the open round began
    rounds: tuple[Round, ...] = ()
    answered_calls: tuple[AnsweredCall, ...] = ()  # In the order of answering
    usage: tuple[JsonObject, ...] = ()
    tool_use: ToolUse = ToolUse.AS_REQUESTED
    has_flowed: bool = False  # True if the runner saw the latest response while it came
    # True if the provider keeps every response, so that nothing can be left out of the transcript
    keeps_rounds: bool = False

    @classmethod
    def start(cls, limits: TurnLimits, now: float, *, keeps_rounds: bool = False) -> "Ledger":
        return cls(limits, started_at=now, now=now, model_call_at=now, keeps_rounds=keeps_rounds)

    @property
    def seconds_left(self) -> float:
        return self.started_at + self.limits.total_seconds - self.now

    @property
    def model_seconds_left(self) -> float:
        """Seconds for the next model call.

        A response that flowed may have begun just before the turn's time was spent. The last model
        call behind it has the time that is reserved for it all the same (docs/spec/live.md section
        8).
        """
        if self.has_flowed and self.tool_use is ToolUse.FORBIDDEN:
            return max(self.seconds_left, self.limits.reserve_seconds)
        return self.seconds_left

    @property
    def tool_seconds_left(self) -> float:
        """Seconds until the soft deadline.

        The time after it is reserved for the model's last response.
        """
        return self.started_at + self.limits.soft_seconds - self.now

    @property
    def round(self) -> int:
        """The number of the round that is open, from 1."""
        return len(self.rounds) + 1

    @property
    def has_spent_rounds(self) -> bool:
        return len(self.rounds) >= self.limits.max_rounds

    @property
    def idle_rounds(self) -> int:
        """The number of rounds at the end, in a row, that held nothing but repeated calls."""
        count = 0
        for past in reversed(self.rounds):
            if not _holds_repeats_only(past.results):
                break
            count += 1

        return count

    def find_equal(self, call: ToolCall) -> tuple[AnsweredCall, ...]:
        """Return the equal calls that this turn has answered, oldest first."""
        return tuple(
            past for past in self.answered_calls if past.result.call.signature == call.signature
        )

    def wrote_since(self, earlier: AnsweredCall) -> bool:
        """Return True if, after ``earlier``, a call that may write ran in the same service."""
        service = earlier.result.call.service
        following = self.answered_calls.index(earlier) + 1

        return any(
            past.result.ran and may_write(past.result.call, service)
            for past in self.answered_calls[following:]
        )

    def start_model_call(self) -> "Ledger":
        """Return the ledger with the open round timed from now."""
        return replace(self, model_call_at=self.now)

    def add_response(
        self, response: ModelResponse, now: float, *, has_flowed: bool = False
    ) -> "Ledger":
        usage = (*self.usage, response.usage)
        return replace(self, now=now, usage=usage, has_flowed=has_flowed)

    def add_results(self, results: tuple[ToolResult, ...], now: float) -> "Ledger":
        answered = (AnsweredCall(result, self.round) for result in results)
        return replace(self, now=now, answered_calls=(*self.answered_calls, *answered))

    def close_round(
        self, response: ModelResponse, results: tuple[ToolResult, ...], tool_use: ToolUse
    ) -> "Ledger":
        """Return the ledger with the open round closed; ``tool_use`` is for the next model call."""
        wall_ms = round((self.now - self.model_call_at) * 1000)
        closed = Round(self.round, response, results, wall_ms)

        return replace(self, rounds=(*self.rounds, closed), tool_use=tool_use)


def may_write(call: ToolCall, service: str) -> bool:
    """Return True if the call belongs to that service and is not known to be a read."""
    return call.tool is not None and call.service == service and call.tool.effect != "read"


MAX_CALLS = 128
"""Calls of one response.

A model that makes more is in a loop, and would overload the service.
"""
MAX_IDLE_ROUNDS = 3
"""Rounds in a row that only repeat calls, after which the model must answer."""
MAX_READ_RETRIES = 2
"""Repetitions, in one turn, of a read that failed."""
NATIVE_CALL_UNANSWERABLE = "native_call_unanswerable"


class Finish(msgspec.Struct, frozen=True):
    """The turn is over."""

    outcome: Outcome


class AnswerAll(msgspec.Struct, frozen=True):
    """The proxy answers every call, and nothing runs."""

    results: tuple[ToolResult, ...]
    tool_use: ToolUse


class RunCalls(msgspec.Struct, frozen=True):
    """Each of these calls is run, or answered without running, in order (``next_step``)."""

    calls: tuple[ToolCall, ...]


class AnswerOne(msgspec.Struct, frozen=True):
    """One call that is answered without running."""

    result: ToolResult


type Verdict = Finish | AnswerAll | RunCalls


def judge(ledger: Ledger, response: ModelResponse) -> Verdict:
    """Return what happens to a response of the model: the first table above."""
    calls = response.calls
    ours = sum(call.owner != "native" for call in calls)

    if calls and ledger.tool_use is ToolUse.FORBIDDEN:
        message = "the model asked for tools after the turn's tool budget was spent"
        return Finish(_refuse_spent(ledger, message))

    if not ours:
        return Finish(Deliver(response, ledger.rounds, ledger.usage))

    if ledger.keeps_rounds and not all(call.is_answerable for call in calls):
        message = (
            "the model made a call that only the runner can answer beside calls of service tools"
        )
        return Finish(Refuse(502, NATIVE_CALL_UNANSWERABLE, message, ledger.rounds, ledger.usage))

    if ledger.has_spent_rounds or ledger.tool_seconds_left <= 0:
        if ledger.limits.on_budget == "error":
            return Finish(_refuse_spent(ledger, "the turn's tool budget is spent"))

        exhausted = tuple(tool_result.tool_budget_exhausted(call) for call in calls)
        return AnswerAll(exhausted, ToolUse.FORBIDDEN)

    if len(calls) > MAX_CALLS:
        too_many = tuple(tool_result.too_many_calls(call, MAX_CALLS) for call in calls)
        return AnswerAll(too_many, ledger.tool_use)

    # As many calls as are ours: a native one among them comes before one of ours.
    prefix = calls[:ours]
    if any(call.owner == "native" for call in prefix):
        mixed = tuple(tool_result.managed_tools_first(call) for call in calls)
        return AnswerAll(mixed, ledger.tool_use)

    if any(_is_terminal(call) for call in calls[:-1]):
        misordered = tuple(tool_result.terminal_on_success_order(call) for call in calls)
        return AnswerAll(misordered, ledger.tool_use)

    return RunCalls(calls if ledger.keeps_rounds else prefix)


def next_step(ledger: Ledger, pending: tuple[ToolCall, ...]) -> AnswerOne | RunTools:
    """Answer the first pending call without running it, or run it.

    The calls right after it run at the same time, as far as all of them may.
    """
    first, *rest = pending
    result = _answer_without_running(ledger, first)
    if result is not None:
        return AnswerOne(result)

    group = [first]
    for call in rest:
        if len(group) >= ledger.limits.max_parallel or not _may_join(group, call):
            break
        if _answer_without_running(ledger, call) is not None:
            break
        group.append(call)

    seconds = min(ledger.limits.tool_seconds, ledger.tool_seconds_left)
    return RunTools(tuple(group), ledger.round, seconds)


def tool_use_after(ledger: Ledger, results: tuple[ToolResult, ...]) -> ToolUse:
    """Return the tool use of the model call after a round with these results.

    Tools are forbidden when their time is spent, or when the model only repeats itself. A forced
    choice is released once a managed call was answered.
    """
    if ledger.tool_seconds_left <= 0:
        return ToolUse.FORBIDDEN

    if _holds_repeats_only(results) and ledger.idle_rounds + 1 >= MAX_IDLE_ROUNDS:
        return ToolUse.FORBIDDEN

    if any(result.call.owner == "managed" for result in results):
        return ToolUse.RELEASED
    return ledger.tool_use


def ends_turn(results: tuple[ToolResult, ...]) -> bool:
    """Return True if the last call succeeded, and its tool ends turns.

    A tool says so by ``x-claw.terminalOnSuccess``.
    """
    last = results[-1]
    return last.ok and last.ran and _is_terminal(last.call)


def _answer_without_running(ledger: Ledger, call: ToolCall) -> ToolResult | None:
    """Return the result of a call that must not run, else None: the second table above."""
    if call.sent:
        return None

    if ledger.tool_seconds_left <= 0:
        return tool_result.tool_budget_exhausted(call)

    if call.owner == "native":
        return tool_result.managed_tools_first(call, others_ran=True)

    if call.tool is None:
        return tool_result.unknown_tool(call)

    if isinstance(call.arguments, UnreadableArguments):
        return tool_result.invalid_arguments(call, call.arguments.reason)

    earlier = ledger.find_equal(call)
    if earlier and not _may_repeat(ledger, call.tool, earlier):
        return tool_result.duplicate_tool_call(call, earlier[0].round, len(earlier))

    violations = find_violations(call.tool, call.arguments)
    if violations:
        return tool_result.schema_validation(call, violations)

    return None


def _holds_repeats_only(results: tuple[ToolResult, ...]) -> bool:
    """Return whether all calls of ours (at least one) were repeats."""
    ours = [result for result in results if result.call.owner != "native"]
    return bool(ours) and all(result.first_round is not None for result in ours)


def _may_repeat(ledger: Ledger, tool: Tool, earlier: tuple[AnsweredCall, ...]) -> bool:
    """Return True if a call may run again after the equal calls of ``earlier``.

    A repeatable tool's always may. A read may if the last attempt failed, up to
    ``MAX_READ_RETRIES`` times, or if something was written to its service since.
    """
    if tool.annotations.repeatable:
        return True
    if tool.effect != "read":
        return False

    # The first of equal calls is never a repeat, so there is at least one attempt.
    attempts = [past for past in earlier if past.result.first_round is None]
    last = attempts[-1]
    if ledger.wrote_since(last):
        return True

    failures_before = sum(not past.result.ok for past in attempts[:-1])
    return not last.result.ok and failures_before < MAX_READ_RETRIES


def _may_join(group: list[ToolCall], call: ToolCall) -> bool:
    """Return True if the call may run at the same time as the group."""
    for member in (*group, call):
        if member.tool is None or not member.tool.runs_in_parallel:
            return False

    return all(member.signature != call.signature for member in group)


def _is_terminal(call: ToolCall) -> bool:
    return call.tool is not None and call.tool.annotations.terminal_on_success


def _refuse_spent(ledger: Ledger, message: str) -> Refuse:
    return Refuse(502, tool_result.TOOL_BUDGET_EXHAUSTED, message, ledger.rounds, ledger.usage)
