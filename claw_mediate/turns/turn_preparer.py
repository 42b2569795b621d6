"""The preparation of a request: its admission, its prompt, and all that is fixed of its turn."""

from functools import partial

from msgspec.structs import replace

from claw_mediate.core.http import RunnerResponse
from claw_mediate.core.model_names import find_model_headers
from claw_mediate.core.tool_catalog import ToolCatalog
from claw_mediate.dialects.base import RunnerRequest
from claw_mediate.dialects.model_only import NOT_READ
from claw_mediate.http.headers import of_json, provider_headers
from claw_mediate.http.large_bodies import compute
from claw_mediate.providers.routing import Route, replace_model
from claw_mediate.telemetry.event_log import EventLog
from claw_mediate.telemetry.timing import Stopwatch
from claw_mediate.turns.answer_stream import streams_live
from claw_mediate.turns.budgets import Admission
from claw_mediate.turns.context import DialectRequest, TurnContext
from claw_mediate.turns.kept.conversation import KeptConversation
from claw_mediate.turns.passthrough import has_policy
from claw_mediate.turns.ports import TurnParts
from claw_mediate.turns.request_preparer import RequestPreparer, name_session
from claw_state.ownership import KeptObject


class TurnPreparer:
    """Prepares turns: the prompt, the providers that may answer, and the request for them."""

    def __init__(self, parts: TurnParts, requests: RequestPreparer, log: EventLog) -> None:
        self._budgets = parts.budgets
        self._prompt = parts.prompt
        self._routing = parts.routing
        self._ownership, _ = parts.owners
        self._requests = requests
        self._log = log

    async def prepare(
        self, incoming: DialectRequest, turn_id: str, stopwatch: Stopwatch
    ) -> TurnContext | RunnerResponse:
        """Return everything that a turn needs before it starts, or the refusal."""
        with stopwatch.waiting():
            text = await self.prompt_text(incoming)

        agent, request = incoming.agent, incoming.request
        view = self._choose_stream(incoming, turn_id)
        incoming = replace(incoming, view=view)
        candidates = await self._routing.candidates(agent, turn_id, request, view, incoming.place)
        if isinstance(candidates, RunnerResponse):
            return candidates

        first = candidates[0]
        if first.model != view.model:
            rename = partial(replace_model, view.body, first.model)
            view = replace(view, body=await compute(len(view.body), rename))
            incoming = replace(incoming, view=view)

        prepared = await self._requests.prepare(incoming, text, first.maker, turn_id)
        redactor = self._routing.protect_keys(candidates, incoming.redactor)
        headers = _headers_for_model(incoming)
        route = Route(agent, turn_id, request.path, headers, candidates, stopwatch=stopwatch)
        return TurnContext(
            turn_id=turn_id,
            agent=agent,
            request=request,
            view=view,
            redactor=redactor,
            route=route,
            dialect=incoming.dialect,
            prepared=prepared,
            session=name_session(incoming),
            conversation=self._conversation(incoming, route, prepared.catalog),
        )

    def _choose_stream(self, incoming: DialectRequest, turn_id: str) -> RunnerRequest:
        """Return the view of a request that says if its answer is shown while it comes.

        docs/spec/live.md section 1.
        """
        agent, view = incoming.agent, incoming.view
        if streams_live(agent, view):
            return replace(view, is_live=True)

        if view.stream and agent.stream == "live":
            reason = view.buffered_reason
            self._log.event(
                "live_fallback", agent, turn_id=turn_id, model=view.model, reason=reason
            )
        return view

    def _conversation(
        self, incoming: DialectRequest, route: Route, catalog: ToolCatalog
    ) -> KeptConversation | None:
        """Return the conversation that the provider puts the request into.

        Return None where it keeps none.
        """
        kept = incoming.view.kept
        if kept is None or not kept.conversation:
            return None

        record = incoming.predecessor
        if record is None or record.id != kept.conversation:
            record = KeptObject(kept.conversation, kept.conversation, provider="")
        names = (*catalog.managed, *sorted(catalog.withdrawn))
        record = replace(record, managed_names=names)
        return KeptConversation(self._ownership.save, route, record, incoming.dialect, kept.form)

    async def admit(
        self, incoming: DialectRequest, turn_id: str = ""
    ) -> RunnerResponse | Admission | None:
        """Count the request in the agent's budget, and return what is reserved for it.

        Return the refusal if the budget is spent.
        """
        if incoming.only_counts:
            return None
        return await self._budgets.admit(incoming.agent, incoming.request, incoming.view, turn_id)

    async def prompt_text(self, incoming: DialectRequest) -> str:
        """Return the text for the end of the system prompt.

        It is "" for an agent without any, whose requests pass unchanged.
        """
        if incoming.view.bypass == NOT_READ or not self._prompt.has_context(incoming.agent):
            return ""
        return await self._prompt.text(
            incoming.agent, incoming.view, incoming.redactor, recall=not incoming.only_counts
        )


def _headers_for_model(incoming: DialectRequest) -> list[tuple[str, str]]:
    """Return the headers of a turn's requests.

    For an agent with a policy, headers that name a model are left out.
    """
    own = of_json(provider_headers(incoming.request.headers, incoming.admitted.secret))
    if has_policy(incoming.agent):
        naming = find_model_headers(own)
        own = [pair for pair in own if pair[0].lower() not in naming]

    # A compressed stream comes in lumps.
    coding = "identity" if incoming.view.is_live else "gzip, deflate"
    return [*own, ("accept-encoding", coding)]
