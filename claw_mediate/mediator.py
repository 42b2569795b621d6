"""The composition root: a runner's request in, its answer out (spec/mediation.md).

    admit     who asks            Admitted, or a refusal
    exchange  what happens        Exchange (an answer of ours), or Forward (not mediated: the host sends it on)
    forwarding                    routes; and what became of a forwarded request, told by the host

It knows nothing of mitmproxy. The host calls ``admit`` when the headers are there and ``exchange`` when the body is.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from claw_contract.secret import Redactor
from claw_mediate import wire
from claw_mediate.dialects import anthropic_messages, openai_chat
from claw_mediate.dialects.base import Dialect, RunnerRequest, UnreadableRequestError
from claw_mediate.dialects.routed import NOT_READ, read_model
from claw_mediate.exchange import Exchange, Forward, Request, refused, said
from claw_mediate.housekeeping import housekeeping
from claw_mediate.io import identity
from claw_mediate.io.accounts import Accounts
from claw_mediate.io.agents import Agent, Agents
from claw_mediate.io.context.gather import Context
from claw_mediate.io.forwarding import Forwarding
from claw_mediate.io.headers import for_provider
from claw_mediate.io.history import History
from claw_mediate.io.identity import Admitted
from claw_mediate.io.log import EventLog
from claw_mediate.io.mediated import Job
from claw_mediate.io.offering import Offering
from claw_mediate.io.playing import Peers, Playing
from claw_mediate.io.providers import KEY_VARIABLES, Registry
from claw_mediate.io.record import Recorder
from claw_mediate.io.routing import Asker, Route, Routing, with_model
from claw_mediate.io.services import Services
from claw_mediate.io.settings import Settings
from claw_mediate.io.store import Store
from claw_mediate.io.upstream import Upstream
from claw_mediate.talk import ToolUse


class Spoken(NamedTuple):
    """What a request is in: its dialect, and whether it only counts tokens."""

    dialect: Dialect
    counts: bool = False


DIALECTS: Final[Mapping[str, Spoken]] = {
    "/chat/completions": Spoken(openai_chat),
    "/messages": Spoken(anthropic_messages),
    "/messages/count_tokens": Spoken(anthropic_messages, counts=True),
}
"""By the end of the path of the POST that speaks it."""


class Mediator:
    """One pod's mediator."""

    def __init__(
        self, settings: Settings, log: EventLog, env: Mapping[str, str] = os.environ, peers: Peers | None = None
    ) -> None:
        """Raises ``OSError`` or ``sqlite3.Error`` for a state that can't be opened, ``ValueError`` for a bad base URL."""
        self._settings = settings
        self._log = log
        self.registry = Registry(settings.auth, settings.hosts, log, env)
        self._agents = Agents(settings.context, log)
        self._peers = peers or Peers(Upstream(self.registry, log), Services(settings.secrets))
        self._store = Store(settings.state)
        self._accounts = Accounts.of(settings, log)
        self._context = Context.of(settings, log)
        history = History(settings.history, settings.history_max_bytes) if settings.history else None
        self._recorder = Recorder(history, log, self._accounts, self._context.retain)
        self._routing = Routing(self.registry, log)
        self.forwarding = Forwarding(self.registry, self._routing, self._recorder)
        self._offering = Offering(self._store, log)
        self._playing = Playing(self._peers, self._recorder, self._store)

    def missing(self) -> str | None:
        """What a proxy can't work without, in one line with the remedy; None when all is there."""
        problems = []
        if not self._settings.context.is_dir():
            problems.append(
                f"no context directory at {str(self._settings.context)!r} (run `claw compile`, then set CLAW_CONTEXT_ROOT)"
            )
        if not any(provider.usable for provider in self.registry.all().values()):
            names = ", ".join(KEY_VARIABLES)
            problems.append(f"no provider has a key (set one of {names}, or CLAW_AUTH_DIR with providers.json)")
        return "; ".join(problems) or None

    def own(self, request: Request) -> Exchange | None:
        """What is answered on the proxy's own port without a credential: ``/health`` and ``/ready``."""
        if request.host is not None or request.method not in {"GET", "HEAD"}:
            return None
        if request.bare_path == "/health":
            return said(200, {"ok": True})
        if request.bare_path == "/ready":
            ready = self.missing() is None and self.registry.serves() and self._store.writable()
            return said(200 if ready else 503, {"ready": ready})
        return None

    def admit(self, request: Request) -> Admitted | Exchange:
        """The agent that asks, or the refusal."""
        return identity.admit(self._agents, request)

    def dialect(self, request: Request) -> Spoken | None:
        """The dialect that this request is read in; None: it is forwarded unread."""
        if request.method.upper() != "POST":
            return None
        return next((spoken for end, spoken in DIALECTS.items() if request.meant_path.endswith(end)), None)

    async def exchange(self, admitted: Admitted, request: Request) -> Exchange | Forward:
        """What happens to an admitted request whose body is there. Cancelled when the runner leaves."""
        spoken = self.dialect(request)
        if spoken is None:
            return self.forward(admitted, request)
        try:
            # What a runner's tools print may hold its own credential (``env``), which is nobody else's business.
            body = Redactor([admitted.secret]).document(request.body)
            view = _read(admitted.agent, spoken.dialect, body)
            if not spoken.counts and (spent := self._accounts.admit(admitted.agent, request, view.model)) is not None:
                return spent
            if (rule := housekeeping(view)) is not None:
                self._log.event(
                    "intervention", admitted.agent.id, model=view.model, intervention=f"housekeeping:{rule}"
                )
                return self.forwarding.forward(admitted, request, view, counts=spoken.counts, aside=True)
            context = await self._context_for(admitted, view, recall=not spoken.counts)
            if not admitted.agent.tools or view.bypass is not None:
                return self._bypassed(admitted, request, view, spoken, context)
            if spoken.counts:
                return self._counted(admitted, request, view, spoken.dialect, context)
            job = self._job(admitted, request, view, spoken.dialect, context)
            if isinstance(job, Exchange):
                return job
            return await self._playing.answer(job, self._settings.pace(job.dialect.NAME))
        except (UnreadableRequestError, wire.WireError) as error:
            return refused(request.path, 400, "invalid_request", str(error))

    def forward(self, admitted: Admitted, request: Request, view: RunnerRequest | None = None) -> Exchange | Forward:
        """A request that is not mediated: the same bytes, with the credential swapped (and the model's prefix off)."""
        return self.forwarding.forward(admitted, request, view)

    async def close(self, seconds: float) -> None:
        """Let turns that are under way end, for so long; then cancel them, and close every connection."""
        await self._playing.close(seconds)
        await self._context.close()
        await self._peers.upstream.close()
        await self._peers.services.close()
        self._store.close()
        self._accounts.close()

    async def _context_for(self, admitted: Admitted, view: RunnerRequest, *, recall: bool) -> str:
        """Text for the end of the system prompt; "" for an agent without context, whose requests pass as they are."""
        if view.bypass == NOT_READ or not self._context.concerns(admitted.agent):
            return ""
        return await self._context.text(admitted.agent, view, self._redactor(admitted), recall=recall)

    def _redactor(self, admitted: Admitted) -> Redactor:
        """What no service, prompt, runner or history may see. The log is told of it too."""
        secrets = [*self.registry.secrets(), *admitted.agent.secrets, admitted.token, admitted.secret]
        self._log.protect(secrets)
        return Redactor(secrets)

    def _bypassed(
        self, admitted: Admitted, request: Request, view: RunnerRequest, spoken: Spoken, context: str
    ) -> Exchange | Forward:
        """No tools are offered: the agent has none, or the form of the request rules them out."""
        if admitted.agent.tools:
            self._log.event("intervention", admitted.agent.id, model=view.model, intervention=view.bypass)
        if context:
            view = replace(view, body=spoken.dialect.with_context(view, context))
        return self.forwarding.forward(admitted, request, view, counts=spoken.counts)

    def _counted(
        self, admitted: Admitted, request: Request, view: RunnerRequest, dialect: Dialect, context: str
    ) -> Exchange | Forward:
        """Tokens are counted as they would be spent: with the managed tools, the hidden rounds and the context."""
        _, offered = self._offering.made(admitted.agent, view, dialect, context)
        counted = offered(ToolUse.AS_ASKED).body
        return self.forwarding.forward(admitted, request, replace(view, body=counted), counts=True)

    def _job(
        self, admitted: Admitted, request: Request, view: RunnerRequest, dialect: Dialect, context: str
    ) -> Job | Exchange:
        agent = admitted.agent
        asker = Asker(agent, f"turn_{uuid.uuid4().hex}")
        candidates = self._routing.candidates(asker, request, view)
        if isinstance(candidates, Exchange):
            return candidates
        if candidates[0].model != view.model:
            view = replace(view, body=with_model(view.body, candidates[0].model))
        headers = [*for_provider(request.headers, admitted.secret), ("accept-encoding", "gzip, deflate")]
        route = Route(asker, request.path, headers, candidates)
        catalog, offered = self._offering.made(agent, view, dialect, context)
        redactor = self._redactor(admitted)
        return Job(asker.turn_id, agent, request, view, dialect, catalog, offered, route, redactor)


def _read(agent: Agent, dialect: Dialect, body: bytes) -> RunnerRequest:
    """The view of a request. What no rule of ours needs to read is the provider's to judge, and goes there."""
    try:
        return dialect.read_request(body)
    except UnreadableRequestError:
        if agent.tools:
            raise
        return read_model(body)
