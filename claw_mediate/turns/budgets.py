"""Budgets per agent: counted at admission, durably, and never by reading history again (spec/mediation.md section 8).

What was spent is in buckets beside the continuity store (``spending``).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from claw_contract.metadata import Budget
from claw_mediate.agents.directory import Agent
from claw_mediate.core.http import Exchange, Request, refused
from claw_mediate.telemetry.event_log import EventLog
from claw_state.spending import BudgetExcess, Spending
from claw_state.url import StoreError

type FailMode = Literal["open", "closed"]
"""What happens to requests when what was spent can't be read: they pass, or they get 503."""
_LONGEST_RETRY = 60
"""SDKs wait no longer than a minute for a ``Retry-After``; told a longer one, they come back at once instead."""


class Budgets:
    """What each agent has spent."""

    def __init__(
        self, spending: Spending, log: EventLog, fail_mode: FailMode = "open", clock: Callable[[], float] = time.time
    ) -> None:
        self._spending = spending
        self._log = log
        self._fail_mode = fail_mode
        self._clock = clock
        self._told: dict[str, float] = {}
        """When each agent's window was last said to hold requests of unknown cost."""

    async def admit(self, agent: Agent, request: Request, model: str) -> Exchange | None:
        """Count a request that may spend; the refusal when the agent's budget is spent."""
        budget = agent.metadata.budget
        if budget is None or (budget.max_requests is None and budget.limit_usd is None):
            return None
        try:
            spent = await self._spending.count_request(agent.id, budget)
        except StoreError as error:
            return self._unavailable(agent, request, model, error)
        if spent is None:
            return None
        code = "rate_limited" if budget.behavior == "rate_limit" else "budget_exceeded"
        soft = budget.behavior == "soft_alert"
        self._log.event(
            "intervention",
            agent,
            model=model,
            intervention="budget_soft_alert" if soft else code,
            limit=spent.limit,
            retry_after=spent.retry_after,
            **_told(budget, spent),
        )
        return None if soft else _refusal(request, code, budget, spent)

    def spend(self, agent: Agent, model: str, cost: float | None) -> None:
        """A request that was counted is over; None: its cost is not known."""
        budget = agent.metadata.budget
        if budget is None or cost == 0:
            return
        now = self._clock()

        def failed(why: str) -> None:
            self._log.event("error", agent, model=model, error="budget_not_written", reason=why)

        self._spending.add_cost(agent.id, budget, cost, failed)
        told = self._told.get(agent.id, -math.inf)
        if cost is None and budget.limit_usd is not None and now - told >= budget.seconds:
            self._told[agent.id] = now
            self._log.event("intervention", agent, model=model, intervention="budget_cost_unknown")

    async def close(self) -> None:
        await self._spending.close()

    def _unavailable(self, agent: Agent, request: Request, model: str, error: StoreError) -> Exchange | None:
        self._log.event("intervention", agent, model=model, intervention="budget_check_unavailable", reason=str(error))
        if self._fail_mode == "open":
            return None
        return refused(request.path, 503, "budget_unavailable", "what this agent has spent can't be read at the moment")


def _refusal(request: Request, code: str, budget: Budget, spent: BudgetExcess) -> Exchange:
    message = (
        f"the agent's budget is spent: {_words(budget, spent)} within {budget.window}; "
        f"try again in {spent.retry_after} seconds"
    )
    answer = refused(request.path, 429, code, message, {"budget": _told(budget, spent)})
    headers = [*answer.headers, ("retry-after", str(spent.retry_after))]
    if spent.retry_after > _LONGEST_RETRY:
        headers.append(("x-should-retry", "false"))
    return replace(answer, headers=headers)


def _words(budget: Budget, spent: BudgetExcess) -> str:
    if spent.limit == "max_requests":
        return f"{spent.requests} of {budget.max_requests} requests"
    return f"{spent.cost:.4f} of {budget.limit_usd} US dollars"


def _told(budget: Budget, spent: BudgetExcess) -> dict[str, object]:
    """The original's ``budget`` member."""
    limits = {"limit_usd": budget.limit_usd, "max_requests": budget.max_requests}
    return {
        "behavior": budget.behavior,
        "window": budget.window,
        "requests": spent.requests,
        "reported_cost_usd": round(spent.cost, 6),
        "unknown_cost_requests": spent.unknown,
        **{name: limit for name, limit in limits.items() if limit is not None},
    }
