"""The reservation for a request, and the charge where nobody knows its real cost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from claw_contract.metadata import Metadata
from claw_mediate.agents.directory import Agent
from claw_mediate.core.cost import (
    FREE,
    Cost,
    ReceivedAnswer,
)
from claw_mediate.core.http import Request, RunnerResponse
from claw_mediate.dialects.base import RunnerRequest
from claw_mediate.telemetry.event_log import EventLog
from claw_mediate.turns.budgets import Admission, Budgets, PriceList
from claw_state.sqlite.connection import Database
from claw_state.sqlite.spending import SqliteSpending
from tests.mediate.made import limits

CHAT = "/v1/chat/completions"


@pytest.fixture
def events() -> list[dict[str, Any]]:
    return []


@pytest.fixture
def budgets(tmp_path: Path, events: list[dict[str, Any]]) -> Iterator[Budgets]:
    log = EventLog(lambda line: events.append(json.loads(line)))
    database = Database("")
    yield Budgets(SqliteSpending(database), PriceList(tmp_path, log), log)
    database.close()


def limited(usd: float = 1.0, **metadata: Any) -> Agent:
    made = Metadata.model_validate(
        {
            "service": "a",
            "pod": "p",
            "token": "a:s",
            "budget": {"window": "1h", "limit_usd": usd},
            **metadata,
        }
    )
    return Agent("a", made, (), limits(), "d")


async def admitted(budgets: Budgets, agent: Agent, model: str = "m", **members: Any) -> Admission:
    body = json.dumps({"model": model, **members}).encode()
    found = await budgets.admit(agent, Request("POST", CHAT, [], body), RunnerRequest(body, model))
    assert isinstance(found, Admission)
    return found


def write_prices(folder: Path, **prices: tuple[float, float]) -> None:
    listed = {
        name: {"input": given, "output": written} for name, (given, written) in prices.items()
    }
    (folder / "prices.json").write_text(json.dumps(listed), encoding="utf-8")


@pytest.mark.requirement("budget:cost-unknown")
async def test_a_model_without_a_price_has_the_dearest_and_no_usage_is_never_free(
    tmp_path: Path, budgets: Budgets, events: list[dict[str, Any]]
) -> None:
    write_prices(tmp_path, cheap=(1, 1), dear=(10, 20))
    agent = limited()
    admission = await admitted(budgets, agent, "unheard-of", max_tokens=1000)
    cost = budgets.cost_of_answer("x", "unheard-of", ReceivedAnswer(200, {}), admission)
    assert cost.known is None
    assert cost.estimated == pytest.approx(0.02, rel=0.1)
    budgets.settle(agent, "unheard-of", cost, admission)
    assert [event["reason"] for event in events] == ["the answer has no usage"]


@pytest.mark.requirement("budget:cost-unknown")
async def test_without_any_price_the_average_of_reported_costs_is_charged_and_else_it_is_said(
    budgets: Budgets, events: list[dict[str, Any]]
) -> None:
    agent, silent = limited(9.0), ReceivedAnswer(200, {}, tokens=5, is_cut_stream=True)
    first = await admitted(budgets, agent)
    cost = budgets.cost_of_answer("x", "m", silent, first)
    assert cost == Cost(None)
    budgets.settle(agent, "m", cost, first)
    assert [event["reason"] for event in events] == ["the model has no price"]

    second = await admitted(budgets, agent)
    told = ReceivedAnswer(200, {"prompt_tokens": 1, "cost": 2.0}, is_usage_final=True)
    budgets.settle(agent, "m", budgets.cost_of_answer("x", "m", told, second), second)
    third = await admitted(budgets, agent)
    assert budgets.cost_of_answer("x", "m", silent, third) == Cost(None, 1.0), (
        "2 dollars for two requests"
    )
    budgets.settle(agent, "m", FREE, third)


@pytest.mark.requirement("budget:broken-off")
@pytest.mark.parametrize(
    "usage",
    [
        {},
        {"prompt_tokens": -1, "completion_tokens": -1},
        {"prompt_tokens": "9", "completion_tokens": "9"},
        {"prompt_tokens": 1e300, "completion_tokens": 9},
        {"prompt_tokens": True},
        {"prompt_tokens": 0, "completion_tokens": 0},
        {"cost": -5, "prompt_tokens": None},
    ],
)
async def test_an_odd_usage_is_none(
    tmp_path: Path, budgets: Budgets, usage: dict[str, Any]
) -> None:
    write_prices(tmp_path, m=(10, 20))
    agent = limited()
    admission = await admitted(budgets, agent, max_tokens=1000)
    cost = budgets.cost_of_answer(
        "x", "m", ReceivedAnswer(200, usage, is_usage_final=True), admission
    )
    assert cost.known is None
    assert cost.estimated is not None
    assert cost.estimated > 0
    budgets.settle(agent, "m", FREE, admission)


@pytest.mark.requirement("budget:broken-off")
async def test_a_refusal_is_free_and_a_request_that_was_never_sent_too(
    tmp_path: Path, budgets: Budgets
) -> None:
    write_prices(tmp_path, m=(10, 20))
    agent = limited()
    admission = await admitted(budgets, agent)
    for status in (None, 400, 401, 429, 500, 503):
        assert budgets.cost_of_answer("x", "m", ReceivedAnswer(status, {}), admission) == FREE
    assert budgets.cost_of_answer("x", "m", ReceivedAnswer(0, {}), admission).charge > 0
    with budgets.held(agent, "m", admission):
        pass
    assert isinstance(await admitted(budgets, agent), Admission), "and nothing stays reserved"


@pytest.mark.requirement("budget:reserved")
async def test_a_model_that_costs_nothing_needs_no_room(tmp_path: Path, budgets: Budgets) -> None:
    write_prices(tmp_path, local=(0, 0))
    found = [await admitted(budgets, limited(), "local-7b") for _ in range(5)]
    assert [each.reservation for each in found] == [None] * 5


@pytest.mark.requirement("budget:reserved")
async def test_a_clamped_request_is_expected_to_cost_what_the_policys_first_model_costs(
    tmp_path: Path, budgets: Budgets
) -> None:
    write_prices(tmp_path, big=(10, 20), small=(1, 2))
    allowed = (
        {"slot": "fallback", "ref": "openai/small"},
        {"slot": "primary", "ref": "openai/big"},
    )
    agent = limited(100.0, model_policy={"mode": "clamp", "allowed": allowed})
    expected = []
    for model in ("small", "openai/small", "forbidden"):
        admission = await admitted(budgets, agent, model, max_tokens=100_000)
        assert admission.reservation is not None
        expected.append(round(admission.reservation.estimate, 1))
        budgets.settle(agent, model, Cost(0.1), admission)
    assert expected == [0.2, 0.2, 2.0]


@pytest.mark.requirement("budget:reserved")
async def test_a_request_that_only_another_keeps_out_waits_a_moment(
    tmp_path: Path, budgets: Budgets
) -> None:
    write_prices(tmp_path, m=(1, 1))
    agent = limited()
    first = await admitted(budgets, agent)
    second = asyncio.ensure_future(admitted(budgets, agent))
    await asyncio.sleep(0)
    assert not second.done()
    budgets.settle(agent, "m", Cost(0.01), first)
    budgets.settle(agent, "m", FREE, await second)


@pytest.mark.requirement("budget:reserved")
async def test_a_turn_reserves_what_it_has_cost_and_its_next_call(
    tmp_path: Path, budgets: Budgets
) -> None:
    write_prices(tmp_path, m=(0, 10))
    agent = limited(5.0)
    turn = await admitted(budgets, agent, max_tokens=100_000)
    assert turn.reservation is not None
    budgets.note_call("x", "m", b"{}", {"prompt_tokens": 1, "completion_tokens": 200_000}, turn)
    await budgets.grow(turn)
    assert turn.reservation.estimate == pytest.approx(3.0)
    budgets.note_call("x", "m", b"{}", None, turn)
    cost = budgets.cost_of_turn("x", "m", {"prompt_tokens": 1, "completion_tokens": 200_000}, turn)
    assert cost == Cost(pytest.approx(2.0), pytest.approx(1.0))
    budgets.settle(agent, "m", cost, turn)
    refusal = await budgets.admit(
        agent, Request("POST", CHAT, [], b""), RunnerRequest(b'{"max_tokens":128000,"n":2}', "m")
    )
    assert isinstance(refusal, RunnerResponse)
    assert refusal.status == 429
