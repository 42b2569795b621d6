"""One turn, start to end: ask the model, judge its response, run what must be run, ask again.

The generator yields commands and receives what happened, stamped with the time. It decides nothing
by itself (``judge`` does) and does nothing by itself (``turns.driver`` does), so a turn can be
played, replayed and tested as a value.

A turn ends. Every pass of the loop ends it or closes a round. After ``max_rounds`` rounds, or when
the time is spent, ``judge`` forbids tools, and the response to that ends the turn. So there are at
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
    TurnLimits,
)

TOTAL_TIMEOUT = "total_timeout"


def turn(limits: TurnLimits, now: float, *, keeps_rounds: bool = False) -> TurnGenerator[Outcome]:
    """Play one turn under ``limits``. Never raises for anything that a model or a service does.

    ``keeps_rounds``: the provider keeps every response as it was, so that nothing can be left out
    of the transcript.
    """
    ledger = Ledger.start(limits, now, keeps_rounds=keeps_rounds)

    while (seconds := ledger.model_seconds_left) > 0:
        event = yield AskModel(ledger.rounds, ledger.tool_use, seconds, keeps_rounds)
        if isinstance(event, ModelFailed):
            return _refuse_failed(ledger, event)

        assert isinstance(event, ModelReplied)
        response = event.response
        ledger = ledger.add_response(response, event.now, has_flowed=event.has_flowed)

        match judge(ledger, response):
            case Finish(outcome):
                return outcome
            case AnswerAll(results, tool_use):
                ledger = ledger.close_round(response, results, tool_use)
            case RunCalls(calls):
                results, ledger = yield from _run(ledger, calls)
                tool_use = tool_use_after(ledger, results)
                ledger = ledger.close_round(response, results, tool_use)
                if ends_turn(results):
                    return Deliver(response, ledger.rounds, ledger.usage, terminal=True)
            case verdict:
                assert_never(verdict)

        ledger = ledger.start_model_call()

    return Refuse(502, TOTAL_TIMEOUT, "the turn's time is spent", ledger.rounds, ledger.usage)


def _run(
    ledger: Ledger, calls: tuple[ToolCall, ...]
) -> TurnGenerator[tuple[tuple[ToolResult, ...], Ledger]]:
    """Answer all calls, in order. Return their results, and the ledger with them."""
    results: tuple[ToolResult, ...] = ()

    while len(results) < len(calls):
        pending = calls[len(results) :]
        match next_step(ledger, pending):
            case AnswerOne(result):
                answered = ToolsAnswered((result,), ledger.now)
            case RunTools() as command:
                event = yield command
                assert isinstance(event, ToolsAnswered)
                answered = event
            case step:
                assert_never(step)

        results = (*results, *answered.results)
        ledger = ledger.add_results(answered.results, answered.now)

    return results, ledger


def _refuse_failed(ledger: Ledger, failure: ModelFailed) -> Refuse:
    """Return the refusal that passes a provider's error on, with its status.

    In the last model call of a turn whose budget is spent it is a 502: the runner would take the
    provider's status for an answer to its own request. Not so if the reply was cut: the runner has
    its beginning.
    """
    if ledger.tool_use is ToolUse.FORBIDDEN and not failure.is_cut:
        message = (
            f"the turn's tool budget was spent, and its last model call failed: {failure.message}"
        )
        return Refuse(502, failure.code, message, ledger.rounds, ledger.usage)

    return Refuse(
        failure.status, failure.code, failure.message, ledger.rounds, ledger.usage, failure
    )
