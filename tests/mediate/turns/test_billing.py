"""The charge for a model call, however it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from claw_mediate.core.cost import RequestSize
from claw_mediate.core.types import ModelResponse
from claw_mediate.providers.client import ProviderResponse, TransportFailure
from claw_mediate.providers.failover import ModelCall, ModelResult
from claw_mediate.telemetry.event_log import EventLog
from claw_mediate.turns.billing import Billing, read_usage
from claw_mediate.turns.budgets import Admission, Budgets, PriceList
from claw_mediate.turns.context import TurnContext
from claw_state.sqlite.connection import Database
from claw_state.sqlite.spending import SqliteSpending

USAGE = {"prompt_tokens": 0, "completion_tokens": 500_000}


@pytest.fixture
def billing(tmp_path: Path) -> Iterator[Billing]:
    (tmp_path / "prices.json").write_text('{"m": {"input": 0, "output": 2}}', encoding="utf-8")
    log = EventLog(lambda _: None)
    database = Database("")
    yield Billing(Budgets(SqliteSpending(database), PriceList(tmp_path, log), log))
    database.close()


def turn_of(admission: Admission | None) -> TurnContext:
    """Return as much of a turn as its bill needs."""
    return cast("TurnContext", SimpleNamespace(admission=admission, provider="x", model="m"))


def make_call() -> ModelCall:
    return ModelCall(
        b"{}", read=lambda body: ModelResponse(body, b"", ()), may_retry=lambda: True, until=0.0
    )


async def spend(billing: Billing, result: ModelResult | None) -> float:
    """Return what a call with this result was charged with; None: its runner left."""
    admission = Admission(RequestSize(0, 1000), None, per_call=0.25)

    async def ask(_call: ModelCall) -> ModelResult:
        if result is None:
            raise asyncio.CancelledError
        return result

    asking = billing.ask(turn_of(admission), make_call(), ask)
    if result is None:
        with pytest.raises(asyncio.CancelledError):
            await asking
    else:
        assert await asking is result
    return admission.spent


@pytest.mark.requirement("budget:broken-off")
async def test_a_call_is_charged_with_its_usage_or_an_estimate_and_a_refused_one_is_free(
    billing: Billing,
) -> None:
    answered = ModelResponse(b"{}", b"Done.", (), usage=USAGE)
    estimate = 1000 * 2 / 1_000_000  # A thousand tokens of output, at two dollars a million
    assert await spend(billing, answered) == pytest.approx(1.0)
    assert await spend(billing, None) == pytest.approx(estimate), "its runner left"
    broke_off = TransportFailure("provider_broke_off", "it broke off")
    assert await spend(billing, broke_off) == pytest.approx(estimate)
    assert await spend(billing, ProviderResponse(429, "application/json", b"{}")) == 0
    assert await spend(billing, TransportFailure("provider_unreachable", "no connection")) == 0


@pytest.mark.parametrize(
    ("told", "usage"),
    [
        (None, None),
        (b'{"prompt_tokens":', None),
        (b"[1]", {}),
        (b'{"prompt_tokens":7}', {"prompt_tokens": 7}),
    ],
)
@pytest.mark.requirement("budget:broken-off")
def test_the_usage_of_a_stream_is_read_as_far_as_it_can_be(
    told: bytes | None, usage: object
) -> None:
    assert read_usage(told) == usage
