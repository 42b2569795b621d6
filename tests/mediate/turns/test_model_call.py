"""One model call of a turn: the provider that is asked, and what its result means to the turn."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Awaitable, Callable, Sequence

import pytest

from claw_mediate.core.reply_events import ReplyEvent
from claw_mediate.core.turn_clock import TurnClock
from claw_mediate.core.types import (
    AskModel,
    ModelFailed,
    ModelResponse,
    ToolCall,
    ToolResult,
    ToolUse,
)
from claw_mediate.providers.client import CutReply, ProviderResponse
from claw_mediate.providers.failover import ModelCall, ModelResult, parse_response
from claw_mediate.providers.live_reply import FlowLimits, LiveReply
from claw_mediate.turns.context import PreparedRequest
from claw_mediate.turns.model_call import ModelCalls, Progress
from claw_mediate.turns.ports import Ports
from claw_mediate.turns.provider_memory import ReplayableReasoning
from tests.mediate.any_reply import CATALOG, DIALECTS, WIRES
from tests.mediate.providers.live import Sink
from tests.waiting import eventually_async

REFUSES_INCLUDE = b'{"error": {"message": "unsupported", "param": "include"}}'


class Provider:
    """A provider at the model port: it gives its answers in order, and keeps what it is sent."""

    def __init__(self, answers: Sequence[ProviderResponse], maker: str = "") -> None:
        self.answers = list(answers)
        self.maker = maker
        self.bodies: list[dict[str, object]] = []

    async def post(self, call: ModelCall) -> ModelResult:
        self.bodies.append(json.loads(call.adapt(self.maker) if call.adapt else call.body))
        if not self.answers:
            await asyncio.Event().wait()
        return parse_response(self.answers.pop(0), call.read)


async def no_tools(_call: ToolCall, _key: str, _seconds: float) -> ToolResult:
    raise AssertionError("no tool is called")


def calls_of(
    name: str, provider: Provider, reasoning: ReplayableReasoning | None = None
) -> ModelCalls:
    dialect, wire = DIALECTS[name], WIRES[name]
    request = wire.request([wire.user("Go")], ["shell"], stream=False, more={})
    view = dialect.read_request(json.dumps(request).encode())
    write = dialect.build_request(view, CATALOG)

    ports = Ports(
        provider.post,
        no_tools,
        lambda: 5.0,
        reasoning=reasoning or ReplayableReasoning(),
    )
    prepared = PreparedRequest(CATALOG, lambda _: write, first_maker=provider.maker)
    return ModelCalls(dialect, prepared, ports, Progress(), TurnClock(ports.now))


def ask(seconds: float = 10.0) -> AskModel:
    return AskModel(rounds=(), tool_use=ToolUse.AS_REQUESTED, seconds=seconds)


def answer(body: bytes, status: int = 200) -> ProviderResponse:
    return ProviderResponse(status, "application/json", body)


@pytest.mark.requirement("responses:reasoning-include")
async def test_a_request_refused_for_encrypted_reasoning_is_sent_again_without_it() -> None:
    reasoning = ReplayableReasoning()
    reasoning.note_missing("own/m")
    hello = WIRES["responses"].reply("Hello", [], {})
    provider = Provider([answer(REFUSES_INCLUDE, 400), answer(hello)], maker="own/m")

    reply = await calls_of("responses", provider, reasoning).ask(ask(), 1)

    assert isinstance(reply, ModelResponse)
    assert [body.get("include") for body in provider.bodies] == [
        ["reasoning.encrypted_content"],
        None,
    ]
    assert not reasoning.is_asked_for("own/m")


@pytest.mark.requirement("failure:bad-reply")
@pytest.mark.parametrize("name", WIRES)
async def test_an_error_with_status_200_is_told_in_its_own_words(name: str) -> None:
    provider = Provider([answer(b'{"error": {"message": "the model is asleep"}}')])

    reply = await calls_of(name, provider).ask(ask(), 1)

    assert isinstance(reply, ModelFailed)
    assert (reply.status, reply.now) == (502, 5.0)
    assert reply.message.endswith("the model is asleep")


@pytest.mark.requirement("failure:upstream-error-passed-on")
@pytest.mark.parametrize(("status", "shown"), [(429, 429), (503, 503), (302, 502)])
async def test_an_error_status_is_passed_on_and_any_other_is_a_502(status: int, shown: int) -> None:
    provider = Provider([answer(b"{}", status)])

    reply = await calls_of("openai", provider).ask(ask(), 1)

    assert isinstance(reply, ModelFailed)
    assert (reply.status, reply.code) == (shown, f"provider_http_{status}")
    assert reply.body == (b"{}" if shown == status else None)


@pytest.mark.requirement("budget:total")
async def test_a_model_call_ends_with_the_time_of_its_turn() -> None:
    reply = await calls_of("openai", Provider([])).ask(ask(seconds=0.01), 1)

    assert isinstance(reply, ModelFailed)
    assert (reply.status, reply.code) == (502, "total_timeout")


class Clock:
    """The time of a turn, as the test says."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds


class LiveProvider:
    """A provider that does with the live call what the test says."""

    def __init__(self, play: Callable[[LiveReply], Awaitable[ModelResult]]) -> None:
        self.play = play
        self.limits: list[FlowLimits] = []

    async def post(self, call: ModelCall) -> ModelResult:
        assert call.live is not None
        self.limits.append(call.live.limits)
        return await self.play(call.live)


def live_calls(
    provider: LiveProvider, sink: Sink, clock: Clock, limits: FlowLimits
) -> tuple[ModelCalls, Progress, TurnClock]:
    dialect, wire = DIALECTS["openai"], WIRES["openai"]
    request = wire.request([wire.user("Go")], ["shell"], stream=True, more={})
    view = dialect.read_request(json.dumps(request).encode())
    write = dialect.build_request(view, CATALOG)
    ports = Ports(
        provider.post,
        no_tools,
        clock.now,
        sink=sink,
        flow_limits=limits,
        on_json_body=lambda: sink.shown.append("(json)"),
    )
    progress, turn_clock = Progress(), TurnClock(clock.now)
    prepared = PreparedRequest(CATALOG, lambda _: write)
    return ModelCalls(dialect, prepared, ports, progress, turn_clock), progress, turn_clock


def hello() -> ModelResponse:
    return DIALECTS["openai"].read_response(WIRES["openai"].reply("Hello", [], {}), CATALOG)


async def show(live: LiveReply, text: str) -> None:
    """Show a text of a reply, as the reader of streams does."""
    live.was_streamed = True
    live.sink.begin()
    live.sink.show([ReplyEvent("content", 0, {}, "content", text)])
    live.has_shown = True
    live.on_shown()


@pytest.mark.requirement("live:clock-stops")
async def test_the_turns_time_stands_still_while_a_reply_flows_and_goes_on_behind_it() -> None:
    clock = Clock()
    loop = asyncio.get_running_loop()

    async def play(live: LiveReply) -> ModelResult:
        clock.seconds += 1
        await show(live, "Hel")
        over = loop.time() + 0.05
        await eventually_async(lambda: loop.time() > over, "the turn's time is over")
        clock.seconds += 500
        live.flow_seconds = 300.0  # A slow runner took the rest
        return hello()

    limits = FlowLimits(total=1800.0)
    provider, sink = LiveProvider(play), Sink()
    calls, _, turn_clock = live_calls(provider, sink, clock, limits)
    reply = await calls.ask(ask(seconds=0.03), 1)
    assert isinstance(reply, ModelResponse)
    assert turn_clock.now() == 1.0
    clock.seconds += 2
    assert turn_clock.now() == 3.0

    await calls.ask(ask(seconds=0.03), 2)
    assert provider.limits == [limits, limits._replace(total=1500.0)]


@pytest.mark.requirement("live:clock-stops")
async def test_a_reply_that_has_shown_nothing_ends_with_the_turns_time() -> None:
    async def play(_live: LiveReply) -> ModelResult:
        await asyncio.Event().wait()
        raise AssertionError

    calls, _, _ = live_calls(LiveProvider(play), Sink(), Clock(), FlowLimits())
    reply = await calls.ask(ask(seconds=0.01), 1)
    assert isinstance(reply, ModelFailed)
    assert (reply.code, reply.is_cut, calls.lost_usage) == ("total_timeout", False, None)


@pytest.mark.requirement("live:cut-at-every-event")
@pytest.mark.parametrize(
    ("cut", "status"),
    [
        (CutReply("provider_idle", "silent", is_cut=True), 502),
        (CutReply("provider_http_529", "busy", is_cut=False, error=b"{}", status=529), 529),
    ],
)
async def test_a_cut_reply_is_a_failure_that_says_how_it_ends(cut: CutReply, status: int) -> None:
    async def play(live: LiveReply) -> ModelResult:
        await show(live, "Hel")
        return cut

    calls, _, _ = live_calls(LiveProvider(play), Sink(), Clock(), FlowLimits())
    reply = await calls.ask(ask(), 1)
    assert isinstance(reply, ModelFailed)
    assert (reply.status, reply.code) == (status, cut.code)
    assert (reply.is_cut, reply.body) == (cut.is_cut, cut.error)


@pytest.mark.requirement("live:cut-is-billed")
@pytest.mark.parametrize(
    ("told", "lost"), [(b'{"prompt_tokens": 7}', {"prompt_tokens": 7}), (None, {}), (b"[1", {})]
)
@pytest.mark.parametrize("leaves", [False, True])
async def test_a_cut_or_left_reply_leaves_the_usage_that_it_told(
    told: bytes | None, lost: dict[str, int], *, leaves: bool
) -> None:
    shown = asyncio.Event()

    async def play(live: LiveReply) -> ModelResult:
        await show(live, "Hel")
        live.usage = told
        shown.set()
        if leaves:
            await asyncio.Event().wait()
        return CutReply("provider_broke_off", "broke off", is_cut=True, usage=told)

    calls, _, _ = live_calls(LiveProvider(play), Sink(), Clock(), FlowLimits())
    asking = asyncio.ensure_future(calls.ask(ask(), 1))
    await shown.wait()
    if leaves:
        asking.cancel()
    await asyncio.wait([asking])
    assert calls.lost_usage == lost


@pytest.mark.requirement("live:json-body")
async def test_one_json_body_is_told_once() -> None:
    async def play(_live: LiveReply) -> ModelResult:
        return hello()

    sink = Sink()
    calls, _, _ = live_calls(LiveProvider(play), sink, Clock(), FlowLimits())
    assert isinstance(await calls.ask(ask(), 1), ModelResponse)
    assert sink.shown == ["(json)"]


@pytest.mark.requirement("live:shown-while-it-comes")
async def test_the_headers_of_the_first_reply_are_there_before_its_text() -> None:
    async def play(live: LiveReply) -> ModelResult:
        live.on_head((("x-request-id", f"req_{len(provider.limits)}"),))
        assert progress.headers == (("x-request-id", "req_1"),)
        progress.committed.set()
        await show(live, "Hel")
        return hello()

    provider = LiveProvider(play)
    calls, progress, _ = live_calls(provider, Sink(), Clock(), FlowLimits())
    for number in (1, 2):
        assert isinstance(await calls.ask(ask(), number), ModelResponse)


@pytest.mark.requirement("live:stream-usage-refused")
@pytest.mark.parametrize("status", [400, 422])
async def test_a_provider_that_refuses_stream_options_is_asked_without_them_from_then_on(
    status: int,
) -> None:
    refusal = ProviderResponse(status, "application/json", b"no stream_options here")
    dialect = dataclasses.replace(
        DIALECTS["openai"],
        without_stream_usage=lambda _body: b"{}",
        refuses_stream_usage=lambda error: b"stream_options" in error,
    )
    sent: list[bytes] = []

    async def post(call: ModelCall) -> ModelResult:
        body = call.body_for("own/m")
        sent.append(body)
        return hello() if body == b"{}" else refusal

    wire = WIRES["openai"]
    request = wire.request([wire.user("Go")], [], stream=True, more={})
    view = dialect.read_request(json.dumps(request).encode())
    write = dialect.build_request(view, CATALOG)
    ports = Ports(post, no_tools, lambda: 5.0, sink=Sink())
    prepared = PreparedRequest(CATALOG, lambda _: write, first_maker="own/m")
    calls = ModelCalls(dialect, prepared, ports, Progress(), TurnClock(ports.now))

    for number in (1, 2):
        assert isinstance(await calls.ask(ask(), number), ModelResponse)
    assert [body == b"{}" for body in sent] == [False, True, True]


@pytest.mark.requirement("live:stream-usage-refused")
async def test_any_other_refusal_is_passed_on() -> None:
    refusal = ProviderResponse(400, "application/json", b"your fault")

    async def play(_live: LiveReply) -> ModelResult:
        return refusal

    provider = LiveProvider(play)
    calls, _, _ = live_calls(provider, Sink(), Clock(), FlowLimits())
    assert isinstance(await calls.ask(ask(), 1), ModelFailed)
    assert len(provider.limits) == 1
