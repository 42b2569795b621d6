"""The driver of a turn: carries out its commands, with time-outs and cancellation, and sends back what happened."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import assert_never

from claw_mediate.core import tool_result
from claw_mediate.core.http import read_error_message
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
from claw_mediate.providers.failover import ModelCall, ModelResult, ProviderResponse, TransportFailure
from claw_mediate.turns.checkpoint import TurnCheckpoint

_ERRORS = range(400, 600)
_OK, _JSON = 200, "application/json"
_MAX_ERROR_TEXT = 1000  # Characters of a provider's own words in an error of ours


type Model = Callable[[ModelCall], Awaitable[ModelResult]]  # The port to the provider
type Tools = Callable[[ToolCall, str, float], Awaitable[ToolResult]]  # The port to the services: call, key, seconds


@dataclass(frozen=True, slots=True)
class Ports:
    """Everything that a turn reaches outside itself."""

    model: Model
    tools: Tools
    now: Callable[[], float]
    observer: TurnObserver = NO_OBSERVER


class Progress:
    """The note that a waiting runner is shown, and whether the turn is past the point where its status is fixed."""

    def __init__(self) -> None:
        self.note = "claw round=1 waiting=model"
        self.committed = asyncio.Event()

    def set_waiting(self, round_number: int, what: str) -> None:
        self.note = f"claw round={round_number} waiting={what}"


class TurnDriver:
    """Runs the commands of one turn: model calls on one side, tool calls on the other."""

    def __init__(
        self, dialect: Dialect, catalog: ToolCatalog, variants: RequestVariants, ports: Ports, checkpoint: TurnCheckpoint
    ) -> None:
        self._dialect = dialect
        self._catalog = catalog
        self._variants = variants
        self._ports = ports
        self._checkpoint = checkpoint
        self.progress = Progress()
        self.rounds: tuple[Round, ...] = ()
        self._messages: list[tuple[bytes, ...]] = []
        self.response: ModelResponse | None = None
        self.results: list[ToolResult] = []  # The results of the open round: what a turn that is cut short has done
        self.is_stopping = False
        """True if the turn is cancelled because the proxy ends, and not because its runner left."""

    async def ask(self, command: AskModel) -> ModelReplied | ModelFailed:
        """Make one model call, within the time that is left of the turn."""
        await self._record_unmade(command.rounds)
        self.rounds, self.results = command.rounds, []
        if command.rounds:
            self.progress.committed.set()
        number = len(command.rounds) + 1
        if (recorded := await self._checkpoint.response(number)) is not None:
            self.progress.committed.set()
            self._ports.observer.report_replayed(Subject("model", number, ""), ResponseInfo(_OK, _JSON, recorded))
            self.response = await self._checkpoint.mark_sent(number, self._read(recorded))
            return ModelReplied(self.response, self._ports.now())
        self.progress.set_waiting(number, "model")
        call = ModelCall(
            self._dialect.write_request(self._variants(command.tool_use), self._hidden(command.rounds)),
            read=self._read,
            may_retry=self.progress.committed.is_set,
            until=asyncio.get_running_loop().time() + command.seconds,
            round=number,
            observer=self._ports.observer,
        )
        try:
            async with asyncio.timeout_at(call.until):
                answer = await self._ports.model(call)
        except TimeoutError:
            answer = TransportFailure("total_timeout", "the model did not answer within the turn's time")
        match answer:
            case ModelResponse():
                self.response = answer
                await self._checkpoint.record_response(number, answer.body)
                return ModelReplied(answer, self._ports.now())
            case ProviderResponse():
                return _upstream_error(answer, self._ports.now())
            case TransportFailure():
                now = self._ports.now()
                return ModelFailed(answer.status, answer.code, answer.message, now, retry_after=answer.retry_after)
            case _:
                assert_never(answer)

    async def run(self, command: RunTools) -> ToolsAnswered:
        """Run calls side by side. When the runner leaves, cancel reads, and let writes in flight finish."""
        self.progress.committed.set()
        self.progress.set_waiting(command.round, ",".join(call.canonical for call in command.calls))
        tasks = {asyncio.ensure_future(self._run(command, call)): call for call in command.calls}
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError:
            await self._checkpoint.abandon()
            try:
                self.results += [await _final_result(task, call) for task, call in tasks.items()]
            except asyncio.CancelledError:  # the proxy can wait no longer
                self.results += [
                    task.result() if task.done() and not task.cancelled() else tool_result.outcome_unknown(call)
                    for task, call in tasks.items()
                ]
            raise
        results = tuple(task.result() for task in tasks)
        self.results += results
        return ToolsAnswered(results, self._ports.now())

    async def _record_unmade(self, rounds: tuple[Round, ...]) -> None:
        """Record the calls of closed rounds that were not made, mostly for want of time: the model is shown that now."""
        for past in rounds[len(self.rounds) :]:
            for result in past.results:
                if result.call.owner != "native" and not any(result is known for known in self.results):
                    await self._checkpoint.record_unmade(past.number, _place(past.response, result.call), result)
                    self._ports.observer.report_not_made(
                        _subject(past.number, result), write_arguments(result.call), result.code or ""
                    )

    async def _run(self, command: RunTools, call: ToolCall) -> ToolResult:
        assert self.response is not None
        place = _place(self.response, call)
        is_made = False

        async def run() -> ToolResult:
            nonlocal is_made
            is_made = True
            return await self._ports.tools(call, call_key(self._checkpoint.turn_id, command.round, place), command.seconds)

        result = await self._checkpoint.call(command.round, place, call, run)
        if result.replayed:
            self._ports.observer.report_replayed(
                _subject(command.round, result), ResponseInfo(result.status_code or _OK, _JSON, result.content)
            )
        elif not is_made:
            self._ports.observer.report_not_made(_subject(command.round, result), write_arguments(call), result.code or "")
        return result

    def _hidden(self, rounds: tuple[Round, ...]) -> list[bytes]:
        """Return the messages of rounds; each round is written once, since rounds are only ever added."""
        for past in rounds[len(self._messages) :]:
            self._messages.append(self._dialect.write_hidden_rounds([past], replayed=False))
        return [message for messages in self._messages for message in messages]

    def now(self) -> float:
        """Return the time of the turn's clock, in seconds."""
        return self._ports.now()

    def partial_rounds(self) -> tuple[Round, ...]:
        """Return the rounds of a turn that did not end by itself, the open one with what has run of it."""
        if self.response is None or not self.results:
            return self.rounds
        return (*self.rounds, Round(len(self.rounds) + 1, self.response, tuple(self.results)))

    def _read(self, body: bytes) -> ModelResponse:
        """Read a response. One that can't be read may be an error with status 200: its own words go into the message."""
        try:
            return self._dialect.read_response(body, self._catalog)
        except UnreadableResponseError as unreadable:
            text = read_error_message(body)[:_MAX_ERROR_TEXT]
            raise UnreadableResponseError(f"{unreadable}: {text}" if text else str(unreadable)) from None


async def drive[T](turn: TurnGenerator[T], driver: TurnDriver) -> T:
    """Run a turn to its end. Cancellation goes through to whatever it waits for."""
    heard: ModelReplied | ModelFailed | ToolsAnswered | None = None
    while True:
        try:
            command = next(turn) if heard is None else turn.send(heard)
        except StopIteration as end:
            outcome: T = end.value
            return outcome
        match command:
            case AskModel():
                heard = await driver.ask(command)
            case RunTools():
                heard = await driver.run(command)
            case _:
                assert_never(command)


def _subject(round_number: int, result: ToolResult) -> Subject:
    duplicate = result.code == tool_result.DUPLICATE_TOOL_CALL
    return Subject("tool", round_number, result.call.canonical, duplicate=duplicate)


def _place(reply: ModelResponse, call: ToolCall) -> int:
    return [made.id for made in reply.calls].index(call.id)


async def _final_result(task: asyncio.Future[ToolResult], call: ToolCall) -> ToolResult:
    """Return the result of a call whose runner has left: a write's own, within its time; a read is canceled."""
    if call.tool is not None and call.tool.effect == "read" and not task.done():
        task.cancel()
        await asyncio.wait([task])
        return tool_result.canceled(call)
    await asyncio.wait([task])
    return task.result()


def _upstream_error(answer: ProviderResponse, now: float) -> ModelFailed:
    """Pass an error on; any other status is no answer of a model, and becomes a 502."""
    code, message = f"provider_http_{answer.status}", f"the provider answered with status {answer.status}"
    if answer.status not in _ERRORS:
        return ModelFailed(502, code, message, now)
    return ModelFailed(answer.status, code, message, now, answer.body, answer.content_type, answer.retry_after)
