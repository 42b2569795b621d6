"""Spending on a server that several proxies share: all of them together have one limit.

Each agent has a hash from the end of a bucket to its requests, cost and requests of unknown cost,
and one from the id of a reservation to its estimate, the amount held, and when it was renewed. Each
change is one script.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from claw_contract.metadata import Budget
from claw_state.spending import (
    LAPSE_SECONDS,
    MAX_AHEAD_SECONDS,
    Bucket,
    BudgetExcess,
    Charge,
    OnWriteError,
    Reservation,
    bucket_width,
    find_excess,
)
from claw_state.url import StoreError
from claw_state.valkey.client import ValkeyClient, store_error_if_unreadable
from claw_state.valkey.scripts import load_script

_COUNT = load_script("spending_buckets", "spending_count")
_ADD = load_script("spending_buckets", "spending_add")
_RENEW = load_script("spending_renew")


class ValkeySpending:
    """A ``Spending`` on a server."""

    def __init__(self, client: ValkeyClient, clock: Callable[[], float] | None = None) -> None:
        self._client = client
        self._clock = clock
        self._pending: set[asyncio.Task[None]] = set()

    async def count_request(
        self, agent_id: str, budget: Budget, reservation: Reservation | None = None
    ) -> BudgetExcess | None:
        asked: tuple[str | float, ...] = ("", 0.0, 0.0)
        if reservation is not None:
            asked = (reservation.id, reservation.estimate, reservation.needed)

        arguments = (
            *self._arguments(agent_id, budget),
            "" if budget.max_requests is None else budget.max_requests,
            "" if budget.limit_usd is None else budget.limit_usd,
            int(budget.behavior == "soft_alert"),
            *asked,
            LAPSE_SECONDS,
            MAX_AHEAD_SECONDS,
        )
        answer = await self._count(agent_id, budget, reservation, arguments)

        with store_error_if_unreadable(f"the spending of {agent_id}"):
            exceeded, now, rows, reserved, estimate = answer
            if not exceeded or budget.behavior == "soft_alert":
                self._client.record_write()  # A refused request is not counted.
            if reservation is not None:
                reservation.estimate = float(estimate)
            if not exceeded:
                return None

            buckets = [_bucket(*bucket.split()) for bucket in rows]
            needed = 0.0 if reservation is None else reservation.needed
            return find_excess(budget, buckets, float(now), float(reserved), needed)

    async def _count(
        self,
        agent_id: str,
        budget: Budget,
        reservation: Reservation | None,
        arguments: Sequence[float | str],
    ) -> Any:
        """Run the script that counts a request, and return its answer.

        If the caller is cancelled meanwhile, the reservation that the script may make is removed.
        """
        if reservation is None:
            return await self._client.read(_COUNT, *arguments)

        running = asyncio.ensure_future(self._client.read(_COUNT, *arguments))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            self._begin(self._give_back(running, agent_id, budget, reservation))
            raise

    async def _give_back(
        self, running: asyncio.Future[Any], agent_id: str, budget: Budget, reservation: Reservation
    ) -> None:
        """Remove a reservation, after the script that makes it has run.

        On another connection the removal could overtake that script.
        """
        await asyncio.wait([running])
        if not running.cancelled() and running.exception() is None:
            await self._add_cost(agent_id, budget, Charge(0.0, reservation=reservation), _ignore)

    def add_cost(
        self, agent_id: str, budget: Budget, charge: Charge, on_error: OnWriteError
    ) -> None:
        self._begin(self._add_cost(agent_id, budget, charge, on_error))

    async def renew(self, reservations: Sequence[Reservation]) -> int:
        now = self._clock() if self._clock else ""
        still_reserved = 0
        for each in reservations:
            still_reserved += await self._client.run(
                _RENEW, now, each.agent_id, each.id, each.estimate
            )
        return still_reserved

    async def close(self) -> None:
        if self._pending:
            await asyncio.wait(self._pending)
        await self._client.close()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)

    async def _add_cost(
        self, agent_id: str, budget: Budget, charge: Charge, on_error: OnWriteError
    ) -> None:
        reserved = "" if charge.reservation is None else charge.reservation.id
        arguments = (
            *self._arguments(agent_id, budget),
            charge.cost,
            int(not charge.is_known),
            reserved,
        )
        try:
            await self._client.run(_ADD, *arguments)
        except StoreError as error:  # the turn is not affected
            on_error(str(error))

    def _arguments(self, agent_id: str, budget: Budget) -> tuple[float | str, str, float, float]:
        now = self._clock() if self._clock else ""
        return now, agent_id, budget.seconds, bucket_width(budget)


def _ignore(_reason: str) -> None:
    """Ignore that a reservation can't be removed: it lapses."""


def _bucket(ends: bytes, requests: bytes, cost: bytes, unknown: bytes) -> Bucket:
    return Bucket(float(ends), int(requests), float(cost), int(unknown))
