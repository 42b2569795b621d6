"""Budgets and the price list: what requests cost, and when an agent has spent its budget.

A request is counted when it is admitted, durably; history is never read again for it
(docs/spec/mediation.md section 8). Without a price list, only the costs that providers report are
known.

With a limit in dollars:

    admission        reserves what the request may cost; it must fit into what is left
    while it runs    the reservation is renewed, and grows with each model call of a turn
    the end          the cost takes the place of the reservation: the true one, or an estimate of
                     what was received
"""

import asyncio
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Literal
from weakref import WeakSet

from msgspec.structs import replace
from pydantic import ValidationError

from claw_contract.base import JsonObject, error_line
from claw_contract.metadata import Budget
from claw_contract.prices import Price, Prices
from claw_contract.whole_numbers import whole_number
from claw_mediate.agents.directory import Agent
from claw_mediate.core.cost import (
    FREE,
    Cost,
    ReceivedAnswer,
    RequestSize,
    compute_cost,
    count_tokens,
    estimate_answer,
    find_dearest_price,
    find_price,
    measure_request,
    price_tokens,
)
from claw_mediate.core.http import Request, RunnerResponse, refuse
from claw_mediate.dialects.base import RunnerRequest
from claw_mediate.file_cache import FileVersion, LookTimer, file_version, is_of_the_file, read_file
from claw_mediate.providers.routing import new_turn_id
from claw_mediate.telemetry.event_log import EventLog
from claw_state.spending import RENEWAL_SECONDS, BudgetExcess, Charge, Reservation, Spending
from claw_state.url import StoreError

type FailMode = Literal["open", "closed"]
"""Requests while the spending can't be read: they pass ("open"), or they get 503 ("closed")."""
_MAX_RETRY_SECONDS = 60
"""SDKs wait at most a minute for a ``Retry-After``; with a longer one they come back at once."""
_PAUSES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.3)
"""Seconds between the tries to admit a request that only others under way keep out.

A runner has its answer a moment before the cost of it is stored: its next request must not be
refused for that.
"""
_MAX_MEASURED_IN_LOOP = 256 << 10
"""Bytes of a request that are measured in the event loop; a longer one in a thread."""


@dataclass(eq=False, slots=True)
class Admission:
    """An admitted request of an agent with a limit in dollars.

    ``reservation``: None where it could not be stored, and the request was let through.
    """

    size: RequestSize
    reservation: Reservation | None
    is_under_way: bool = False
    """True from the moment it goes to a provider: from then on its end is reported."""
    spent: float = 0.0  # The cost of the model calls of a turn, as far as they have answered
    lost: float = 0.0  # The estimate of those whose answer, or its usage, never came
    per_call: float = 0.0  # The estimate of each


class PriceList:
    """The price list, ``<auth dir>/prices.json``, read again when it changes."""

    def __init__(self, directory: Path, log: EventLog, look_seconds: float = 0.0) -> None:
        """Look at the file once in ``look_seconds``; 0: whenever a price is needed."""
        self._look_timer = LookTimer(look_seconds)
        self._file = directory / "prices.json"
        self._log = log
        self._known: FileVersion | bool = None
        """The file's version when it was read; False after an error that passes."""
        self._prices = Prices({})

    def cost(self, provider: str, model: str, usage: JsonObject) -> float | None:
        """Return US dollars for a usage object; None where the cost is not known."""
        self._reload()
        return compute_cost(usage, find_price(self._prices.root, provider, model))

    def find(self, provider: str, model: str) -> Price | None:
        """Return the price of a model; None for an empty list.

        A model that the list does not have gets the dearest price of the list.
        """
        self._reload()
        own = find_price(self._prices.root, provider, model)
        return own or find_dearest_price(self._prices.root, model)

    def expect(self, agent: Agent, model: str) -> Price | None:
        """Return the dearest price that a request for a model may have.

        Who will answer is not known yet.
        """
        self._reload()
        return find_dearest_price(self._prices.root, _expected_model(agent, model))

    def _reload(self) -> None:
        """Read the file if it changed.

        A broken list counts as none, with one event: a wrong price is worse. While the file can't
        be read for a reason that passes, the last list stays in force, and each look reads again.
        """
        if not self._look_timer.is_due():
            return

        version = file_version(self._file)
        self._look_timer.restart()
        if version == self._known:
            return

        was_unread = self._known is False
        self._known = version
        prices = Prices({})
        try:
            if version is not None:
                prices = Prices.model_validate_json(read_file(self._file))
        except OSError as error:
            reason = error.strerror or "unreadable"
            if not is_of_the_file(error):
                self._known = False
                if not was_unread:
                    self._report_unread(reason)
                return
            self._report_unread(reason)
        except ValidationError as error:
            self._report_unread(error_line(error))
        self._prices = prices

    def _report_unread(self, reason: str) -> None:
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
        self._prices = prices
        self._log = log
        self._fail_mode = fail_mode
        self._clock = clock
        self._warned: dict[str, float] = {}
        """When each agent's requests of unknown cost were last logged."""
        self._under_way: WeakSet[Reservation] = WeakSet()
        """The reservations that are renewed.

        One that is lost without a report of its end is not renewed, and lapses.
        """
        self._renewal: asyncio.Task[None] | None = None

    async def admit(
        self, agent: Agent, request: Request, view: RunnerRequest, turn_id: str = ""
    ) -> RunnerResponse | Admission | None:
        """Count a request, and return what is reserved for it.

        Return the refusal if the budget is spent.

        ``turn_id``: of a turn that has an id already: a resumed turn takes the place of its earlier
        attempt.
        """
        budget = agent.metadata.budget
        if budget is None or (budget.max_requests is None and budget.limit_usd is None):
            return None

        admission: Admission | None = None
        if budget.limit_usd is not None:
            admission = await self._measure(agent, request, view, turn_id)
        try:
            excess = await self._count(agent, budget, admission)
        except StoreError as error:
            if admission is not None:
                admission.reservation = None
            refusal = self._unavailable(agent, request, view.model, error)
            return refusal or admission

        if excess is None:
            return admission

        code = "rate_limited" if budget.behavior == "rate_limit" else "budget_exceeded"
        soft = budget.behavior == "soft_alert"
        self._log.event(
            "intervention",
            agent,
            model=view.model,
            intervention="budget_soft_alert" if soft else code,
            limit=excess.limit,
            retry_after=excess.retry_after,
            **_budget_member(budget, excess),
        )
        return admission if soft else _refusal(request, code, budget, excess)

    def has_limit_usd(self, agent: Agent) -> bool:
        """Return whether the agent is refused what it can't pay.

        A soft limit in dollars only warns.
        """
        budget = agent.metadata.budget
        if budget is None or budget.limit_usd is None:
            return False
        return budget.behavior != "soft_alert"

    @contextmanager
    def held(self, agent: Agent, model: str, admission: Admission | None) -> Iterator[None]:
        """Give back what was reserved for a request if it does not get under way."""
        try:
            yield
        finally:
            if admission is not None and not admission.is_under_way:
                self.settle(agent, model, FREE, admission)

    def cost(self, provider: str, model: str, usage: JsonObject) -> float | None:
        """Return the US dollars of a usage object; None where they are not known."""
        return self._prices.cost(provider, model, usage)

    def cost_of_answer(
        self, provider: str, model: str, answer: ReceivedAnswer, admission: Admission | None
    ) -> Cost:
        """Return the cost of one answer of a provider.

        With a limit in dollars, an estimate takes the place of a cost that is not known.
        """
        known: float | None = None
        if answer.is_usage_final:
            known = self._prices.cost(provider, model, answer.usage)
        if admission is None:
            return Cost(known)

        known = self._believable(provider, model, answer.usage, known)
        was_refused = answer.status is None or answer.status >= HTTPStatus.BAD_REQUEST
        if was_refused and not answer.usage:
            return FREE
        if known is not None:
            return Cost(known)

        price = self._prices.find(provider, model)
        if price is not None:
            return Cost(None, estimate_answer(answer, admission.size, price))
        return Cost(None, admission.per_call or None)

    def cost_of_turn(
        self, provider: str, model: str, usage: JsonObject, admission: Admission | None
    ) -> Cost:
        """Return the cost of a turn by the usage of its model calls.

        A call without a usage is estimated.
        """
        known = self._prices.cost(provider, model, usage)
        if admission is None:
            return Cost(known)

        known = self._believable(provider, model, usage, known)
        # What was noted of each call counts: a sum of odd numbers must not give money back.
        estimated = round(max(admission.lost, admission.spent - (known or 0.0)), 9)
        if known is None and usage and not estimated:  # of an earlier attempt
            estimated = self._estimate_by_usage(provider, model, usage) or admission.per_call
        return Cost(known, estimated or None)

    def note_call(
        self, provider: str, model: str, body: bytes, usage: JsonObject | None, admission: Admission
    ) -> None:
        """Note a turn's model call; ``usage``: empty, or None, if nobody will ever know it."""
        usage = usage or {}
        priced = self._prices.cost(provider, model, usage)
        cost = self._believable(provider, model, usage, priced)
        if cost is not None:
            admission.spent += cost
            return

        estimate = self._estimate_by_usage(provider, model, usage)
        price = self._prices.find(provider, model)
        if estimate is None and price is not None:
            estimate = price_tokens(price, count_tokens(body), admission.size.output_tokens)

        lost = admission.per_call if estimate is None else estimate
        admission.lost += lost
        admission.spent += lost

    def _believable(
        self, provider: str, model: str, usage: JsonObject, cost: float | None
    ) -> float | None:
        """Return a cost; None if it is 0 and the model has a price: such a usage says nothing."""
        price = self._prices.find(provider, model)
        has_price = price is not None and (price.input > 0 or price.output > 0)
        if cost == 0 and has_price and "cost" not in usage:
            return None
        return cost

    def _estimate_by_usage(self, provider: str, model: str, usage: JsonObject) -> float | None:
        """Return the cost of a usage, or None if nothing can be computed.

        A model without a price is charged the dearest one.
        """
        price = self._prices.find(provider, model)
        if price is None:
            return None
        return compute_cost(usage, price) or None

    async def grow(self, admission: Admission) -> None:
        """Reserve what a turn has cost so far, and the expected cost of its next model call."""
        reservation = admission.reservation
        if reservation is None or not admission.spent:
            return

        reservation.estimate = admission.spent + admission.per_call
        with suppress(StoreError):  # the turn's end reports it
            await self._spending.renew([reservation])

    def settle(
        self, agent: Agent, model: str, cost: Cost, admission: Admission | None = None
    ) -> None:
        """Add the cost of a request that was counted, in the place of what was reserved for it."""
        budget = agent.metadata.budget
        reservation = None if admission is None else admission.reservation
        if reservation is not None:
            self._under_way.discard(reservation)
            if not self._under_way and self._renewal is not None:
                self._renewal.cancel()
                self._renewal = None

        if budget is None or (reservation is None and cost == FREE):
            return

        def on_error(reason: str) -> None:
            self._log.event("error", agent, model=model, error="budget_not_written", reason=reason)

        charge = Charge(cost.charge, cost.is_known, reservation)
        self._spending.add_cost(agent.id, budget, charge, on_error)
        if not cost.is_known and budget.limit_usd is not None:
            self._warn_of_unknown_cost(agent, model, budget, cost)

    def _warn_of_unknown_cost(self, agent: Agent, model: str, budget: Budget, cost: Cost) -> None:
        """Log that a cost is not known, once in the budget's window."""
        now = self._clock()
        warned = self._warned.get(agent.id, -math.inf)
        if now - warned < budget.seconds:
            return

        self._warned[agent.id] = now
        reason = "the answer has no usage" if cost.estimated else "the model has no price"
        self._log.event(
            "intervention", agent, model=model, intervention="budget_cost_unknown", reason=reason
        )

    async def close(self) -> None:
        if self._renewal is not None:
            self._renewal.cancel()
        await self._spending.close()

    async def _measure(
        self, agent: Agent, request: Request, view: RunnerRequest, turn_id: str
    ) -> Admission:
        """Return what a request may cost, at the dearest price.

        Its input counts by its bytes, its output by the limits that it declares.
        """
        declared = request.header("content-length")
        length = 0
        if declared:
            length = whole_number(declared[0]) or 0

        if len(view.body) > _MAX_MEASURED_IN_LOOP:
            size = await asyncio.to_thread(measure_request, view.body, request.path, length)
        else:
            size = measure_request(view.body, request.path, length)

        price = self._prices.expect(agent, view.model)
        if price is not None and not (price.input or price.output):
            return Admission(size, None)  # It costs nothing: there is nothing to reserve.

        estimate = needed = 0.0
        if price is not None:
            estimate = price_tokens(price, size.input_tokens, size.output_tokens)
            # A request is refused for its output only if the runner set the limit of that itself.
            # Otherwise only the cost of its input is certain.
            needed = estimate if size.is_limited else price_tokens(price, size.input_tokens, 0)

        reservation = Reservation(turn_id or new_turn_id(), agent.id, estimate, needed)
        return Admission(size, reservation)

    async def _count(
        self, agent: Agent, budget: Budget, admission: Admission | None
    ) -> BudgetExcess | None:
        if admission is None or admission.reservation is None:
            return await self._spending.count_request(agent.id, budget)

        reservation = admission.reservation
        is_never_refused = budget.behavior == "soft_alert"
        excess = await self._spending.count_request(agent.id, budget, reservation)
        for pause in _PAUSES:
            if excess is None or not excess.is_reserved_only or is_never_refused:
                break

            # What others have reserved may turn out to cost less.
            await asyncio.sleep(pause)
            excess = await self._spending.count_request(agent.id, budget, reservation)

        if excess is None or is_never_refused:
            admission.per_call = reservation.estimate
            self._under_way.add(reservation)
            if self._renewal is None or self._renewal.done():
                self._renewal = asyncio.ensure_future(self._renew())
        return excess

    async def _renew(self) -> None:
        """Show that the requests of this process are under way, until none is."""
        while self._under_way:
            await asyncio.sleep(RENEWAL_SECONDS)
            try:
                await self._spending.renew([*self._under_way])
            except StoreError:
                continue  # each request's end reports it

    def _unavailable(
        self, agent: Agent, request: Request, model: str, error: StoreError
    ) -> RunnerResponse | None:
        """Log that the budget can't be checked. Return the refusal; None if requests go on."""
        self._log.event(
            "intervention",
            agent,
            model=model,
            intervention="budget_check_unavailable",
            reason=str(error),
        )
        if self._fail_mode == "open":
            return None
        message = "what this agent has spent can't be read at the moment"
        return refuse(request.path, 503, "budget_unavailable", message)


def _expected_model(agent: Agent, model: str) -> str:
    """Return the model that will be asked if all goes well.

    It is the policy's first one in place of a model that the policy does not allow.
    """
    policy = agent.metadata.model_policy
    if policy is None or not policy.allowed:
        return model
    if model and any(f"/{each.ref}".endswith(f"/{model}") for each in policy.allowed):
        return model

    for each in policy.allowed:
        if each.slot == "primary":
            return each.ref
    return policy.allowed[0].ref


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

    reserved = ""
    if excess.reserved:
        reserved = f", and {excess.reserved:.4f} reserved for requests under way,"
    return f"{excess.cost:.4f}{reserved} of {budget.limit_usd} US dollars"


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
