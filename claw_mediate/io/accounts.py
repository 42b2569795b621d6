"""What requests cost, and whether an agent may make another one: the price list and the budgets together."""

from __future__ import annotations

import sqlite3
from typing import assert_never

from claw_contract.base import JsonObject
from claw_mediate.exchange import Exchange, Request
from claw_mediate.io.agents import Agent
from claw_mediate.io.budgets import Budgets
from claw_mediate.io.log import EventLog
from claw_mediate.io.prices import PriceList
from claw_mediate.io.settings import Settings
from claw_mediate.io.spending import Spending, SqliteSpending
from claw_mediate.io.valkey_spending import ValkeySpending
from claw_state.place import File, Place, Server
from claw_state.sqlite import reason
from claw_state.valkey import Link


class Accounts:
    """One pod's accounts."""

    def __init__(self, budgets: Budgets, prices: PriceList) -> None:
        self._budgets = budgets
        self._prices = prices

    @classmethod
    def of(cls, settings: Settings, log: EventLog) -> Accounts:
        """Raises ``ValueError`` with one line when the state can't be opened."""
        try:
            budgets = Budgets(_spending(settings.state), log, settings.budget_fail_mode)
            return cls(budgets, PriceList(settings.auth, log))
        except (OSError, sqlite3.Error) as error:
            raise ValueError(f"the state {settings.state.shown!r} can't be opened: {reason(error)}") from error

    async def admit(self, agent: Agent, request: Request, model: str) -> Exchange | None:
        """Count a request that may spend; the refusal when the agent's budget is spent."""
        return await self._budgets.admit(agent, request, model)

    def cost(self, provider: str, model: str, usage: JsonObject) -> float | None:
        """What a request cost in US dollars; None where nobody tells."""
        return self._prices.cost(provider, model, usage)

    def settle(self, agent: Agent, model: str, cost: float | None, *, free: bool) -> None:
        """A request that was counted is over. ``free``: it failed, and used nothing that anybody told of."""
        self._budgets.spend(agent, model, 0.0 if cost is None and free else cost)

    async def close(self) -> None:
        await self._budgets.close()


def _spending(where: Place) -> Spending:
    match where:
        case File(path):
            return SqliteSpending(path)
        case Server():
            return ValkeySpending(Link(where))
        case _:
            assert_never(where)
