"""The offline replay of a recorded turn.

It is the real turn, judge and dialect, under the agent's present manifest.

No provider and no service is asked, and nothing is written: the model says what it said, services
answer what they answered, and the clock shows what it showed. If the turn goes another way than it
went, it ends there, and names what was not recorded (docs/spec/inspect.md).

Replies of a live turn are shown as those of a resumed one are: each up to its first call. What was
shown of a reply that broke off is known of the turn's line of history alone.
"""

from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import msgspec
from msgspec.structs import replace

from claw_contract.base import JsonObject
from claw_contract.history import decode_recorded
from claw_contract.redaction.redactor import Redactor
from claw_contract.transcript.text import as_array, as_object
from claw_mediate.agents.directory import Agent
from claw_mediate.core import tool_result
from claw_mediate.core.http import build_error_body
from claw_mediate.core.tool_call import round_of_key
from claw_mediate.core.tool_catalog import ToolCatalog
from claw_mediate.core.turn import turn
from claw_mediate.core.types import (
    Deliver,
    ModelResponse,
    Refuse,
    ToolCall,
    ToolResult,
    add_usage,
    runner_usage,
)
from claw_mediate.dialects.base import Dialect, RunnerRequest
from claw_mediate.dialects.streams import NO_OPENING
from claw_mediate.providers.client import ProviderResponse, TransportFailure
from claw_mediate.providers.failover import ModelCall, ModelResult, parse_response
from claw_mediate.telemetry.event_log import encode_json
from claw_mediate.telemetry.history import body_for_history
from claw_mediate.turns.answer_stream import AnswerStream, streams_live
from claw_mediate.turns.checkpoint import TurnCheckpoint
from claw_mediate.turns.context import PreparedRequest, TurnResult
from claw_mediate.turns.driver import TurnDriver, drive
from claw_mediate.turns.history_lines import tool_trace, usage_members, usage_record
from claw_mediate.turns.ports import Ports
from claw_mediate.turns.shown_answer import ShownAnswer
from claw_state.journal import Journal

NOT_RECORDED = "not_recorded"
_NO_SECRETS = Redactor(())  # A recording holds no secret any more


class RecordedResponse(NamedTuple):
    """The response to one hidden request. ``status`` None: ``body`` says why there was none.

    ``size``: of the whole body.
    """

    status: int | None
    content_type: str
    body: bytes
    size: int
    latency_ms: int
    whole: bool = False
    """True if the body is the result as the model was told it in an earlier attempt."""


@dataclass(frozen=True, slots=True)
class RecordedTurn:
    """A turn as it was recorded: its line of history, the runner's request, and all hidden ones."""

    entry: JsonObject
    path: str
    body: bytes
    replies: Mapping[int, RecordedResponse]
    """The response of each round: the last one, since the others did not count."""
    answers: Mapping[tuple[int, str], Sequence[RecordedResponse]]
    """The answers of each round and tool, in the order of the calls."""

    def missing(self) -> list[str]:
        """Return what history says of the turn, and the recording does not hold."""
        lost: list[str] = []
        if not self.body:
            lost.append("the runner's request")

        for past in map(as_object, as_array(self.entry.get("tool_trace"))):
            number = _number(past, "round")
            if number not in self.replies:
                lost.append(f"the model's reply of round {number}")

            ran = Counter(str(call.get("name")) for call in _calls_that_ran(past))
            for name, count in ran.items():
                if len(self.answers.get((number, name), ())) < count:
                    lost.append(f"what {name} answered in round {number}")

        return lost


@dataclass(frozen=True, slots=True)
class ReplayOutcome:
    """The end of the turn as it is played now. ``entry`` is what its line of history would be."""

    status: int
    body: bytes
    entry: JsonObject
    missing: tuple[str, ...]  # What it needed and was not recorded


async def replay_turn(recording: RecordedTurn, agent: Agent, dialect: Dialect) -> ReplayOutcome:
    """Play a recorded turn again.

    Raises ``UnreadableRequestError`` and ``JsonSpliceError`` for a request that is none.
    """
    view = dialect.read_request(recording.body)
    room = dialect.max_tools - len(view.declared_tools)
    catalog = ToolCatalog.build(
        agent.tools, view.declared_tools, room, is_open=view.declares_elsewhere
    )
    write = dialect.build_request(view, catalog)

    stream = _open_stream(agent, dialect, view)
    peers = _Peers(recording, agent, stream)
    ports = Ports(peers.model, peers.tools, lambda: peers.clock)
    checkpoint = _NullCheckpoint(str(recording.entry.get("turn_id")))
    prepared = PreparedRequest(catalog, lambda _: write)
    driver = TurnDriver(dialect, prepared, ports, checkpoint, stream)
    commands = turn(agent.limits, peers.clock, keeps_rounds=view.keeps_rounds)
    outcome = await drive(commands, driver)
    if stream is not None:
        stream.drop(outcome.rounds)

    if isinstance(outcome, Deliver):
        usage = runner_usage(outcome.usage)
        body = dialect.write_response(outcome.response, view, usage, terminal=outcome.terminal)
        if stream is not None:
            stream.release(body, terminal=outcome.terminal)
            body = stream.shown.answer(body)
        result = TurnResult(200, ok=True, body=body)
    else:
        result = _refusal(outcome, recording.path)

    shown = {} if stream is None else stream.figures().shown
    about = {
        **_result_members(result, recording),
        "digest": agent.digest,
        "tools_offered": [offered.alias for offered in catalog.offered],
        "usage": usage_members(usage_record(add_usage(outcome.usage), len(outcome.usage))),
        "tool_trace": tool_trace(outcome.rounds, _NO_SECRETS, shown),
    }
    entry = {**recording.entry, **decode_recorded(encode_json(about))}
    return ReplayOutcome(result.status, result.body, entry, tuple(peers.missing))


def _refusal(outcome: Refuse, path: str) -> TurnResult:
    """Return the result of a turn that failed."""
    status, code = outcome.status, outcome.code
    own = outcome.failure.body if outcome.failure is not None else None
    body = own or build_error_body(path, status, code, outcome.message)
    return TurnResult(status, ok=False, body=body, code=code)


def _result_members(result: TurnResult, recording: RecordedTurn) -> JsonObject:
    """Return the members of a line of history that say how a turn ended."""
    response = {**as_object(recording.entry.get("response"))}
    if result.ok:
        response.pop("shown", None)  # It is of turns without an answer
    return {
        "status": "ok" if result.ok else "error",
        "status_code": result.status,
        "error": result.code,
        "response": {**response, "json": body_for_history(result.body, _NO_SECRETS)},
    }


def _open_stream(agent: Agent, dialect: Dialect, view: RunnerRequest) -> AnswerStream | None:
    """Return what shows the replies of a live turn; None for a turn that is buffered."""
    if not streams_live(agent, view):
        return None

    shown = ShownAnswer(dialect, replace(view, is_live=True), NO_OPENING)
    return AnswerStream(shown, _NO_SECRETS, lambda: 0.0, shows=agent.preamble == "show")


class _Peers:
    """The model and the services, from the recording; and the turn's clock."""

    def __init__(self, recording: RecordedTurn, agent: Agent, stream: AnswerStream | None) -> None:
        self._recording = recording
        self._agent = agent
        self._stream = stream
        self._answers = {place: deque(answers) for place, answers in recording.answers.items()}
        trace = [as_object(past) for past in as_array(recording.entry.get("tool_trace"))]
        self._walls = [_number(past, "wall_time_ms") for past in trace]
        self._model_ms = [*map(_longest_model_ms, trace)]
        self._recorded_calls = {place: deque(calls) for place, calls in _calls(trace).items()}
        self.clock = 0.0
        self.missing: list[str] = []

    async def model(self, call: ModelCall) -> ModelResult:
        reply = self._recording.replies.get(call.round)
        if self.missing or reply is None:
            self.missing = self.missing or [f"the model's reply of round {call.round}"]
            message = f"the turn goes another way than it went: {self.missing[0]} is not recorded"
            return TransportFailure(NOT_RECORDED, message)

        latency_ms = min([reply.latency_ms, *self._model_ms[call.round - 1 : call.round]])
        self.clock = (sum(self._walls[: call.round - 1]) + latency_ms) / 1000
        if reply.status is None:
            reason = reply.body.decode(errors="replace")
            return TransportFailure(str(self._recording.entry.get("error")), reason)

        response = ProviderResponse(reply.status, reply.content_type, reply.body)
        result = parse_response(response, call.read)
        if self._stream is not None and isinstance(result, ModelResponse):
            self._stream.replay(reply.body)
        return result

    async def tools(self, call: ToolCall, key: str, seconds: float) -> ToolResult:
        assert call.tool is not None
        place = (round_of_key(key), call.canonical)
        answers = self._answers.get(place)
        calls = self._recorded_calls.get(place)
        recorded = answers.popleft() if answers else None
        known = calls.popleft() if calls else None
        if recorded is None:
            self.missing.append(f"what {call.canonical} answers in round {place[0]}")
            return tool_result.failure(call, NOT_RECORDED, "Nothing is recorded of this call.")

        own_ms = call.tool.annotations.timeout_ms
        allowed = seconds if own_ms is None else min(seconds, own_ms / 1000)
        took_too_long = recorded.status is not None and recorded.latency_ms > allowed * 1000
        if took_too_long:
            return replace(tool_result.timeout(call, allowed), latency_ms=recorded.latency_ms)

        limit = call.tool.annotations.max_result_bytes or self._agent.limits.result_bytes
        return replace(_answer(call, recorded, known, limit), latency_ms=recorded.latency_ms)


def _answer(
    call: ToolCall, recorded: RecordedResponse, known: JsonObject | None, limit: int
) -> ToolResult:
    """Return the result of a call, as its service's response is read now.

    Where no response was recorded, return what the model read then.
    """
    if recorded.status is not None and not recorded.whole:
        is_cut = recorded.size > len(recorded.body)
        cut = min(limit, len(recorded.body)) if is_cut else limit
        return tool_result.read_http_response(
            call, recorded.status, recorded.body, recorded.size, cut
        )

    if recorded.whole:
        envelope = as_object(decode_recorded(recorded.body))
    else:
        envelope = as_object(as_object(known).get("result"))
    ok = envelope.get("ok") is True
    code = as_object(envelope.get("error")).get("code")
    return ToolResult(
        call,
        msgspec.json.encode(envelope),
        ok,
        None if ok else str(code),
        envelope.get("status_code"),
        ran=True,
    )


def _longest_model_ms(past: JsonObject) -> int:
    """Return how long a round's reply took at most, on the turn's clock.

    While a reply flows to its runner, that clock stands still, and so does the round's wall time:
    it has the reply's time before that, and then the time of the calls, which ran side by side.
    """
    took = [_number(as_object(call), "latency_ms") for call in as_array(past.get("tool_calls"))]
    return max(_number(past, "wall_time_ms") - max(took, default=0), 0)


def _calls(trace: Sequence[JsonObject]) -> dict[tuple[int, str], list[JsonObject]]:
    """Return the recorded calls by round and tool, in their order."""
    calls: dict[tuple[int, str], list[JsonObject]] = {}
    for past in trace:
        for call in _calls_that_ran(past):
            place = (_number(past, "round"), str(call.get("name")))
            calls.setdefault(place, []).append(call)
    return calls


def _calls_that_ran(past: JsonObject) -> list[JsonObject]:
    calls = map(as_object, as_array(past.get("tool_calls")))
    return [call for call in calls if call.get("ran", True) is True]


def _number(values: JsonObject, name: str) -> int:
    value = values.get(name)
    return value if isinstance(value, int) else 0


class _NullCheckpoint(TurnCheckpoint):
    """A checkpoint that holds nothing and records nothing."""

    def __init__(self, turn_id: str) -> None:
        super().__init__(cast("Journal", None), turn_id, lambda _: None, "first")

    async def call(
        self, _round: int, _place: int, _call: ToolCall, run: Callable[[], Awaitable[ToolResult]]
    ) -> ToolResult:
        return await run()

    async def record_response(
        self, _round: int, _body: bytes, *, is_answer: bool = False
    ) -> None: ...
    async def record_unmade(self, _round: int, _place: int, _result: ToolResult) -> None: ...
    async def abandon(self) -> None: ...
