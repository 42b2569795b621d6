"""One model call of a turn: the provider that is asked, and what its result means to the turn."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import pytest

from claw_mediate.core.types import AskModel, ModelFailed, ModelResponse, ToolUse
from claw_mediate.dialects.base import Additions
from claw_mediate.providers.failover import ModelCall, ModelResult, ProviderResponse, parse_response
from claw_mediate.turns.context import PreparedRequest
from claw_mediate.turns.model_call import ModelCalls
from claw_mediate.turns.ports import Ports
from claw_mediate.turns.replayable import ReplayableReasoning
from tests.mediate.any_reply import CATALOG, DIALECTS, WIRES

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


def calls_of(
    name: str, provider: Provider, reasoning: ReplayableReasoning | None = None
) -> ModelCalls:
    dialect, wire = DIALECTS[name], WIRES[name]
    request = wire.request([wire.user("Go")], ["shell"], stream=False, more={})
    view = dialect.read_request(json.dumps(request).encode())
    variants = dialect.build_request(view, CATALOG, Additions())

    async def no_tools(*_: object) -> object:
        raise AssertionError("no tool is called")

    ports = Ports(
        provider.post,
        no_tools,  # type: ignore[arg-type] - never called
        lambda: 5.0,
        reasoning=reasoning or ReplayableReasoning(),
    )
    prepared = PreparedRequest(CATALOG, lambda _: variants, first=provider.maker)
    return ModelCalls(dialect, prepared, ports, may_retry=lambda: False)


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
