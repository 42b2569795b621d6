"""The model calls of one turn: what each is sent, and what its result means to the turn.

A request holds the hidden messages of the turn's rounds. It is adapted to the provider and model
that is asked, and asked again without what only that one refuses.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from typing import assert_never

from msgspec.structs import replace

from claw_contract.base import JsonObject
from claw_mediate.core.http import read_error_message
from claw_mediate.core.json_pieces import join_pieces
from claw_mediate.core.turn_clock import TurnClock
from claw_mediate.core.types import AskModel, ModelFailed, ModelResponse, ToolUse
from claw_mediate.dialects.base import Dialect, UnreadableResponseError
from claw_mediate.dialects.streams import ReplySink
from claw_mediate.http.large_bodies import compute
from claw_mediate.providers.client import CutReply, ProviderResponse, TransportFailure
from claw_mediate.providers.failover import ModelCall, ModelResult, lift_timeout
from claw_mediate.providers.live_reply import LiveReply, RunnerHeaders
from claw_mediate.turns.billing import read_usage
from claw_mediate.turns.context import PreparedRequest
from claw_mediate.turns.ports import Ports

_ERRORS = range(HTTPStatus.BAD_REQUEST, 600)
_REFUSALS = (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY)
_MAX_ERROR_TEXT = 1000  # Characters of a provider's own words in an error of ours


class Progress:
    """The state of a running turn that its runner is shown while it waits."""

    def __init__(self) -> None:
        self._round = 1
        self._tools: tuple[str, ...] = ()
        self.committed = asyncio.Event()
        """Set when the turn is past the point where its status is fixed."""
        self.headers: tuple[tuple[str, str], ...] = ()
        """Those of the last response of the model that the runner may see."""

    def set_waiting(self, round_number: int, tools: Sequence[str] = ()) -> None:
        """Note that the turn waits for these tools, or for the model if there are none."""
        self._round = round_number
        self._tools = tuple(tools)

    def note(self, *, names_tools: bool) -> str:
        """Return what the turn waits for, in one line."""
        waiting = "model"
        if self._tools:
            waiting = ",".join(self._tools) if names_tools else "tool"
        return f"claw round={self._round} waiting={waiting}"


class ModelCalls:
    """Asks the model for the responses of one turn."""

    def __init__(
        self,
        dialect: Dialect,
        prepared: PreparedRequest,
        ports: Ports,
        progress: Progress,
        clock: TurnClock,
    ) -> None:
        self._dialect = dialect
        self._prepared = prepared
        self._build = prepared.build
        self._write = prepared.build(prepared.first_maker)
        self._ports = ports
        self._progress = progress
        self._clock = clock
        self.lost_usage: JsonObject | None = None
        """The usage of a reply that ended this turn without an end of its own; {} if unknown."""

        self._messages: list[tuple[bytes, ...]] = []
        """The hidden messages of each round, as they were written once."""
        self._replayable_maker = ""
        """The provider and model that this model call asks for replayable responses.

        Such responses can be sent back whole. It is "" where none are asked for.
        """
        self._usage_maker = ""
        """The provider and model that this model call asks for the usage of its stream."""
        self._flow_seconds = 0.0  # Of all replies of the turn so far
        self._reported: set[str] = set()

    async def ask(self, command: AskModel, number: int) -> ModelResponse | ModelFailed:
        """Get a new response of the model, in the turn's time left. ``number``: of the round."""
        answer = await self._call(command, number)
        match answer:
            case ModelResponse():
                return answer
            case ProviderResponse():
                return _upstream_error(answer, self._clock.now())
            case TransportFailure(code, message, status, retry_after):
                now = self._clock.now()
                return ModelFailed(status, code, message, now, retry_after=retry_after)
            case CutReply():
                self.lost_usage = read_usage(answer.usage) or {}
                return _cut_reply(answer, self._clock.now())
            case _:
                assert_never(answer)

    def read(self, body: bytes) -> ModelResponse:
        """Read a response.

        One that can't be read may be an error with status 200: its own words go into the message.
        """
        try:
            return self._dialect.read_response(body, self._prepared.catalog)
        except UnreadableResponseError as unreadable:
            text = read_error_message(body)[:_MAX_ERROR_TEXT]
            message = f"{unreadable}: {text}" if text else str(unreadable)
            raise UnreadableResponseError(message) from None

    async def _call(self, command: AskModel, number: int) -> ModelResult:
        until = asyncio.get_running_loop().time() + command.seconds
        try:
            async with asyncio.timeout_at(until) as turn_limit:
                call = await self._write_call(command, number, until)
                answer = await self._post(command, call, turn_limit)
                if await self._leave_out_refused_reasoning(command, answer):
                    call = await self._write_call(command, number, until)
                    answer = await self._post(command, call, turn_limit)
                return answer
        except TimeoutError:
            message = "the model did not answer within the turn's time"
            return TransportFailure("total_timeout", message)

    async def _write_call(self, command: AskModel, number: int, until: float) -> ModelCall:
        write = partial(self._write_request, command.tool_use, self._hidden(command))
        body = await compute(self._prepared.size, write)
        return ModelCall(
            body,
            read=self.read,
            may_retry=self._progress.committed.is_set,
            until=until,
            round=number,
            observer=self._ports.observer,
            adapt=partial(self._adapt, command, body),
        )

    async def _leave_out_refused_reasoning(self, command: AskModel, answer: ModelResult) -> bool:
        """Return whether a request goes without reasoning that its runner sent back, from now on.

        A provider has refused it, and no stored turn explains it (docs/spec/mediation.md section
        7): the rounds that it belongs to are lost.
        """
        build = self._prepared.build_explained
        if build is None or self._build is build:
            return False
        if not isinstance(answer, ProviderResponse) or answer.status != HTTPStatus.BAD_REQUEST:
            return False
        if not self._dialect.replay_rules.refuses_reasoning(answer.body):
            return False

        write = await compute(self._prepared.size, partial(build, self._prepared.first_maker))
        if write(command.tool_use) == self._write(command.tool_use):
            return False

        self._build, self._write = build, write
        self._report("refused_reasoning_dropped")
        return True

    async def _post(
        self, command: AskModel, call: ModelCall, turn_limit: asyncio.Timeout
    ) -> ModelResult:
        sink = self._ports.sink
        if sink is None:
            return await self._ask_as_accepted(call)

        self._ports.on_ask(command.tool_use)
        return await self._post_live(call, sink, turn_limit)

    async def _ask_as_accepted(self, call: ModelCall) -> ModelResult:
        """Make a call; again without what it need not ask for, if that was refused."""
        answer = await self._ports.model(call)
        while isinstance(answer, ProviderResponse) and self._must_ask_again(answer):
            answer = await self._ports.model(call)
        return answer

    async def _post_live(
        self, call: ModelCall, sink: ReplySink, turn_limit: asyncio.Timeout
    ) -> ModelResult:
        """Make a call whose reply is shown while it comes.

        From the first piece that the runner has, the turn's time does not go on until the reply
        has ended, and the reply has limits of its own.
        """

        def on_shown() -> None:
            self._progress.committed.set()
            self._clock.stop()
            lift_timeout(turn_limit)

        whole_turn = self._ports.flow_limits
        flow_left = whole_turn.total - self._flow_seconds
        limits = whole_turn._replace(total=max(flow_left, 0.0))
        live = LiveReply(sink, limits, on_head=self._note_head, on_shown=on_shown)
        try:
            answer = await self._ask_as_accepted(replace(call, live=live))
        except asyncio.CancelledError:  # the runner has left, or the turn's time is over
            unknown: JsonObject | None = {} if live.has_shown else None
            self.lost_usage = read_usage(live.usage) or unknown
            raise
        finally:
            self._clock.start()
            self._flow_seconds += live.flow_seconds

        if isinstance(answer, ModelResponse) and not live.was_streamed:
            self._ports.on_json_body()
        return answer

    def _note_head(self, headers: RunnerHeaders) -> None:
        """Keep the headers of the reply that may be the first to be shown."""
        if not self._progress.committed.is_set():
            self._progress.headers = headers

    def _write_request(self, tool_use: ToolUse, hidden: Sequence[bytes]) -> bytes:
        return join_pieces(self._write(tool_use, hidden))

    def _hidden(self, command: AskModel) -> list[bytes]:
        """Return what the provider does not have of the rounds.

        Each round is written once, since rounds are only ever added.
        """
        if command.keeps_rounds and command.rounds:
            return [*self._dialect.write_answers(command.rounds[-1])]

        for past in command.rounds[len(self._messages) :]:
            self._messages.append(self._dialect.write_hidden_rounds([past], replayed=False))
            for loss in self._dialect.replay_rules.find_losses([past], replayed=False):
                self._ports.reasoning.note_missing(past.response.maker)
                self._report(loss)

        return [message for messages in self._messages for message in messages]

    def _adapt(self, command: AskModel, body: bytes, maker: str) -> bytes:
        """Return a request as a provider and model takes it: without the reasoning of others."""
        if not command.keeps_rounds and self._has_other_makers(command, maker):
            hidden = self._hidden_for(command, maker)
            write = self._build(maker)
            body = join_pieces(write(command.tool_use, hidden))

        self._usage_maker = ""
        if self._ports.sink is not None:
            if maker in self._ports.usage_refusals:
                body = self._dialect.without_stream_usage(body)
            else:
                self._usage_maker = maker

        if not self._ports.reasoning.is_asked_for(maker):
            self._replayable_maker = ""
            return body

        self._replayable_maker = maker
        return self._dialect.replay_rules.ask_for_replayable(body)

    def _has_other_makers(self, command: AskModel, maker: str) -> bool:
        """Return whether the request was written for another maker, or holds a round of one."""
        is_other = self._prepared.first_maker != maker
        return is_other or any(past.response.maker != maker for past in command.rounds)

    def _hidden_for(self, command: AskModel, maker: str) -> list[bytes]:
        """Return the hidden messages of all rounds without what only another maker takes back."""
        rules = self._dialect.replay_rules
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
        """Return whether a request was refused only for what it need not ask for.

        Then this provider and model are not asked for that any more, so the call may succeed.
        """
        return self._refuses_usage(answer) or self._refuses_replayable(answer)

    def _refuses_usage(self, answer: ProviderResponse) -> bool:
        if not self._usage_maker or answer.status not in _REFUSALS:
            return False
        if not self._dialect.refuses_stream_usage(answer.body):
            return False

        self._ports.usage_refusals.note(self._usage_maker)
        return True

    def _refuses_replayable(self, answer: ProviderResponse) -> bool:
        if not self._replayable_maker or answer.status != HTTPStatus.BAD_REQUEST:
            return False
        if not self._dialect.replay_rules.refuses_replayable(answer.body):
            return False

        self._ports.reasoning.note_refusal(self._replayable_maker)
        return True

    def _report(self, name: str) -> None:
        """Report an intervention, once in a turn."""
        if name not in self._reported:
            self._reported.add(name)
            self._ports.report(name)


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


def _cut_reply(answer: CutReply, now: float) -> ModelFailed:
    """Pass on the end of a reply that failed when the runner had its beginning."""
    return ModelFailed(
        answer.status, answer.code, answer.message, now, body=answer.error, is_cut=answer.is_cut
    )
