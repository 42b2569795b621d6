"""The spending of agents, in a file as on a server: one limit for all proxies (docs/spec/mediation.md section 8)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from claw_contract.metadata import Budget
from claw_state.health import Health
from claw_state.spending import Spending
from claw_state.sqlite.connection import Database
from claw_state.sqlite.spending import SqliteSpending
from claw_state.url import StoreError
from claw_state.valkey.link import Link
from claw_state.valkey.spending import ValkeySpending
from tests.state.conftest import Clock, reopened
from tests.state.server import SharedState

pytestmark = pytest.mark.requirement("budget:shared")
type Spendings = Callable[[], Spending]


@pytest.fixture
async def spendings(opens: Callable[[], tuple[type, Any]], clock: Clock) -> AsyncIterator[Spendings]:
    async with reopened(opens, clock, SqliteSpending, ValkeySpending) as spending:
        yield spending


def budget(**limits: Any) -> Budget:
    return Budget.model_validate({"window": "1h", **limits})


def unexpected(why: str) -> None:
    raise AssertionError(why)


async def test_requests_of_two_proxies_at_one_time_do_not_slip_under_the_limit(spendings: Spendings) -> None:
    limit, here, there = budget(max_requests=5), spendings(), spendings()
    found = await asyncio.gather(*(one.count_request("a", limit) for _ in range(5) for one in (here, there)))
    assert found.count(None) == 5
    (over, *_) = [one for one in found if one is not None]
    assert (over.limit, over.requests) == ("max_requests", 5)
    assert await there.count_request("another", limit) is None


async def test_what_another_proxy_spent_counts_and_leaves_with_its_window(spendings: Spendings, clock: Clock) -> None:
    limit, here, there = budget(limit_usd=1.0), spendings(), spendings()
    assert await here.count_request("a", limit) is None
    here.add_cost("a", limit, 0.75, unexpected)
    here.add_cost("a", limit, 0.5, unexpected)
    here.add_cost("a", limit, None, unexpected)
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


async def test_a_server_that_is_gone_can_t_be_counted_at_and_what_was_not_written_is_told(shared: SharedState) -> None:
    spending = ValkeySpending(Link(shared.place))
    assert await spending.count_request("a", budget(max_requests=5)) is None
    shared.kill()
    with pytest.raises(StoreError):
        await spending.count_request("a", budget(max_requests=5))
    told: list[str] = []
    spending.add_cost("a", budget(max_requests=5), 1.0, told.append)
    await spending.close()
    assert len(told) == 1


async def test_a_file_that_was_moved_is_not_counted_in_and_used_again_when_it_is_back(tmp_path: Path) -> None:
    file, away = tmp_path / "s.db", tmp_path / "away.db"
    told: list[str | None] = []
    spending, limit = SqliteSpending(Database(str(file), health=Health(told.append))), budget(max_requests=2)
    assert await spending.count_request("a", limit) is None
    file.rename(away)
    with pytest.raises(StoreError):
        await spending.count_request("a", limit)
    spending.add_cost("a", limit, 1.0, told.append)
    assert len(told) == 2
    away.rename(file)
    assert await spending.count_request("a", limit) is None
    assert told[2:] == [None]
    assert await spending.count_request("a", limit) is not None
    await spending.close()
