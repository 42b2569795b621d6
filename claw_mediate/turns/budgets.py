"""The budgets and the price list: the cost of requests, and the refusal of an agent that has spent its budget.

A request is counted when it is admitted, durably; history is never read again for it (docs/spec/mediation.md section 8).
Without a price list, only the costs that providers report are known.
"""

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from msgspec.structs import replace
from pydantic import ValidationError

from claw_contract.base import JsonObject, error_line
from claw_contract.metadata import Budget
from claw_contract.prices import Price, Prices
from claw_mediate.agents.directory import Agent
from claw_mediate.core.http import Request, RunnerResponse, refuse
from claw_mediate.file_cache import FileVersion, file_version, read_file
from claw_mediate.telemetry.event_log import EventLog
from claw_state.spending import BudgetExcess, Spending
from claw_state.url import StoreError

_MILLION = 1_000_000
_MAX_AMOUNT = 1e12


def find_price(prices: Mapping[str, Price], provider: str, model: str) -> Price | None:
    """Return the price of a model: of all names that it begins with, the longest, with its provider before without."""
    for name in (f"{provider}/{model}", model):
        if matches := [known for known in prices if name.startswith(known)]:
            return prices[max(matches, key=len)]
    return None


def compute_cost(usage: JsonObject, price: Price | None) -> float | None:
    """Return US dollars: the provider's own figure, else the price list's, else None. A response without usage has no cost."""
    reported = _amount(usage.get("cost"))
    if reported is not None or price is None:
        return reported
    tokens = _openai_tokens(usage) or _anthropic_tokens(usage)
    if tokens is None:
        return None
    fresh, cached, output = tokens
    cached_price = price.input if price.cached_input is None else price.cached_input
    return (fresh * price.input + cached * cached_price + output * price.output) / _MILLION


def _openai_tokens(usage: JsonObject) -> tuple[float, float, float] | None:
    """Return (fresh input, cached input, output): the cached tokens are a part of the input."""
    chat = "prompt_tokens", "prompt_tokens_details", "completion_tokens"
    responses = "input_tokens", "input_tokens_details", "output_tokens"
    names = responses if responses[1] in usage else chat
    prompt, details, output = (usage.get(name) for name in names)
    if (tokens := _amount(prompt)) is None:
        return None
    cached = min(_amount(details.get("cached_tokens")) or 0.0 if isinstance(details, dict) else 0.0, tokens)
    return tokens - cached, cached, _amount(output) or 0.0


def _anthropic_tokens(usage: JsonObject) -> tuple[float, float, float] | None:
    """Return (fresh input, cached input, output): cache reads and writes are counted beside ``input_tokens``."""
    fresh, written, cached, output = (
        _amount(usage.get(name))
        for name in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
    )
    return None if fresh is None else (fresh + (written or 0.0), cached or 0.0, output or 0.0)


def _amount(value: object) -> float | None:
    """Return a plausible amount, or None: a provider's odd numbers must not give money back."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _MAX_AMOUNT:
        return None
    return float(value)


type FailMode = Literal["open", "closed"]
"""Requests while the spending can't be read: they pass ("open"), or they get 503 ("closed")."""
_MAX_RETRY_SECONDS = 60  # SDKs wait no longer than a minute for a ``Retry-After``; with a longer one they come back at once


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


class Budgets:
    """The budgets of all agents, and the prices by which they are charged."""

    def __init__(
        self,
        spending: Spending,
        prices: PriceList,
        log: EventLog,
        fail_mode: FailMode = "open",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._spending = spending
        self.cost = prices.cost
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

    def spend(self, agent: Agent, model: str, cost: float | None, *, is_free: bool = False) -> None:
        """Add the cost of a request that was counted; None if it is not known. ``is_free``: it failed, without usage."""
        budget = agent.metadata.budget
        if budget is None or cost == 0 or (cost is None and is_free):
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
    limits = {"limit_usd": budget.limit_usd, "max_requests": budget.max_requests}
    return {
        "behavior": budget.behavior,
        "window": budget.window,
        "requests": excess.requests,
        "reported_cost_usd": round(excess.cost, 6),
        "unknown_cost_requests": excess.unknown,
        **{name: limit for name, limit in limits.items() if limit is not None},
    }
