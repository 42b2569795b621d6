"""The spending of agents, in a file as on a server: one limit for all proxies
(docs/spec/mediation.md section 8).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from claw_contract.metadata import Budget
from claw_state.spending import LAPSE_SECONDS, RENEWAL_SECONDS, Charge, Reservation, Spending
from claw_state.sqlite.spending import SqliteSpending
from claw_state.valkey.spending import ValkeySpending
from tests.state.conftest import Clock, reopened

pytestmark = pytest.mark.requirement("budget:shared")
type Spendings = Callable[[], Spending]
HOUR, YEAR = 3600.0, 365 * 86_400.0


@pytest.fixture
async def spendings(
    opens: Callable[[], tuple[type, Any]], clock: Clock
) -> AsyncIterator[Spendings]:
    async with reopened(opens, clock, SqliteSpending, ValkeySpending) as spending:
        yield spending


def budget(**limits: Any) -> Budget:
    return Budget.model_validate({"window": "1h", **limits})


def unexpected(why: str) -> None:
    raise AssertionError(why)


async def test_requests_of_two_proxies_at_one_time_do_not_slip_under_the_limit(
    spendings: Spendings,
) -> None:
    limit, here, there = budget(max_requests=5), spendings(), spendings()
    found = await asyncio.gather(
        *(one.count_request("a", limit) for _ in range(5) for one in (here, there))
    )
    assert found.count(None) == 5
    (over, *_) = [one for one in found if one is not None]
    assert (over.limit, over.requests) == ("max_requests", 5)
    assert await there.count_request("another", limit) is None


async def test_what_another_proxy_spent_counts_and_leaves_with_its_window(
    spendings: Spendings, clock: Clock
) -> None:
    limit, here, there = budget(limit_usd=1.0), spendings(), spendings()
    assert await here.count_request("a", limit) is None
    here.add_cost("a", limit, Charge(0.75), unexpected)
    here.add_cost("a", limit, Charge(0.5), unexpected)
    here.add_cost("a", limit, Charge(0.0, is_known=False), unexpected)
    await here.close()
    over = await there.count_request("a", limit)
    assert over is not None
    assert (over.limit, over.requests, over.cost, over.unknown) == ("limit_usd", 1, 1.25, 1)
    clock.now += over.retry_after
    assert await there.count_request("a", limit) is None


async def test_a_budget_that_only_tells_counts_on(spendings: Spendings) -> None:
    soft, here = budget(max_requests=1, behavior="soft_alert"), spendings()
    assert await here.count_request("a", soft) is None
    told = [await here.count_request("a", soft) for _ in range(2)]
    assert [one and one.requests for one in told] == [1, 2]


def reserve(name: str, estimate: float, needed: float | None = None) -> Reservation:
    return Reservation(name, "a", estimate, estimate if needed is None else needed)


@pytest.mark.requirement("budget:reserved")
async def test_of_forty_requests_at_once_that_exceed_the_limit_one_is_admitted(
    spendings: Spendings,
) -> None:
    limit, here, there = budget(limit_usd=1.0), spendings(), spendings()
    asked = [((here, there)[number % 2], reserve(f"r{number}", 2.0)) for number in range(40)]
    found = await asyncio.gather(*(one.count_request("a", limit, each) for one, each in asked))
    assert found.count(None) == 1
    (over, *_) = [one for one in found if one is not None]
    assert (over.limit, over.cost, over.reserved) == ("limit_usd", 0.0, 2.0)
    assert (over.is_reserved_only, over.retry_after) == (True, 2)


@pytest.mark.requirement("budget:reserved")
async def test_while_no_cost_is_known_one_request_goes_ahead_alone(spendings: Spendings) -> None:
    """However little it is expected to cost: nobody knows what this agent's requests are like."""
    limit, here = budget(limit_usd=10.0), spendings()
    first, second = reserve("1", 0.001), reserve("2", 0.001)
    assert await here.count_request("a", limit, first) is None
    assert await here.count_request("a", limit, second) is not None
    here.add_cost("a", limit, Charge(2.0, reservation=first), unexpected)
    await here.close()

    there = spendings()
    found = [
        await there.count_request("a", limit, reserve(f"later {number}", 0.001))
        for number in range(6)
    ]
    assert found.count(None) == 4, "each is held to cost the 2 dollars of the first: 2 + 4 * 2 = 10"


@pytest.mark.requirement("budget:reserved")
async def test_the_cost_takes_the_place_of_the_reservation(spendings: Spendings) -> None:
    limit, here = budget(limit_usd=1.0), spendings()
    dear, next_one = reserve("1", 0.9), reserve("2", 0.5)
    assert await here.count_request("a", limit, dear) is None
    assert await here.count_request("a", limit, next_one) is not None
    here.add_cost("a", limit, Charge(0.1, reservation=dear), unexpected)
    await settled(here)
    assert await here.count_request("a", limit, next_one) is None
    here.add_cost("a", limit, Charge(0.0, reservation=next_one), unexpected)
    await settled(here)
    assert await here.count_request("a", limit, reserve("3", 0.9)) is None
    over = await here.count_request("a", limit, reserve("4", 0.95))
    assert over is not None
    assert over.cost == pytest.approx(0.1)


@pytest.mark.requirement("budget:reserved")
async def test_a_request_must_fit_into_what_is_left_unless_it_is_the_first(
    spendings: Spendings, clock: Clock
) -> None:
    limit, here = budget(limit_usd=1.0), spendings()
    first = reserve("1", 5.0)
    assert await here.count_request("a", limit, first) is None
    here.add_cost("a", limit, Charge(0.4, reservation=first), unexpected)
    await settled(here)
    over = await here.count_request("a", limit, reserve("2", 0.7))
    assert over is not None
    assert not over.is_reserved_only
    assert over.retry_after > 3000
    clock.now += over.retry_after
    assert await here.count_request("a", limit, reserve("2", 0.7)) is None


@pytest.mark.requirement("budget:reservation-lapses")
async def test_what_a_process_that_died_had_reserved_is_charged_and_blocks_nobody(
    spendings: Spendings, clock: Clock
) -> None:
    limit, dead, alive = budget(limit_usd=1.0), spendings(), spendings()
    lost = reserve("1", 0.3)
    assert await dead.count_request("a", limit, lost) is None
    clock.now += LAPSE_SECONDS - 1
    assert await alive.count_request("a", limit, reserve("2", 0.1)) is not None
    clock.now += 1
    assert await alive.count_request("a", limit, reserve("2", 0.1)) is None
    over = await alive.count_request("a", limit, reserve("3", 0.95))
    assert over is not None
    assert (over.cost, over.unknown) == (pytest.approx(0.3), 1)

    # It was only silent, for as long: the end corrects what was charged.
    dead.add_cost("a", limit, Charge(0.25, reservation=lost), unexpected)
    await settled(dead)
    over = await alive.count_request("a", limit, reserve("3", 0.95))
    assert over is not None
    assert over.cost == pytest.approx(0.25)


@pytest.mark.requirement("budget:reservation-lapses")
async def test_what_the_state_does_not_know_gives_no_money_back(spendings: Spendings) -> None:
    """A server that came back empty, or a request that was never stored: its
    estimate was not charged.
    """
    limit, here = budget(limit_usd=1.0), spendings()
    here.add_cost("a", limit, Charge(0.4, reservation=reserve("unknown", 0.9)), unexpected)
    await settled(here)
    over = await here.count_request("a", limit, reserve("next", 0.7))
    assert over is not None
    assert over.cost == pytest.approx(0.4)


@pytest.mark.requirement("budget:reservation-lapses")
async def test_a_reservation_that_was_charged_is_not_charged_again_and_not_kept_for_ever(
    spendings: Spendings, clock: Clock
) -> None:
    limit, here, probe = budget(limit_usd=1.0, window="10m"), spendings(), reserve("probe", 5.0)
    assert await here.count_request("a", limit, reserve("dead", 0.3)) is None
    for _ in range(4):
        clock.now += LAPSE_SECONDS
        over = await here.count_request("a", limit, probe)
        assert over is not None
        assert (over.cost, over.reserved) == (pytest.approx(0.3), 0.0)
    clock.now += 1200
    assert await here.count_request("a", limit, reserve("dead", 0.3)) is None


@pytest.mark.requirement("budget:reservation-lapses")
@pytest.mark.parametrize("jump", [3600.0, -3600.0, 86_400.0 * 365])
async def test_a_clock_that_jumps_charges_nothing_twice(
    spendings: Spendings, clock: Clock, jump: float
) -> None:
    clock.now = 1e9
    limit, here, there = budget(limit_usd=1.0, window="20000h"), spendings(), spendings()
    running = reserve("1", 0.3)
    assert await here.count_request("a", limit, running) is None
    clock.now += jump
    await there.count_request("a", limit, reserve("2", 0.1))
    assert await here.renew([running]) == 0
    here.add_cost("a", limit, Charge(0.5, reservation=running), unexpected)
    await settled(here)
    over = await there.count_request("a", limit, reserve("3", 5.0))
    assert over is not None
    assert over.cost == pytest.approx(0.5)


@pytest.mark.requirement("budget:reservation-lapses")
async def test_a_request_that_takes_long_stays_reserved_and_a_turn_grows(
    spendings: Spendings, clock: Clock
) -> None:
    limit, here, there = budget(limit_usd=1.0), spendings(), spendings()
    turn = reserve("1", 0.2)
    assert await here.count_request("a", limit, turn) is None
    for _ in range(10):
        clock.now += RENEWAL_SECONDS
        assert await here.renew([turn]) == 1
    turn.estimate = 0.6
    assert await here.renew([turn]) == 1
    over = await there.count_request("a", limit, reserve("2", 0.5))
    assert over is not None
    assert over.reserved == 0.6


@pytest.mark.requirement("budget:reservation-lapses")
async def test_a_resumed_turn_takes_the_place_of_its_earlier_attempt(spendings: Spendings) -> None:
    limit, dead, alive = budget(limit_usd=1.0), spendings(), spendings()
    assert await dead.count_request("a", limit, reserve("turn", 0.9)) is None
    resumed = reserve("turn", 0.9)
    assert await alive.count_request("a", limit, resumed) is None
    alive.add_cost("a", limit, Charge(0.2, reservation=resumed), unexpected)
    await settled(alive)
    over = await alive.count_request("a", limit, reserve("next", 0.9))
    assert over is not None
    assert (over.cost, over.reserved) == (pytest.approx(0.2), 0.0)


@pytest.mark.requirement("budget:cost-unknown")
async def test_without_a_price_the_average_of_what_is_known_is_the_estimate(
    spendings: Spendings,
) -> None:
    limit, here = budget(limit_usd=10.0), spendings()
    first, second = reserve("1", 0.0), reserve("2", 0.0)
    assert await here.count_request("a", limit, first) is None
    here.add_cost("a", limit, Charge(2.0, reservation=first), unexpected)
    await settled(here)
    assert await here.count_request("a", limit, second) is None
    assert (first.estimate, second.estimate) == (0.0, 2.0)


@pytest.mark.requirement("budget:soft-alert")
async def test_a_budget_that_only_tells_reserves_too(spendings: Spendings) -> None:
    soft, here = budget(limit_usd=1.0, behavior="soft_alert"), spendings()
    assert await here.count_request("a", soft, reserve("1", 2.0)) is None
    over = await here.count_request("a", soft, reserve("2", 2.0))
    assert over is not None
    assert (over.requests, over.reserved) == (1, 2.0)
    over = await here.count_request("a", soft, reserve("3", 2.0))
    assert over is not None
    assert (over.requests, over.reserved) == (2, 4.0)


async def settled(spending: Spending) -> None:
    """Wait until costs are stored that are stored later."""
    pending: set[asyncio.Task[None]] = getattr(spending, "_pending")  # noqa: B009
    if pending:
        await asyncio.wait(pending)


@pytest.mark.requirement("budget:clock")
@pytest.mark.parametrize("jump", [HOUR, YEAR])
async def test_what_was_spent_by_a_clock_that_was_ahead_leaves_with_its_window(
    spendings: Callable[[], Spending], clock: Clock, jump: float
) -> None:
    limit, here = Budget.model_validate({"window": "1h", "max_requests": 2}), spendings()
    clock.now += jump
    assert await here.count_request("a", limit) is None
    assert await here.count_request("a", limit) is None

    clock.now -= jump
    over = await here.count_request("a", limit)
    assert over is not None
    assert over.retry_after <= HOUR + 120
    clock.now += over.retry_after
    assert await here.count_request("a", limit) is None
