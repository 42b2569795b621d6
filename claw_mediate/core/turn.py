"""One turn, start to end: ask the model, judge its response, run what must be run, ask again.

The generator yields commands and receives what happened, stamped with the time. It decides nothing
by itself (``judge`` does) and does nothing by itself (``turns.driver`` does), so a turn can be
played, replayed and tested as a value.

Termination: every pass of the loop ends the turn or closes a round; after ``max_rounds`` rounds, or
when time is spent, ``judge`` forbids tools, and a response to that ends the turn. So there are at
most ``max_rounds + 2`` model calls.
"""

from typing import assert_never

from claw_mediate.core.judge import (
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
from claw_mediate.core.types import (
    AskModel,
    Deliver,
    Limits,
    ModelFailed,
    ModelReplied,
    Outcome,
    Refuse,
    RunTools,
    ToolCall,
    ToolResult,
    ToolsAnswered,
    ToolUse,
    TurnGenerator,
)

TOTAL_TIMEOUT = "total_timeout"


def turn(limits: Limits, now: float, *, keeps_rounds: bool = False) -> TurnGenerator[Outcome]:
    """Play one turn under ``limits``. Never raises for anything that a model or a service does.

    ``keeps_rounds``: the provider keeps every response as it was, so that nothing can be left out
    of the transcript.
    """
    ledger = Ledger.start(limits, now, keeps_rounds=keeps_rounds)
    while ledger.seconds_left > 0:
        event = yield AskModel(ledger.rounds, ledger.tool_use, ledger.seconds_left, keeps_rounds)
        if isinstance(event, ModelFailed):
            return _refuse_failed(ledger, event)
        assert isinstance(event, ModelReplied)
        ledger, response = ledger.add_response(event.response, event.now), event.response
        match judge(ledger, response):
            case Finish(outcome):
                return outcome
            case AnswerAll(results, tool_use):
                ledger = ledger.close_round(response, results, tool_use)
            case RunCalls(calls):
                results, ledger = yield from _run(ledger, calls)
                closed = ledger.close_round(response, results, tool_use_after(ledger, results))
                if ends_turn(results):
                    return Deliver(response, closed.rounds, closed.usage, terminal=True)
                ledger = closed
            case verdict:
                assert_never(verdict)
        ledger = ledger.start_model_call()
    return Refuse(502, TOTAL_TIMEOUT, "the turn's time is spent", ledger.rounds, ledger.usage)


def _run(
    ledger: Ledger, calls: tuple[ToolCall, ...]
) -> TurnGenerator[tuple[tuple[ToolResult, ...], Ledger]]:
    results: tuple[ToolResult, ...] = ()
    new: tuple[ToolResult, ...]
    while len(results) < len(calls):
        match next_step(ledger, calls[len(results) :]):
            case AnswerOne(result):
                new, now = (result,), ledger.now
            case RunTools() as command:
                event = yield command
                assert isinstance(event, ToolsAnswered)
                new, now = event.results, event.now
            case step:
                assert_never(step)
        results, ledger = (*results, *new), ledger.add_results(new, now)
    return results, ledger


def _refuse_failed(ledger: Ledger, failure: ModelFailed) -> Refuse:
    """Pass a provider's error on with its status; in the last call of a turn whose
    budget is spent it is a 502.
    """
    if ledger.tool_use is ToolUse.FORBIDDEN:
        message = (
            f"the turn's tool budget was spent, and its last model call failed: {failure.message}"
        )
        return Refuse(502, failure.code, message, ledger.rounds, ledger.usage)
    return Refuse(
        failure.status, failure.code, failure.message, ledger.rounds, ledger.usage, failure
    )
