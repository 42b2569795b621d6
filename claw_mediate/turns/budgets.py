"""What requests cost, and whether an agent may make another one: the budgets and the price list.

A request is counted when it is admitted, durably; history is never read again for it (docs/spec/mediation.md section 8).
Without a price list, only the costs that providers report are known.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from claw_contract.base import JsonObject, error_line
from claw_contract.metadata import Budget
from claw_contract.prices import Prices
from claw_mediate.agents.directory import Agent
from claw_mediate.core.http import Request, RunnerResponse, refuse
from claw_mediate.core.pricing import compute_cost, find_price
from claw_mediate.file_cache import FileVersion, file_version, read_file
from claw_mediate.settings import Settings
from claw_mediate.telemetry.event_log import EventLog
from claw_state.spending import BudgetExcess, Spending
from claw_state.url import StoreError

type FailMode = Literal["open", "closed"]
"""What happens to requests while the spending can't be read: they pass, or they get 503."""
_MAX_RETRY_SECONDS = 60
"""SDKs wait no longer than a minute for a ``Retry-After``; with a longer one they come back at once."""


class Budgets:
    """The budgets of all agents."""

    def __init__(
        self, spending: Spending, log: EventLog, fail_mode: FailMode = "open", clock: Callable[[], float] = time.time
    ) -> None:
        self._spending = spending
        self._log = log
        self._fail_mode = fail_mode
        self._clock = clock
        self._warned: dict[str, float] = {}  # When each agent's requests of unknown cost were last logged

    async def admit(self, agent: Agent, request: Request, model: str) -> RunnerResponse | None:
        """Count a request; return the refusal when the agent's budget is spent."""
        budget = agent.metadata.budget
        if budget is None or (budget.max_requests is None and budget.limit_usd is None):
            return None
        try:
            excess = await self._spending.count_request(agent.id, budget)
        except StoreError as error:
            return self._unavailable(agent, request, model, error)
        if excess is None:
            return None
        code = "rate_limited" if budget.behavior == "rate_limit" else "budget_exceeded"
        soft = budget.behavior == "soft_alert"
        self._log.event(
            "intervention",
            agent,
            model=model,
            intervention="budget_soft_alert" if soft else code,
            limit=excess.limit,
            retry_after=excess.retry_after,
            **_budget_member(budget, excess),
        )
        return None if soft else _refusal(request, code, budget, excess)

    def spend(self, agent: Agent, model: str, cost: float | None) -> None:
        """Add the cost of a request that was counted; None if it is not known."""
        budget = agent.metadata.budget
        if budget is None or cost == 0:
            return
        now = self._clock()

        def on_error(reason: str) -> None:
            self._log.event("error", agent, model=model, error="budget_not_written", reason=reason)

        self._spending.add_cost(agent.id, budget, cost, on_error)
        warned = self._warned.get(agent.id, -math.inf)
        if cost is None and budget.limit_usd is not None and now - warned >= budget.seconds:
            self._warned[agent.id] = now
            self._log.event("intervention", agent, model=model, intervention="budget_cost_unknown")

    async def close(self) -> None:
        await self._spending.close()

    def _unavailable(self, agent: Agent, request: Request, model: str, error: StoreError) -> RunnerResponse | None:
        self._log.event("intervention", agent, model=model, intervention="budget_check_unavailable", reason=str(error))
        if self._fail_mode == "open":
            return None
        return refuse(request.path, 503, "budget_unavailable", "what this agent has spent can't be read at the moment")


def _refusal(request: Request, code: str, budget: Budget, excess: BudgetExcess) -> RunnerResponse:
    message = (
        f"the agent's budget is spent: {_describe(budget, excess)} within {budget.window}; "
        f"try again in {excess.retry_after} seconds"
    )
    answer = refuse(request.path, 429, code, message, {"budget": _budget_member(budget, excess)})
    headers = [*answer.headers, ("retry-after", str(excess.retry_after))]
    if excess.retry_after > _MAX_RETRY_SECONDS:
        headers.append(("x-should-retry", "false"))
    return replace(answer, headers=headers)


def _describe(budget: Budget, excess: BudgetExcess) -> str:
    if excess.limit == "max_requests":
        return f"{excess.requests} of {budget.max_requests} requests"
    return f"{excess.cost:.4f} of {budget.limit_usd} US dollars"


def _budget_member(budget: Budget, excess: BudgetExcess) -> dict[str, object]:
    """Return the ``budget`` member of events and refusals, as the original system spells it."""
    limits = {"limit_usd": budget.limit_usd, "max_requests": budget.max_requests}
    return {
        "behavior": budget.behavior,
        "window": budget.window,
        "requests": excess.requests,
        "reported_cost_usd": round(excess.cost, 6),
        "unknown_cost_requests": excess.unknown,
        **{name: limit for name, limit in limits.items() if limit is not None},
    }


class PriceList:
    """The price list, ``<auth dir>/prices.json``, read again when it changes."""

    def __init__(self, directory: Path, log: EventLog) -> None:
        self._file = directory / "prices.json"
        self._log = log
        self._known: FileVersion = None
        self._prices = Prices({})

    def cost(self, provider: str, model: str, usage: JsonObject) -> float | None:
        """Return US dollars for a usage object; None where the cost is not known."""
        self._reload()
        return compute_cost(usage, find_price(self._prices.root, provider, model))

    def _reload(self) -> None:
        """Read the file if it changed. A broken list counts as none, with one event: a wrong price is worse."""
        if (now := file_version(self._file)) == self._known:
            return
        self._known, self._prices = now, Prices({})
        if now is None:
            return
        try:
            self._prices = Prices.model_validate_json(read_file(self._file))
        except (OSError, ValidationError) as error:
            reason = error.strerror or "unreadable" if isinstance(error, OSError) else error_line(error)
            self._log.event("error", error="prices_not_read", reason=reason)


class Accounts:
    """The budgets and the prices of one pod."""

    def __init__(self, budgets: Budgets, prices: PriceList) -> None:
        self._budgets = budgets
        self._prices = prices

    @classmethod
    def of(cls, settings: Settings, log: EventLog, spending: Spending) -> Accounts:
        return cls(Budgets(spending, log, settings.budget_fail_mode), PriceList(settings.auth, log))

    async def admit(self, agent: Agent, request: Request, model: str) -> RunnerResponse | None:
        """Count a request; return the refusal when the agent's budget is spent."""
        return await self._budgets.admit(agent, request, model)

    def cost(self, provider: str, model: str, usage: JsonObject) -> float | None:
        """Return US dollars for a usage object; None where the cost is not known."""
        return self._prices.cost(provider, model, usage)

    def settle(self, agent: Agent, model: str, cost: float | None, *, free: bool) -> None:
        """Add the cost of a request that was counted. ``free``: it failed, and reported no usage."""
        self._budgets.spend(agent, model, 0.0 if cost is None and free else cost)

    async def close(self) -> None:
        await self._budgets.close()
