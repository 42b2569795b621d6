"""Spending on a server: one that is gone, one that is slow, and windows that are short."""

from __future__ import annotations

import asyncio

import pytest

from claw_contract.secret import Secret
from claw_state.health import Health
from claw_state.spending import Charge, Reservation
from claw_state.url import ServerAddress, StoreError
from claw_state.valkey.client import ValkeyClient
from claw_state.valkey.spending import ValkeySpending
from tests.state.relay import Relay
from tests.state.server import SharedState
from tests.state.test_spending import budget, unexpected
from tests.waiting import eventually_async

pytestmark = pytest.mark.requirement("budget:shared")


async def test_a_request_is_not_counted_at_a_lost_server_and_a_lost_cost_is_reported(
    shared: SharedState,
) -> None:
    spending = ValkeySpending(ValkeyClient(shared.place))
    assert await spending.count_request("a", budget(max_requests=5)) is None
    shared.kill()
    with pytest.raises(StoreError):
        await spending.count_request("a", budget(max_requests=5))
    told: list[str] = []
    spending.add_cost("a", budget(max_requests=5), Charge(1.0), told.append)
    await spending.close()
    assert len(told) == 1


@pytest.mark.requirement("budget:runner-leaves")
async def test_a_runner_that_leaves_while_a_slow_server_counts_leaves_no_reservation(
    shared: SharedState,
) -> None:
    relay = Relay(shared.port)
    spending = ValkeySpending(
        ValkeyClient(
            ServerAddress(Secret(f"redis://127.0.0.1:{relay.port}/0"), "relay"), timeout=10
        )
    )
    limit = budget(limit_usd=1.0)
    assert await spending.count_request("a", limit, Reservation("turn_0", "a", 0.0, 0.0)) is None
    spending.add_cost(
        "a", limit, Charge(0.5, reservation=Reservation("turn_0", "a", 0.0, 0.0)), unexpected
    )
    await eventually_async(
        lambda: shared.asks("HLEN", "claw:a:a:held") == b":0\r\n", "the first is settled"
    )

    relay.holds()
    counting = asyncio.ensure_future(
        spending.count_request("a", limit, Reservation("turn_1", "a", 0.4, 0.4))
    )
    await eventually_async(
        lambda: shared.asks("HLEN", "claw:a:a:held") == b":1\r\n", "the second is reserved"
    )
    counting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await counting
    relay.passes()
    await spending.close()
    relay.close()
    assert shared.asks("HLEN", "claw:a:a:held") == b":0\r\n"


@pytest.mark.requirement("budget:reserved")
async def test_a_reservation_outlives_a_window_that_is_shorter_than_its_request(
    shared: SharedState,
) -> None:
    spending, short = ValkeySpending(ValkeyClient(shared.place)), budget(limit_usd=1.0, window="1s")
    reservation = Reservation("turn_1", "a", 0.4, 0.4)
    assert await spending.count_request("a", short, reservation) is None
    assert shared.asks("TTL", "claw:a:a:held") == b":120\r\n"

    shared.asks("EXPIRE", "claw:a:a:held", "20")
    assert await spending.renew([reservation]) == 1
    assert shared.asks("TTL", "claw:a:a:held") == b":120\r\n"
    await spending.close()


@pytest.mark.requirement("state:outage")
async def test_a_renewed_reservation_shows_that_the_state_is_usable_again(
    shared: SharedState,
) -> None:
    told: list[str | None] = []
    health = Health(told.append)
    spending = ValkeySpending(ValkeyClient(shared.place, health))
    reservation = Reservation("turn_1", "a", 0.4, 0.4)
    assert await spending.count_request("a", budget(limit_usd=1.0), reservation) is None

    health.fail("it was gone")
    assert await spending.renew([Reservation("turn_2", "a", 0.4, 0.4)]) == 0
    assert told == ["it was gone"], "nothing was written"
    assert await spending.renew([reservation]) == 1
    assert told == ["it was gone", None]
    await spending.close()


@pytest.mark.requirement("state:outage")
@pytest.mark.parametrize("behavior", ["hard_stop", "soft_alert"])
async def test_a_request_that_is_refused_writes_nothing_and_says_nothing_of_the_state(
    shared: SharedState, behavior: str
) -> None:
    told: list[str | None] = []
    health = Health(told.append)
    spending = ValkeySpending(ValkeyClient(shared.place, health))
    limit = budget(max_requests=1, behavior=behavior)
    assert await spending.count_request("a", limit) is None

    health.fail("it is full")
    assert await spending.count_request("a", limit) is not None
    is_counted = behavior == "soft_alert"
    assert told == ["it is full", *([None] if is_counted else [])]
    await spending.close()
