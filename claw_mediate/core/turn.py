"""One turn, start to end: ask the model, judge its reply, run what must be run, ask again.

The generator yields what it wants of the world and is sent what happened, stamped with the time. It decides nothing by
itself (``judge`` does) and does nothing by itself (``io.drive`` does), so it can be played, replayed and tested as a value.

Termination: every pass of the loop ends the turn or closes a round; after ``max_rounds`` rounds, or when time is spent,
``judge`` forbids tools, and a reply to that ends the turn. So at most ``max_rounds + 2`` model calls.
"""

from __future__ import annotations

from typing import assert_never

from claw_mediate.core.judge import AnswerAll, AnswerOne, Finish, RunCalls, ends_turn, judge, next_step, tool_use_after
from claw_mediate.core.ledger import Ledger
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


def turn(limits: Limits, now: float) -> TurnGenerator[Outcome]:
    """Play one turn under ``limits``. Never raises for anything that a model or a service does."""
    ledger = Ledger.opened(limits, now)
    while ledger.seconds_left > 0:
        heard = yield AskModel(ledger.rounds, ledger.use, ledger.seconds_left)
        if isinstance(heard, ModelFailed):
            return _failed(ledger, heard)
        assert isinstance(heard, ModelReplied)
        ledger, reply = ledger.heard(heard.reply, heard.now), heard.reply
        match judge(ledger, reply):
            case Finish(outcome):
                return outcome
            case AnswerAll(answers, use):
                ledger = ledger.closed(reply, answers, use)
            case RunCalls(calls):
                answers, ledger = yield from _run(ledger, calls)
                closed = ledger.closed(reply, answers, tool_use_after(ledger, answers))
                if ends_turn(answers):
                    return Deliver(reply, closed.rounds, closed.usage, terminal=True)
                ledger = closed
            case verdict:
                assert_never(verdict)
        ledger = ledger.asking(ledger.now)
    return Refuse(502, TOTAL_TIMEOUT, "the turn's time is spent", ledger.rounds, ledger.usage)


def _run(ledger: Ledger, calls: tuple[ToolCall, ...]) -> TurnGenerator[tuple[tuple[ToolResult, ...], Ledger]]:
    answers: tuple[ToolResult, ...] = ()
    new: tuple[ToolResult, ...]
    while len(answers) < len(calls):
        match next_step(ledger, calls[len(answers) :]):
            case AnswerOne(answer):
                new, now = (answer,), ledger.now
            case RunTools() as command:
                heard = yield command
                assert isinstance(heard, ToolsAnswered)
                new, now = heard.answers, heard.now
            case step:
                assert_never(step)
        answers, ledger = (*answers, *new), ledger.answered(new, now)
    return answers, ledger


def _failed(ledger: Ledger, failure: ModelFailed) -> Refuse:
    """A provider's error is passed on with its status; one that comes in the last call of a spent turn is a 502."""
    if ledger.use is ToolUse.FORBIDDEN:
        message = f"the turn's tool budget was spent, and its last model call failed: {failure.message}"
        return Refuse(502, failure.code, message, ledger.rounds, ledger.usage)
    return Refuse(failure.status, failure.code, failure.message, ledger.rounds, ledger.usage, failure)
