"""The bill of a request: what its model calls cost is charged to its agent's budget."""

from collections.abc import Awaitable, Callable
from http import HTTPStatus

from claw_contract.base import JsonObject
from claw_contract.history import UsageRecord, decode_recorded
from claw_contract.transcript.text import as_object
from claw_mediate.core.cost import FREE, ReceivedAnswer
from claw_mediate.core.http import GONE
from claw_mediate.core.types import ModelResponse
from claw_mediate.providers.client import (
    BAD_REPLY,
    PROVIDER_TIMEOUT,
    TOO_LARGE,
    CutReply,
    ProviderResponse,
)
from claw_mediate.providers.failover import ModelCall, ModelResult
from claw_mediate.providers.live_reply import BROKE_OFF, FLOW_SPENT, IDLE
from claw_mediate.turns.budgets import Budgets
from claw_mediate.turns.context import RequestContext, TurnContext
from claw_mediate.turns.history_lines import UNKNOWN_COST, usage_record

type Ask = Callable[[ModelCall], Awaitable[ModelResult]]
"""Makes one model call."""


class Billing:
    """Charges what requests used to the budgets of their agents."""

    def __init__(self, budgets: Budgets) -> None:
        self._budgets = budgets

    async def ask(self, context: TurnContext, call: ModelCall, ask: Ask) -> ModelResult:
        """Return the result of a turn's model call, which ``ask`` makes.

        With a limit in dollars, its cost is reserved before and noted afterwards.
        """
        admission = context.admission
        if admission is None:
            return await ask(call)

        await self._budgets.grow(admission)
        result: ModelResult | None = None
        try:
            result = await ask(call)
        finally:
            # Without a result, the runner has left, or the turn's time is over.
            if result is None or _may_have_cost(result):
                usage = _usage_of(call, result)
                self._budgets.note_call(
                    context.provider, context.model, call.body, usage, admission
                )
        return result

    def bill_turn(
        self, context: TurnContext, usage: JsonObject, calls: int, status: int
    ) -> UsageRecord:
        """Add what a turn used to its agent's budget, and return it with its cost.

        ``status``: of the turn, or ``GONE`` if one of its replies was cut.
        """
        cost = self._budgets.cost_of_turn(context.provider, context.model, usage, context.admission)
        is_free = cost == UNKNOWN_COST and _is_free(usage, status)
        self._budgets.settle(
            context.agent, context.model, FREE if is_free else cost, context.admission
        )
        return usage_record(usage, calls, cost)

    def bill_forwarded(
        self, context: RequestContext, answer: ReceivedAnswer, status: int
    ) -> UsageRecord:
        """Return what a forwarded request used, with its cost.

        If it asked a model, add it to its agent's budget.
        """
        usage, admission = answer.usage, context.admission
        cost = self._budgets.cost_of_answer(context.provider, context.model, answer, admission)
        if context.view is not None:
            # With a limit in dollars, ``cost_of_answer`` knows already what cost nothing.
            is_free = admission is None and _is_free(usage, status)
            self._budgets.settle(context.agent, context.model, FREE if is_free else cost, admission)
        return usage_record(usage, 1 if usage else 0, cost)


def _may_have_cost(result: ModelResult) -> bool:
    """Return whether a provider may have worked for an answer.

    It has not if it refused, or if no connection to it was made.
    """
    if isinstance(result, ProviderResponse):
        return result.status < HTTPStatus.BAD_REQUEST
    if isinstance(result, ModelResponse):
        return True
    if isinstance(result, CutReply):
        return True
    return result.code in {BROKE_OFF, IDLE, FLOW_SPENT, TOO_LARGE, PROVIDER_TIMEOUT, BAD_REPLY}


def _usage_of(call: ModelCall, result: ModelResult | None) -> JsonObject | None:
    """Return the usage of a model call.

    Of a live reply without an end it is what its stream told so far. None: nobody will ever know.
    """
    if isinstance(result, ModelResponse):
        return result.usage
    return read_usage(call.live.usage) if call.live is not None else None


def read_usage(usage: bytes | None) -> JsonObject | None:
    """Return the usage that a stream told; None if it told none that can be read."""
    if usage is None:
        return None
    try:
        return as_object(decode_recorded(usage))
    except ValueError:
        return None


def _is_free(usage: JsonObject, status: int) -> bool:
    """Return whether an answer without usage cost nothing: an error did not, as far as is known."""
    # What was broken off, by the provider or by a runner that left, did cost something, and nobody
    # knows what.
    return not usage and status >= HTTPStatus.BAD_REQUEST and status != GONE
