"""Driving a turn: its commands are carried out, with time-outs and cancellation, and it is told what happened."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, assert_never

from claw_mediate.core import tool_result
from claw_mediate.core.error_bodies import read_error_message
from claw_mediate.core.observer import NO_OBSERVER, ResponseInfo, Subject, TurnObserver
from claw_mediate.core.tool_call import call_key, write_arguments
from claw_mediate.core.tool_catalog import ToolCatalog
from claw_mediate.core.types import (
    AskModel,
    ModelFailed,
    ModelReplied,
    ModelResponse,
    Round,
    RunTools,
    ToolCall,
    ToolResult,
    ToolsAnswered,
    TurnGenerator,
)
from claw_mediate.dialects.base import Dialect, RequestVariants, UnreadableResponseError
from claw_mediate.providers.client import ProviderResponse, TransportFailure
from claw_mediate.providers.failover import ModelAnswer, ModelBody, ModelCall
from claw_mediate.turns.checkpoint import TurnCheckpoint

_ERRORS = range(400, 600)
_OK, _JSON = 200, "application/json"
_MOST_WORDS = 1000
"""Characters of a provider's own words in an error of ours."""


class Model(Protocol):
    """The port to the provider."""

    async def __call__(self, call: ModelCall) -> ModelAnswer: ...


class Tools(Protocol):
    """The port to the services."""

    async def __call__(self, call: ToolCall, key: str, seconds: float) -> ToolResult: ...


@dataclass(frozen=True, slots=True)
class Ports:
    """All that a turn reaches of the world."""

    model: Model
    tools: Tools
    now: Callable[[], float]
    onlooker: TurnObserver = NO_OBSERVER


class Progress:
    """What a waiting runner is told, and whether the turn is past the point where its status is fixed."""

    def __init__(self) -> None:
        self.note = "claw round=1 waiting=model"
        self.goes_on = asyncio.Event()

    def waiting(self, round_number: int, what: str) -> None:
        self.note = f"claw round={round_number} waiting={what}"


class TurnDriver:
    """One turn's world: the wire on one side, the services on the other."""

    def __init__(
        self,
        dialect: Dialect,
        catalog: ToolCatalog,
        offered: RequestVariants,
        ports: Ports,
        tape: TurnCheckpoint,
    ) -> None:
        self._dialect = dialect
        self._catalog = catalog
        self._offered = offered
        self._ports = ports
        self._tape = tape
        self.progress = Progress()
        self.rounds: tuple[Round, ...] = ()
        self._written: list[tuple[bytes, ...]] = []
        self.reply: ModelResponse | None = None
        self.answers: list[ToolResult] = []
        """Of the round that is open: what a turn that is cut short has done."""
        self.stopped = False
        """The proxy ends, and with it the turn: its runner has not left."""

    async def ask(self, command: AskModel) -> ModelReplied | ModelFailed:
        """One model call, within the time that is left of the turn."""
        await self._note_unmade(command.rounds)
        self.rounds, self.answers = command.rounds, []
        if command.rounds:
            self.progress.goes_on.set()
        number = len(command.rounds) + 1
        if (known := await self._tape.reply(number)) is not None:
            self.progress.goes_on.set()
            self._ports.onlooker.report_replayed(Subject("model", number, ""), ResponseInfo(_OK, _JSON, known))
            self.reply = await self._tape.marked(number, self._read(known))
            return ModelReplied(self.reply, self._ports.now())
        self.progress.waiting(number, "model")
        call = ModelCall(
            self._dialect.write_request(self._offered(command.tool_use), self._hidden(command.rounds)),
            read=self._read,
            again=self.progress.goes_on.is_set,
            until=asyncio.get_running_loop().time() + command.seconds,
            round=number,
            onlooker=self._ports.onlooker,
        )
        try:
            async with asyncio.timeout_at(call.until):
                answer = await self._ports.model(call)
        except TimeoutError:
            answer = TransportFailure("total_timeout", "the model did not answer within the turn's time")
        match answer:
            case ModelBody(reply):
                self.reply = reply
                await self._tape.replied(number, reply.body)
                return ModelReplied(reply, self._ports.now())
            case ProviderResponse():
                return _upstream_error(answer, self._ports.now())
            case TransportFailure():
                now, later = self._ports.now(), answer.retry_after
                return ModelFailed(answer.status, answer.code, answer.message, now, retry_after=later)
            case _:
                assert_never(answer)

    async def run(self, command: RunTools) -> ToolsAnswered:
        """Calls side by side. When the runner leaves, reads are dropped, and a write that is on its way may finish."""
        self.progress.goes_on.set()
        self.progress.waiting(command.round, ",".join(call.canonical for call in command.calls))
        tasks = {asyncio.ensure_future(self._run(command, call)): call for call in command.calls}
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError:
            await self._tape.abandoned()
            try:
                self.answers += [await _last_word(task, call) for task, call in tasks.items()]
            except asyncio.CancelledError:  # the proxy can wait no longer
                self.answers += [
                    task.result() if task.done() and not task.cancelled() else tool_result.outcome_unknown(call)
                    for task, call in tasks.items()
                ]
            raise
        answers = tuple(task.result() for task in tasks)
        self.answers += answers
        return ToolsAnswered(answers, self._ports.now())

    async def _note_unmade(self, rounds: tuple[Round, ...]) -> None:
        """Calls of a round that is closed which were not made, for want of time above all: the model hears of it now."""
        for past in rounds[len(self.rounds) :]:
            for answer in past.results:
                if answer.call.owner != "native" and not any(answer is made for made in self.answers):
                    await self._tape.not_made(past.number, _place(past.response, answer.call), answer)
                    self._ports.onlooker.report_not_made(
                        _about(past.number, answer), write_arguments(answer.call), answer.code or ""
                    )

    async def _run(self, command: RunTools, call: ToolCall) -> ToolResult:
        """One call, by its place among the calls of its reply: there it is found again."""
        assert self.reply is not None
        place = _place(self.reply, call)
        made = False

        async def run() -> ToolResult:
            nonlocal made
            made = True
            return await self._ports.tools(call, call_key(self._tape.turn_id, command.round, place), command.seconds)

        answer = await self._tape.call(command.round, place, call, run)
        if answer.replayed:
            self._ports.onlooker.report_replayed(
                _about(command.round, answer), ResponseInfo(answer.status_code or _OK, _JSON, answer.content)
            )
        elif not made:
            self._ports.onlooker.report_not_made(
                _about(command.round, answer), write_arguments(call), answer.code or ""
            )
        return answer

    def _hidden(self, rounds: tuple[Round, ...]) -> list[bytes]:
        """The messages of rounds, each of which is written once: rounds are only ever added."""
        for past in rounds[len(self._written) :]:
            self._written.append(self._dialect.write_hidden_rounds([past], replayed=False))
        return [message for messages in self._written for message in messages]

    def now(self) -> float:
        """The turn's clock."""
        return self._ports.now()

    def cut_short(self) -> tuple[Round, ...]:
        """The rounds of a turn that did not end by itself, the open one with what has run of it."""
        if self.reply is None or not self.answers:
            return self.rounds
        return (*self.rounds, Round(len(self.rounds) + 1, self.reply, tuple(self.answers)))

    def _read(self, body: bytes) -> ModelResponse:
        """A body that can't be read may be an error that came with a 200: then its own words are told."""
        try:
            return self._dialect.read_response(body, self._catalog)
        except UnreadableResponseError as unreadable:
            words = read_error_message(body)[:_MOST_WORDS]
            raise UnreadableResponseError(f"{unreadable}: {words}" if words else str(unreadable)) from None


async def drive[T](turn: TurnGenerator[T], world: TurnDriver) -> T:
    """Carry a turn out. Cancellation goes through to whatever it waits for."""
    heard: ModelReplied | ModelFailed | ToolsAnswered | None = None
    while True:
        try:
            command = next(turn) if heard is None else turn.send(heard)
        except StopIteration as end:
            outcome: T = end.value
            return outcome
        match command:
            case AskModel():
                heard = await world.ask(command)
            case RunTools():
                heard = await world.run(command)
            case _:
                assert_never(command)


def _about(round_number: int, answer: ToolResult) -> Subject:
    duplicate = answer.code == tool_result.DUPLICATE_TOOL_CALL
    return Subject("tool", round_number, answer.call.canonical, duplicate=duplicate)


def _place(reply: ModelResponse, call: ToolCall) -> int:
    return [made.id for made in reply.calls].index(call.id)


async def _last_word(task: asyncio.Future[ToolResult], call: ToolCall) -> ToolResult:
    """Of a call whose runner has left: a write's own answer (it is bounded by its time), of a read that it was dropped."""
    if call.tool is not None and call.tool.effect == "read" and not task.done():
        task.cancel()
        await asyncio.wait([task])
        return tool_result.canceled(call)
    await asyncio.wait([task])
    return task.result()


def _upstream_error(answer: ProviderResponse, now: float) -> ModelFailed:
    """An error is passed on; any other status is no answer of a model."""
    code, message = f"provider_http_{answer.status}", f"the provider answered with status {answer.status}"
    if answer.status not in _ERRORS:
        return ModelFailed(502, code, message, now)
    return ModelFailed(answer.status, code, message, now, answer.body, answer.content_type, answer.retry_after)
