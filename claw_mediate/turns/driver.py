"""The driver of a turn: it carries out the turn's commands, and sends back what happened.

Time-outs and cancellation are its own.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import assert_never

import msgspec
from msgspec.structs import replace

from claw_contract.base import JsonObject
from claw_mediate.core import tool_result
from claw_mediate.core.http import read_error_message
from claw_mediate.core.observer import NO_OBSERVER, ResponseInfo, Subject, TurnObserver
from claw_mediate.core.tool_call import call_key, write_arguments
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
from claw_mediate.dialects.base import Dialect, UnreadableResponseError
from claw_mediate.http.large_bodies import compute
from claw_mediate.providers.failover import (
    ModelCall,
    ModelResult,
    ProviderResponse,
    TransportFailure,
)
from claw_mediate.turns.checkpoint import TurnCheckpoint
from claw_mediate.turns.context import PreparedRequest
from claw_mediate.turns.replayable import ReplayableReasoning

_ERRORS = range(HTTPStatus.BAD_REQUEST, 600)
_JSON = "application/json"
_MAX_ERROR_TEXT = 1000  # Characters of a provider's own words in an error of ours


type Model = Callable[[ModelCall], Awaitable[ModelResult]]
"""The port to the provider."""

type Tools = Callable[[ToolCall, str, float], Awaitable[ToolResult]]
"""The port to the services: call, key, seconds."""

type Note = Callable[[ModelResponse, Sequence[ToolResult]], Awaitable[None]]


async def _note_nothing(_response: ModelResponse, _results: Sequence[ToolResult]) -> None: ...


class Ports(msgspec.Struct, frozen=True):
    """Everything that a turn reaches outside itself."""

    model: Model
    tools: Tools
    now: Callable[[], float]
    observer: TurnObserver = NO_OBSERVER
    note_progress: Note = _note_nothing
    """Told of the last response that the provider has, and of what its calls gave so far.

    It is never told of an earlier response.
    """
    reasoning: ReplayableReasoning = msgspec.field(default_factory=ReplayableReasoning)
    report: Callable[[str], None] = lambda _: None
    """Told the name of an intervention."""


class Progress:
    """The state of a running turn that its runner is shown while it waits."""

    def __init__(self) -> None:
        self.note = "claw round=1 waiting=model"
        self.committed = asyncio.Event()
        """Set when the turn is past the point where its status is fixed."""
        self.headers: tuple[tuple[str, str], ...] = ()
        """Those of the last response of the model that the runner may see."""

    def set_waiting(self, round_number: int, what: str) -> None:
        self.note = f"claw round={round_number} waiting={what}"


class TurnDriver:
    """Runs the commands of one turn: model calls on one side, tool calls on the other."""

    def __init__(
        self,
        dialect: Dialect,
        prepared: PreparedRequest,
        ports: Ports,
        checkpoint: TurnCheckpoint,
    ) -> None:
        self._dialect = dialect
        self._prepared = prepared
        self._variants = prepared.build(prepared.first)
        self._ports = ports
        self._checkpoint = checkpoint

        self._messages: list[tuple[bytes, ...]] = []
        """The hidden messages of each round, as they were written once."""
        self._replayable_maker = ""
        """The provider and model that this model call asks for replayable responses.

        Such responses can be sent back whole. It is "" where none are asked for.
        """
        self._reported: set[str] = set()
        self._is_replaying = True
        """True until something new happens: an earlier attempt may have got later responses."""

        self.progress = Progress()
        self.rounds: tuple[Round, ...] = ()
        self.response: ModelResponse | None = None
        self.results: list[ToolResult] = []
        """The results of the open round: what a turn that is cut short has done."""
        self.is_stopping = False
        """True if the turn is cancelled because the proxy ends, and not because its runner left."""

    async def ask(self, command: AskModel) -> ModelReplied | ModelFailed:
        """Get one response of the model: the recorded one, or a new one in the turn's time left."""
        await self._record_unmade(command.rounds)
        self.rounds = command.rounds
        self.results = []
        if command.rounds:
            self.progress.committed.set()

        number = len(command.rounds) + 1
        recorded = await self._checkpoint.response(number)
        if recorded is not None:
            return await self._replay(number, recorded)

        self._is_replaying = False
        if command.rounds:
            last = command.rounds[-1]
            await self._ports.note_progress(last.response, last.results)
        self.progress.set_waiting(number, "model")

        answer = await self._call_model(command, number)
        match answer:
            case ModelResponse():
                return await self._accept(command, number, answer)
            case ProviderResponse():
                return _upstream_error(answer, self._ports.now())
            case TransportFailure(code, message, status, retry_after):
                now = self._ports.now()
                return ModelFailed(status, code, message, now, retry_after=retry_after)
            case _:
                assert_never(answer)

    async def _replay(self, number: int, recorded: bytes) -> ModelReplied:
        """Return the response that an earlier attempt at this turn got in a round."""
        self.progress.committed.set()
        self._ports.observer.report_replayed(
            Subject("model", number, ""), ResponseInfo(HTTPStatus.OK, _JSON, recorded)
        )

        response = replace(self._read(recorded), maker=self._prepared.first)
        self.response = await self._checkpoint.mark_sent(number, response)
        return ModelReplied(self.response, self._ports.now())

    async def _call_model(self, command: AskModel, number: int) -> ModelResult:
        write = partial(self._write_request, command.tool_use, self._hidden(command))
        body = await compute(self._prepared.size, write)
        call = ModelCall(
            body,
            read=self._read,
            may_retry=self.progress.committed.is_set,
            until=asyncio.get_running_loop().time() + command.seconds,
            round=number,
            observer=self._ports.observer,
            adapt=partial(self._adapt, command, body),
        )

        try:
            async with asyncio.timeout_at(call.until):
                answer = await self._ports.model(call)
                if isinstance(answer, ProviderResponse) and self._must_ask_again(answer):
                    answer = await self._ports.model(call)
        except TimeoutError:
            message = "the model did not answer within the turn's time"
            return TransportFailure("total_timeout", message)
        return answer

    async def _accept(
        self, command: AskModel, number: int, response: ModelResponse
    ) -> ModelReplied:
        """Record a response before anything follows from it."""
        self.response = response
        self.progress.headers = response.headers

        is_answer = not (response.calls or command.keeps_rounds)
        await self._checkpoint.record_response(number, response.body, is_answer=is_answer)
        await self._ports.note_progress(response, ())
        return ModelReplied(response, self._ports.now())

    async def run(self, command: RunTools) -> ToolsAnswered:
        """Run calls side by side.

        When the runner leaves, cancel reads, and let writes in flight finish.
        """
        self.progress.committed.set()
        self.progress.set_waiting(command.round, ",".join(call.canonical for call in command.calls))

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
        return ToolsAnswered(results, self._ports.now())

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

    def _write_request(self, tool_use: ToolUse, hidden: Sequence[bytes]) -> bytes:
        return self._dialect.write_request(self._variants(tool_use), hidden)

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

    def _hidden(self, command: AskModel) -> list[bytes]:
        """Return what the provider does not have of the rounds.

        Each round is written once, since rounds are only ever added.
        """
        if command.keeps_rounds and command.rounds:
            return [*self._dialect.write_answers(command.rounds[-1])]

        for past in command.rounds[len(self._messages) :]:
            self._messages.append(self._dialect.write_hidden_rounds([past], replayed=False))
            for loss in self._dialect.REPLAY_RULES.find_losses([past], replayed=False):
                self._ports.reasoning.note_missing(past.response.maker)
                self._report(loss)

        return [message for messages in self._messages for message in messages]

    def _adapt(self, command: AskModel, body: bytes, maker: str) -> bytes:
        """Return a request as a provider and model takes it: without the reasoning of others."""
        if not command.keeps_rounds and self._has_other_makers(command, maker):
            hidden = self._hidden_for(command, maker)
            request = self._prepared.build(maker)(command.tool_use)
            body = self._dialect.write_request(request, hidden)

        if not self._ports.reasoning.is_asked_for(maker):
            self._replayable_maker = ""
            return body

        self._replayable_maker = maker
        return self._dialect.REPLAY_RULES.ask_for_replayable(body)

    def _has_other_makers(self, command: AskModel, maker: str) -> bool:
        """Return whether the request was written for another maker, or holds a round of one."""
        is_other = self._prepared.first != maker
        return is_other or any(past.response.maker != maker for past in command.rounds)

    def _hidden_for(self, command: AskModel, maker: str) -> list[bytes]:
        """Return the hidden messages of all rounds without what only another maker takes back."""
        rules = self._dialect.REPLAY_RULES
        hidden: list[bytes] = []
        for past, messages in zip(command.rounds, self._messages, strict=True):
            whole = b",".join(messages)
            adapted = whole if past.response.maker == maker else rules.adapt(whole, "")
            if adapted == whole:
                hidden += messages
            else:
                hidden.append(adapted)
                self._report("reasoning_replay_dropped_failover")
        return hidden

    def _must_ask_again(self, answer: ProviderResponse) -> bool:
        """Return whether a request was refused only because it asked for replayable responses.

        Then this provider and model are not asked for them any more, so the call may succeed.
        """
        if not self._replayable_maker or answer.status != HTTPStatus.BAD_REQUEST:
            return False
        if not self._dialect.REPLAY_RULES.refuses_replayable(answer.body):
            return False

        self._ports.reasoning.note_refusal(self._replayable_maker)
        return True

    def _report(self, name: str) -> None:
        """Report an intervention, once in a turn."""
        if name not in self._reported:
            self._reported.add(name)
            self._ports.report(name)

    def now(self) -> float:
        """Return the time of the turn's clock, in seconds."""
        return self._ports.now()

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

    def _read(self, body: bytes) -> ModelResponse:
        """Read a response.

        One that can't be read may be an error with status 200: its own words go into the message.
        """
        try:
            return self._dialect.read_response(body, self._prepared.catalog)
        except UnreadableResponseError as unreadable:
            text = read_error_message(body)[:_MAX_ERROR_TEXT]
            message = f"{unreadable}: {text}" if text else str(unreadable)
            raise UnreadableResponseError(message) from None


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


def _upstream_error(answer: ProviderResponse, now: float) -> ModelFailed:
    """Pass an error on; any other status is no answer of a model, and becomes a 502."""
    code = f"provider_http_{answer.status}"
    message = f"the provider answered with status {answer.status}"
    if answer.status not in _ERRORS:
        return ModelFailed(502, code, message, now)

    return ModelFailed(
        answer.status,
        code,
        message,
        now,
        body=answer.body,
        content_type=answer.content_type,
        retry_after=answer.retry_after,
        headers=answer.headers,
    )
