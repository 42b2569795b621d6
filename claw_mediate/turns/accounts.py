"""What requests cost, and whether an agent may make another one: the price list and the budgets together."""

from __future__ import annotations

from claw_contract.base import JsonObject
from claw_mediate.agents.directory import Agent
from claw_mediate.core.http import Request, RunnerResponse
from claw_mediate.settings import Settings
from claw_mediate.telemetry.event_log import EventLog
from claw_mediate.turns.budgets import Budgets
from claw_mediate.turns.prices import PriceList
from claw_state.spending import Spending


class Accounts:
    """One pod's accounts."""

    def __init__(self, budgets: Budgets, prices: PriceList) -> None:
        self._budgets = budgets
        self._prices = prices

    @classmethod
    def of(cls, settings: Settings, log: EventLog, spending: Spending) -> Accounts:
        return cls(Budgets(spending, log, settings.budget_fail_mode), PriceList(settings.auth, log))

    async def admit(self, agent: Agent, request: Request, model: str) -> RunnerResponse | None:
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
