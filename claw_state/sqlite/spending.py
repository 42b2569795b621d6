"""Spending in SQLite, in buckets.

A request is counted in the transaction that checks the limit, so that concurrent requests, even of
several proxies, cannot all pass it. Its cost is added when it ends.
"""

import asyncio
import time
from collections.abc import Callable, Sequence

from claw_contract.metadata import Budget
from claw_state.spending import (
    CHARGED,
    MAX_AHEAD_SECONDS,
    Bucket,
    BudgetExcess,
    Charge,
    Hold,
    OnWriteError,
    Reservation,
    amount_to_hold,
    average_cost,
    bucket_end,
    find_excess,
    has_lapsed,
)
from claw_state.sqlite.connection import Database, Execute
from claw_state.url import StoreError

_ADD = """
INSERT INTO spending VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE
SET requests = requests + excluded.requests, cost = cost + excluded.cost,
    unknown = unknown + excluded.unknown
"""
_BUCKETS = "SELECT ends, requests, cost, unknown FROM spending WHERE agent = ?"
_AHEAD = "DELETE FROM spending WHERE agent = ? AND ends > ? RETURNING requests, cost, unknown"
_HOLD = "INSERT OR REPLACE INTO reservations VALUES (?, ?, ?, ?, ?)"
_HELD = "SELECT id, estimate, held, seen FROM reservations WHERE agent = ? AND held >= 0"
_RELEASE = "DELETE FROM reservations WHERE agent = ? AND id = ? RETURNING estimate, held"
_RENEW = """
UPDATE reservations
SET estimate = ?1, held = CASE WHEN estimate = ?1 THEN held ELSE ?1 END, seen = ?2
WHERE agent = ?3 AND id = ?4 AND held >= 0
"""
_MARK_CHARGED = "UPDATE reservations SET held = ?, seen = ? WHERE agent = ? AND id = ?"
_FORGET_CHARGED = "DELETE FROM reservations WHERE agent = ? AND held < 0 AND ABS(? - seen) >= ?"


class SqliteSpending:
    """A ``Spending`` in SQLite."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._db = database
        self._pending: set[asyncio.Task[None]] = set()

    async def count_request(
        self, agent_id: str, budget: Budget, reservation: Reservation | None = None
    ) -> BudgetExcess | None:
        """Count one more request if the limits allow it, and return the limit that does not.

        The check and the count are one transaction, so that no two requests take the same room.
        With ``soft_alert`` the request is counted even over the limit.
        """
        now = self._clock()
        ends = bucket_end(budget, now)

        def count(execute: Execute) -> BudgetExcess | None:
            execute(
                "DELETE FROM spending WHERE agent = ? AND ends <= ?",
                (agent_id, now - budget.seconds),
            )
            _take_back(execute, agent_id, now, ends)

            others: list[Hold] = []
            needed = 0.0
            if reservation is not None:
                holds = _charge_lapsed(execute, agent_id, budget, now)
                others = [hold for hold in holds if hold.id != reservation.id]
                needed = reservation.needed
            reserved = sum(hold.held for hold in others)

            rows = execute(_BUCKETS, (agent_id,))
            buckets = [Bucket(*row) for row in rows]
            excess = find_excess(budget, buckets, now, reserved, needed)
            if excess is not None and budget.behavior != "soft_alert":
                return excess

            execute(_ADD, (agent_id, ends, 1, 0.0, 0))
            if reservation is not None:
                average = average_cost(buckets, len(others))
                reservation.estimate = reservation.estimate or average
                held = amount_to_hold(budget, buckets, average, reservation.estimate)
                execute(_HOLD, (agent_id, reservation.id, reservation.estimate, held, now))
            return excess

        return await self._db.transact(count)

    def add_cost(
        self, agent_id: str, budget: Budget, charge: Charge, on_error: OnWriteError
    ) -> None:
        ends = bucket_end(budget, self._clock())
        reservation = charge.reservation
        unknown = int(not charge.is_known)

        def add(execute: Execute) -> None:
            difference = charge.cost
            if reservation is not None:
                for estimate, held in execute(_RELEASE, (agent_id, reservation.id)).fetchall():
                    if held == CHARGED:  # the estimate was counted already
                        difference -= estimate

            # Nothing is to be counted if the request cost nothing, or just its charged estimate.
            if reservation is None or difference or unknown:
                execute(_ADD, (agent_id, ends, 0, difference, unknown))

        try:
            is_written = self._db.try_transact(add)
        except StoreError as error:  # the turn is not affected
            on_error(str(error))
            return

        if not is_written:
            task = asyncio.ensure_future(self._add_later(add, on_error))
            self._pending.add(task)
            task.add_done_callback(self._pending.discard)

    async def renew(self, reservations: Sequence[Reservation]) -> int:
        now = self._clock()

        def renew(execute: Execute) -> int:
            rows = [(each.estimate, now, each.agent_id, each.id) for each in reservations]
            return sum(execute(_RENEW, row).rowcount for row in rows)

        return await self._db.transact(renew)

    async def close(self) -> None:
        if self._pending:
            await asyncio.wait(self._pending)
        self._db.close()

    async def _add_later(self, add: Callable[[Execute], None], on_error: OnWriteError) -> None:
        try:
            await self._db.transact(add)
        except StoreError as error:
            on_error(str(error))


def _take_back(execute: Execute, agent_id: str, now: float, ends: float) -> None:
    """Count buckets of a clock that was set back since as spent now."""
    for row in execute(_AHEAD, (agent_id, now + MAX_AHEAD_SECONDS)).fetchall():
        execute(_ADD, (agent_id, ends, *row))


def _charge_lapsed(execute: Execute, agent_id: str, budget: Budget, now: float) -> list[Hold]:
    """Charge the estimates of requests whose process is gone, and return the other reservations."""
    execute(_FORGET_CHARGED, (agent_id, now, budget.seconds))
    holds = [Hold(*row) for row in execute(_HELD, (agent_id,))]
    lapsed = [hold for hold in holds if has_lapsed(hold.seen, now)]
    for hold in lapsed:
        execute(_MARK_CHARGED, (CHARGED, now, agent_id, hold.id))
        execute(_ADD, (agent_id, bucket_end(budget, now), 0, hold.estimate, 1))
    return [hold for hold in holds if hold not in lapsed]
