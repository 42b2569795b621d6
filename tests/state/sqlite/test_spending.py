"""Spending in a file: a file that is moved away, and one from before reservations."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from claw_state.health import Health
from claw_state.spending import Charge
from claw_state.sqlite.connection import Database
from claw_state.sqlite.spending import SqliteSpending
from claw_state.url import StoreError
from tests.state.test_spending import budget, reserve, unexpected

pytestmark = pytest.mark.requirement("budget:shared")


async def test_a_file_that_was_moved_away_is_used_again_once_it_is_back(
    tmp_path: Path,
) -> None:
    file, away = tmp_path / "s.db", tmp_path / "away.db"
    told: list[str | None] = []
    spending, limit = (
        SqliteSpending(Database(str(file), health=Health(told.append))),
        budget(max_requests=2),
    )
    assert await spending.count_request("a", limit) is None
    file.rename(away)
    with pytest.raises(StoreError):
        await spending.count_request("a", limit)
    spending.add_cost("a", limit, Charge(1.0), told.append)
    assert len(told) == 2
    away.rename(file)
    assert await spending.count_request("a", limit) is None
    assert told[2:] == [None]
    assert await spending.count_request("a", limit) is not None
    await spending.close()


@pytest.mark.requirement("budget:durable")
async def test_a_file_from_before_reservations_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "s.db"
    spending, limit = SqliteSpending(Database(str(file))), budget(limit_usd=1.0)
    assert await spending.count_request("a", limit) is None
    spending.add_cost("a", limit, Charge(0.75), unexpected)
    await spending.close()
    with sqlite3.connect(file) as before:
        before.execute("DROP TABLE reservations")
    before.close()

    spending = SqliteSpending(Database(str(file)))
    assert await spending.count_request("a", limit, reserve("1", 0.5)) is not None
    assert await spending.count_request("a", limit, reserve("2", 0.25)) is None
    await spending.close()
