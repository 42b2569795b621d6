"""The driver of a turn: it carries out the turn's commands, and sends back what happened.

Time-outs and cancellation are its own.
"""

import asyncio
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import assert_never

from msgspec.structs import replace

from claw_contract.base import JsonObject
from claw_mediate.core import tool_result
from claw_mediate.core.observer import ResponseInfo, Subject
from claw_mediate.core.tool_call import call_key, write_arguments
from claw_mediate.core.turn_clock import TurnClock
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
    ToolUse,
    TurnGenerator,
)
from claw_mediate.dialects.base import Dialect
from claw_mediate.turns.answer_stream import AnswerStream
from claw_mediate.turns.checkpoint import TurnCheckpoint
from claw_mediate.turns.context import PreparedRequest
from claw_mediate.turns.model_call import ModelCalls, Progress
from claw_mediate.turns.ports import Ports

_JSON = "application/json"
CALL_AFTER_EARLY_NATIVE = "call_after_early_native"


class TurnDriver:
    """Runs the commands of one turn: model calls on one side, tool calls on the other.

    ``stream`` is told of each reply whose verdict is known; None if the runner asked for no stream.
    """

    def __init__(
        self,
        dialect: Dialect,
        prepared: PreparedRequest,
        ports: Ports,
        checkpoint: TurnCheckpoint,
        stream: AnswerStream | None = None,
    ) -> None:
        self._dialect = dialect
        self._catalog = prepared.catalog
        self._first_maker = prepared.first_maker
        self._ports = ports
        self._checkpoint = checkpoint
        self._stream = stream
        self._is_replaying = True
        """True until something new happens: an earlier attempt may have got later responses."""

        self.progress = Progress()
        self._clock = TurnClock(ports.now)
        self._model = ModelCalls(dialect, prepared, ports, self.progress, self._clock)
        self.rounds: tuple[Round, ...] = ()
        self.response: ModelResponse | None = None
        self.results: list[ToolResult] = []
        """The results of the open round: what a turn that is cut short has done."""
        self.unrecorded_responses = 0
        """Responses that a later attempt asks for again, and pays for again."""
        self.is_stopping = False
        """True if the turn is cancelled because the proxy ends, and not because its runner left."""

    async def ask(self, command: AskModel) -> ModelReplied | ModelFailed:
        """Get one response of the model: the recorded one, or a new one in the turn's time left."""
        await self._record_unmade(command.rounds)
        self.rounds = command.rounds
        self.results = []
        if command.rounds:
            self.progress.committed.set()
        if self._stream is not None:
            self._stream.drop(command.rounds)

        number = len(command.rounds) + 1
        recorded = await self._checkpoint.response(number)
        if recorded is not None:
            return await self._replay(number, recorded)

        self._is_replaying = False
        if command.rounds:
            last = command.rounds[-1]
            await self._ports.note_progress(last.response, last.results)
        self.progress.set_waiting(number)

        answer = await self._model.ask(command, number)
        if isinstance(answer, ModelFailed):
            return answer
        return await self._accept(command, number, answer)

    async def _replay(self, number: int, recorded: bytes) -> ModelReplied:
        """Return the response that an earlier attempt at this turn got in a round."""
        self.progress.committed.set()
        self._ports.observer.report_replayed(
            Subject("model", number, ""), ResponseInfo(HTTPStatus.OK, _JSON, recorded)
        )

        response = replace(self._model.read(recorded), maker=self._first_maker)
        self.response = await self._checkpoint.mark_sent(number, response)
        if self._stream is not None:
            self._stream.replay(recorded)
        return ModelReplied(self.response, self._clock.now())

    async def _accept(
        self, command: AskModel, number: int, response: ModelResponse
    ) -> ModelReplied:
        """Record a response before anything follows from it."""
        if self._stream is not None and self._stream.has_shown_call:
            response = self._leave_late_calls(response)
        self.response = response
        self.progress.headers = response.headers

        if _ends_in_vain(command, response):
            # Recorded, it would end every later attempt, too: it is asked for again.
            self.unrecorded_responses += 1
        else:
            is_answer = not (response.calls or command.keeps_rounds)
            await self._checkpoint.record_response(number, response.body, is_answer=is_answer)
        await self._ports.note_progress(response, ())
        has_flowed = self._stream is not None and self._stream.has_shown
        return ModelReplied(response, self._clock.now(), has_flowed)

    def _leave_late_calls(self, response: ModelResponse) -> ModelResponse:
        """Return a response whose first calls the runner has already.

        It is the answer, so that a call of ours behind them is never run, and leaves it.
        """
        first = next(
            (place for place, call in enumerate(response.calls) if call.owner != "native"), None
        )
        if first is None:
            return response

        self._ports.report(CALL_AFTER_EARLY_NATIVE)
        kept = self._dialect.keep_calls(response, self._catalog, first)
        return replace(kept, maker=response.maker, headers=response.headers)

    async def run(self, command: RunTools) -> ToolsAnswered:
        """Run calls side by side.

        When the runner leaves, cancel reads, and let writes in flight finish.
        """
        self.progress.committed.set()
        self.progress.set_waiting(command.round, [call.canonical for call in command.calls])
        if self._stream is not None:
            self._stream.note_verdict()

        tasks = {asyncio.ensure_future(self._run(command, call)): call for call in command.calls}
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError:
            await self._add_results_of_cancelled(tasks)
            raise

        results = tuple(task.result() for task in tasks)
        self._add(results)
        if self.response is not None and not self._is_replaying:
            await self._ports.note_progress(self.response, self.results)
        return ToolsAnswered(results, self._clock.now())

    async def _add_results_of_cancelled(
        self, tasks: Mapping[asyncio.Task[ToolResult], ToolCall]
    ) -> None:
        """Add what came of calls whose runner has left."""
        await self._checkpoint.abandon()
        try:
            # A write that is on its way may still take effect, so its result is waited for and
            # journaled; a read is dropped.
            self._add([await _final_result(task, call) for task, call in tasks.items()])
        except asyncio.CancelledError:  # the proxy can wait no longer
            for task, call in tasks.items():
                has_result = task.done() and not task.cancelled()
                self._add([task.result() if has_result else tool_result.outcome_unknown(call)])

    def _add(self, results: Sequence[ToolResult]) -> None:
        self.results += results
        if not all(result.replayed for result in results):
            self._is_replaying = False

    async def _record_unmade(self, rounds: tuple[Round, ...]) -> None:
        """Record the calls of closed rounds that were not made, mostly for want of time.

        The model is shown now that they were not.
        """
        for past in rounds[len(self.rounds) :]:
            places = _places(past.response)
            for result in past.results:
                was_made = any(result is known for known in self.results)
                if was_made or result.call.owner == "native":
                    continue

                place = places[result.call.id]
                await self._checkpoint.record_unmade(past.number, place, result)
                self._report_not_made(past.number, result)

    async def _run(self, command: RunTools, call: ToolCall) -> ToolResult:
        assert self.response is not None
        place = _places(self.response)[call.id]
        is_made = False

        async def run() -> ToolResult:
            nonlocal is_made
            is_made = True
            key = call_key(self._checkpoint.turn_id, command.round, place)
            return await self._ports.tools(call, key, command.seconds)

        result = await self._checkpoint.call(command.round, place, call, run)
        if result.replayed:
            status = result.status_code or HTTPStatus.OK
            self._ports.observer.report_replayed(
                _subject(command.round, result), ResponseInfo(status, _JSON, result.content)
            )
        elif not is_made:
            self._report_not_made(command.round, result)
        return result

    def _report_not_made(self, round_number: int, result: ToolResult) -> None:
        arguments = write_arguments(result.call)
        self._ports.observer.report_not_made(
            _subject(round_number, result), arguments, result.code or ""
        )

    def now(self) -> float:
        """Return the time of the turn's clock, in seconds."""
        return self._clock.now()

    def partial_rounds(self) -> tuple[Round, ...]:
        """Return the rounds of a turn that did not end by itself.

        The open round has the results of what has run of it.
        """
        if self.response is None or not self.results:
            return self.rounds
        return (*self.rounds, self._open_round(self.response))

    def usage(self) -> tuple[JsonObject, ...]:
        """Return the usage of each response so far, in their order."""
        responses = [past.response for past in self.rounds]
        if self.response is not None and not any(self.response is known for known in responses):
            responses.append(self.response)
        return tuple(response.usage for response in responses)

    def lost_usage(self) -> tuple[JsonObject, ...]:
        """Return the usage of each reply that has no end, and yet is paid for; {} if unknown."""
        lost = self._model.lost_usage
        return () if lost is None else (lost,)

    def last_round(self) -> Round | None:
        """Return the last response that the provider has, as far as it is answered.

        Return None if that is not known: while a turn is replayed, an earlier attempt at it may
        have got later responses.
        """
        if self.response is None or self._is_replaying:
            return None
        if self.rounds and self.rounds[-1].response is self.response:
            return self.rounds[-1]
        return self._open_round(self.response)

    def _open_round(self, response: ModelResponse) -> Round:
        return Round(len(self.rounds) + 1, response, tuple(self.results))


async def drive[T](turn: TurnGenerator[T], driver: TurnDriver) -> T:
    """Run a turn to its end. Cancellation goes through to whatever it waits for."""
    event: ModelReplied | ModelFailed | ToolsAnswered | None = None
    while True:
        try:
            command = next(turn) if event is None else turn.send(event)
        except StopIteration as end:
            outcome: T = end.value
            return outcome

        match command:
            case AskModel():
                event = await driver.ask(command)
            case RunTools():
                event = await driver.run(command)
            case _:
                assert_never(command)


def _ends_in_vain(command: AskModel, response: ModelResponse) -> bool:
    """Return whether a response asks for tools though none may be called any more.

    What a provider has in its conversation stays there, and is not asked for again.
    """
    is_last = command.tool_use is ToolUse.FORBIDDEN and not command.keeps_rounds
    return is_last and bool(response.calls)


def _subject(round_number: int, result: ToolResult) -> Subject:
    duplicate = result.code == tool_result.DUPLICATE_TOOL_CALL
    return Subject("tool", round_number, result.call.canonical, duplicate=duplicate)


def _places(response: ModelResponse) -> dict[str, int]:
    """Return the place of each call by its id: the first one, if a model has used an id twice."""
    places: dict[str, int] = {}
    for place, call in enumerate(response.calls):
        places.setdefault(call.id, place)
    return places


async def _final_result(task: asyncio.Future[ToolResult], call: ToolCall) -> ToolResult:
    """Return the result of a call whose runner has left.

    A write is given its time, and its own result counts; a read is canceled.
    """
    is_read = call.tool is not None and call.tool.effect == "read"
    if is_read and not task.done():
        task.cancel()
        await asyncio.wait([task])
        return tool_result.canceled(call)

    await asyncio.wait([task])
    return task.result()
