"""Every rule of docs/spec/mediation.md section 4, as pure functions of the ledger.

the response has                           verdict
─────────────────────────────────────────
───────────────────────────────────────────────────────────── no calls
Finish(Deliver) native calls only                          Finish(Deliver): the runner runs them;
hidden rounds are kept any call, though tools are forbidden       Finish(Refuse)  → 502 managed
calls, rounds or time spent        AnswerAll: tool_budget_exhausted, then one last model call
                                           (``on_budget: error``: Finish(Refuse) → 502 at once)
more calls than one response may hold      AnswerAll: too_many_calls, to every call; nothing runs
native before a managed or unknown call    AnswerAll: managed_tools_first, to every call; nothing
runs a terminal call that is not the last       AnswerAll: terminal_on_success_order, to every call
managed and unknown, native ones behind    RunCalls: the prefix; the native suffix leaves the
transcript

Where the provider keeps every response as it was (``keeps_rounds``), nothing leaves the transcript:

managed and unknown, native ones behind    RunCalls: all; the native suffix is answered
managed_tools_first ours, and one that can't be answered       Finish(Refuse)  → 502

a call that is about to run                is answered without running when
─────────────────────────────────────────
───────────────────────────────────────────────────────────── the first of these that holds
time is spent · it is native · the tool is unknown · the arguments are not
                                           one JSON object · it is a repeat · they break the tool's schema
"""

import msgspec
from msgspec.structs import replace

from claw_contract.base import JsonObject
from claw_contract.manifest import Tool
from claw_mediate.core import tool_result
from claw_mediate.core.tool_call import find_violations
from claw_mediate.core.types import (
    Deliver,
    Limits,
    ModelResponse,
    Outcome,
    Refuse,
    Round,
    RunTools,
    ToolCall,
    ToolResult,
    ToolUse,
    UnreadableArguments,
)


class AnsweredCall(msgspec.Struct, frozen=True):
    result: ToolResult
    round: int


class Ledger(msgspec.Struct, frozen=True):
    """The state of one turn. Times are seconds of one clock, whose zero does not matter."""

    limits: Limits
    started_at: float
    now: float
    model_call_at: float
    rounds: tuple[Round, ...] = ()
    answered_calls: tuple[AnsweredCall, ...] = ()  # In the order of answering
    usage: tuple[JsonObject, ...] = ()
    tool_use: ToolUse = ToolUse.AS_REQUESTED
    # True if the provider keeps every response, so that nothing can be left out of the transcript
    keeps_rounds: bool = False

    @classmethod
    def start(cls, limits: Limits, now: float, *, keeps_rounds: bool = False) -> "Ledger":
        return cls(limits, started_at=now, now=now, model_call_at=now, keeps_rounds=keeps_rounds)

    @property
    def seconds_left(self) -> float:
        return self.started_at + self.limits.total_seconds - self.now

    @property
    def tool_seconds_left(self) -> float:
        """Seconds until the soft deadline: the time behind it is kept for the
        model's last response.
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
        """Return True if a call that may write ran in that call's service after it."""
        later = self.answered_calls[self.answered_calls.index(earlier) + 1 :]
        return any(
            past.result.ran and may_write(past.result.call, earlier.result.call.service)
            for past in later
        )

    def start_model_call(self) -> "Ledger":
        """Return the ledger of which the open round is timed from now."""
        return replace(self, model_call_at=self.now)

    def add_response(self, response: ModelResponse, now: float) -> "Ledger":
        return replace(self, now=now, usage=(*self.usage, response.usage))

    def add_results(self, results: tuple[ToolResult, ...], now: float) -> "Ledger":
        answered = (AnsweredCall(result, self.round) for result in results)
        return replace(self, now=now, answered_calls=(*self.answered_calls, *answered))

    def close_round(
        self, response: ModelResponse, results: tuple[ToolResult, ...], tool_use: ToolUse
    ) -> "Ledger":
        """Return the ledger with the open round closed; ``tool_use`` is for the next model call."""
        wall_ms = round((self.now - self.model_call_at) * 1000)
        return replace(
            self,
            rounds=(*self.rounds, Round(self.round, response, results, wall_ms)),
            tool_use=tool_use,
        )


def may_write(call: ToolCall, service: str) -> bool:
    """Return True if the call belongs to that service and is not known to be a read."""
    return call.tool is not None and call.service == service and call.tool.effect != "read"


# Calls of one response. A model that makes more has lost its way, and would overload the service.
MAX_CALLS = 128
MAX_IDLE_ROUNDS = 3  # Rounds in a row that only repeat calls, before the model must answer
NATIVE_CALL_UNANSWERABLE = "native_call_unanswerable"
MAX_READ_RETRIES = 2  # Runs of a read in one turn that follow a failed one


class Finish(msgspec.Struct, frozen=True):
    """The turn is over."""

    outcome: Outcome


class AnswerAll(msgspec.Struct, frozen=True):
    """Every call is answered by the proxy, and nothing runs."""

    results: tuple[ToolResult, ...]
    tool_use: ToolUse


class RunCalls(msgspec.Struct, frozen=True):
    """These calls are to be run, or answered without running, in order."""

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
        return Finish(
            _refuse_spent(
                ledger, "the model asked for tools after the turn's tool budget was spent"
            )
        )
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
        return AnswerAll(
            tuple(tool_result.tool_budget_exhausted(call) for call in calls), ToolUse.FORBIDDEN
        )
    if len(calls) > MAX_CALLS:
        return AnswerAll(
            tuple(tool_result.too_many_calls(call, MAX_CALLS) for call in calls), ledger.tool_use
        )
    prefix = calls[:ours]
    if any(call.owner == "native" for call in prefix):
        return AnswerAll(
            tuple(tool_result.managed_tools_first(call) for call in calls), ledger.tool_use
        )
    if any(_is_terminal(call) for call in calls[:-1]):
        return AnswerAll(
            tuple(tool_result.terminal_on_success_order(call) for call in calls), ledger.tool_use
        )
    return RunCalls(calls if ledger.keeps_rounds else prefix)


def next_step(ledger: Ledger, pending: tuple[ToolCall, ...]) -> AnswerOne | RunTools:
    """Answer the first pending call without running it, or run it now, with those
    behind it that may run beside it.
    """
    first, *rest = pending
    if (result := _answer_without_running(ledger, first)) is not None:
        return AnswerOne(result)
    group = [first]
    for call in rest:
        if len(group) >= ledger.limits.max_parallel or not _may_join(group, call):
            break
        if _answer_without_running(ledger, call) is not None:
            break
        group.append(call)
    return RunTools(
        tuple(group), ledger.round, min(ledger.limits.tool_seconds, ledger.tool_seconds_left)
    )


def tool_use_after(ledger: Ledger, results: tuple[ToolResult, ...]) -> ToolUse:
    """Return the tool use after a round: released once a managed call was answered,
    forbidden when time is spent.
    """
    if ledger.tool_seconds_left <= 0:
        return ToolUse.FORBIDDEN
    if _holds_repeats_only(results) and ledger.idle_rounds + 1 >= MAX_IDLE_ROUNDS:
        return ToolUse.FORBIDDEN
    return (
        ToolUse.RELEASED
        if any(result.call.owner == "managed" for result in results)
        else ledger.tool_use
    )


def ends_turn(results: tuple[ToolResult, ...]) -> bool:
    """Return True if the last call succeeded and its tool ends turns
    (``x-claw.terminalOnSuccess``).
    """
    last = results[-1]
    return last.ok and last.ran and _is_terminal(last.call)


def _answer_without_running(ledger: Ledger, call: ToolCall) -> ToolResult | None:
    """Return the result of a call that must not run: the second table above."""
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
    if (earlier := ledger.find_equal(call)) and not _may_repeat(ledger, call.tool, earlier):
        return tool_result.duplicate_tool_call(call, earlier[0].round, len(earlier))
    if violations := find_violations(call.tool, call.arguments):
        return tool_result.schema_validation(call, violations)
    return None


def _holds_repeats_only(results: tuple[ToolResult, ...]) -> bool:
    """Return whether every call but the runner's was a repeat."""
    ours = [result for result in results if result.call.owner != "native"]
    return bool(ours) and all(result.first_round is not None for result in ours)


def _may_repeat(ledger: Ledger, tool: Tool, earlier: tuple[AnsweredCall, ...]) -> bool:
    """Return True if an equal call may run again: the latest of ``earlier`` that
    was no repeat itself decides.
    """
    if tool.annotations.repeatable:
        return True
    tried = [past for past in earlier if past.result.first_round is None]
    retries = sum(not past.result.ok for past in tried[:-1])
    is_retry = not tried[-1].result.ok and retries < MAX_READ_RETRIES
    return tool.effect == "read" and (is_retry or ledger.wrote_since(tried[-1]))


def _may_join(group: list[ToolCall], call: ToolCall) -> bool:
    all_safe = all(one.tool is not None and one.tool.runs_in_parallel for one in (*group, call))
    return all_safe and all(one.signature != call.signature for one in group)


def _is_terminal(call: ToolCall) -> bool:
    return call.tool is not None and call.tool.annotations.terminal_on_success


def _refuse_spent(ledger: Ledger, message: str) -> Refuse:
    return Refuse(502, tool_result.TOOL_BUDGET_EXHAUSTED, message, ledger.rounds, ledger.usage)
