"""The composition root: a runner's request in, its answer out (spec/mediation.md).

    admit     who asks            Admitted, or a refusal
    exchange  what happens        Exchange (an answer of ours), or Forward (not mediated: the host sends it on)
    forwarding                    routes; and what became of a forwarded request, told by the host

It knows nothing of mitmproxy. The host calls ``admit`` when the headers are there and ``exchange`` when the body is.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from claw_contract.known_providers import KEY_VARIABLES
from claw_contract.redaction.redactor import Redactor
from claw_contract.secret import Secret
from claw_mediate import reload
from claw_mediate.agents import authenticate
from claw_mediate.agents.authenticate import Admitted
from claw_mediate.agents.directory import Agent, Agents
from claw_mediate.core import json_splice
from claw_mediate.core.api_paths import End, end_of
from claw_mediate.core.http import Exchange, Forward, Request, refused, said, stopping
from claw_mediate.core.session_id import session as session_of
from claw_mediate.core.side_requests import housekeeping
from claw_mediate.core.talk import ToolUse
from claw_mediate.dialects.anthropic import messages as anthropic_messages
from claw_mediate.dialects.base import Dialect, RunnerRequest, UnreadableRequestError
from claw_mediate.dialects.openai import chat as openai_chat
from claw_mediate.dialects.routed import NOT_READ, read_model
from claw_mediate.prompt.build import Context
from claw_mediate.providers.failover import ProviderFailover
from claw_mediate.providers.registry import Auth, Registry
from claw_mediate.providers.routing import Routing
from claw_mediate.settings import Settings
from claw_mediate.state import State, opened
from claw_mediate.telemetry.event_log import EventLog
from claw_mediate.telemetry.history import History
from claw_mediate.telemetry.metrics import Observed
from claw_mediate.tools.http import HttpToolExecutor
from claw_mediate.turns.accounts import Accounts
from claw_mediate.turns.continuity import Continuing
from claw_mediate.turns.other_paths import OtherPaths
from claw_mediate.turns.passthrough import Passthrough
from claw_mediate.turns.pipeline import Before, Mediated, TurnPipeline
from claw_mediate.turns.prepare import Around, Offering
from claw_mediate.turns.recorder import Recorder
from claw_mediate.turns.registry import Peers, TurnRegistry


class Spoken(NamedTuple):
    """What a request is in: its dialect, and whether it only counts tokens."""

    dialect: Dialect
    counts: bool = False


DIALECTS: Final[Mapping[End, Spoken]] = {
    "/chat/completions": Spoken(openai_chat),
    "/messages": Spoken(anthropic_messages),
    "/messages/count_tokens": Spoken(anthropic_messages, counts=True),
}
"""By the end of the path of the POST that speaks it."""
_AT_ONCE = 256 << 10
"""Bytes of a body that are looked through in the event loop; more have a thread."""


class Mediator:
    """One pod's mediator."""

    def __init__(
        self,
        settings: Settings,
        log: EventLog,
        env: Mapping[str, str] = os.environ,
        peers: Peers | None = None,
        before: State | None = None,
    ) -> None:
        """``before``: what the mediator of earlier settings knows. Raises ``ValueError`` with one line for a state that can't
        be opened, or a bad base URL.
        """
        self._settings = settings
        self._log = log
        self.registry = Registry(Auth(settings.auth, settings.key_states), settings.hosts, log, env)
        self._agents = Agents(settings.context, log)
        self._peers = peers or Peers(ProviderFailover(self.registry, log), HttpToolExecutor(settings.secrets))
        self.state = opened(settings.state, log, before)
        self._accounts = Accounts.of(settings, log, self.state.spending)
        self._context = Context.of(settings, log)
        self._history = History(settings.history, settings.history_max_bytes) if settings.history else None
        self._recorder = Recorder(self._history, log, self._accounts, self._context.retain)
        self._routing = Routing(self.registry, log)
        self.forwarding = Passthrough(self.registry, self._routing, self._recorder)
        self.other_paths = OtherPaths(self.forwarding, self._accounts)
        continuing = Continuing(self.state.store, log)
        self._offering = Offering(continuing, log)
        self._playing = TurnRegistry(self._peers, self._recorder, continuing, self.state.journal)
        self._mediating = TurnPipeline(settings, log, self._routing, self._offering, self._playing)
        self._problem: str | None = None
        """Why the proxy is not ready, as last told."""
        self._stops = False
        self._secrets: set[Secret] = set()
        self._known = Redactor(())

    def missing(self) -> str | None:
        """What a proxy can't begin without, in one line with the remedy; None when all is there, or may yet come."""
        problems = []
        if not self._settings.context.is_dir():
            problems.append(
                f"no context directory at {str(self._settings.context)!r} (run `claw compile`, then set CLAW_CONTEXT_ROOT)"
            )
        usable = any(provider.usable for provider in self.registry.all().values())
        if not usable and not self.registry.may_be_filled:
            names = ", ".join(KEY_VARIABLES)
            nowhere = f"no provider has a key (set one of {names}, or CLAW_AUTH_DIR with providers.json)"
            problems.append(self.registry.problem or nowhere)
        if self._history is not None and not self._history.is_writable():
            problems.append(f"no history can be written in {str(self._settings.history)!r} (CLAW_SESSION_HISTORY_DIR)")
        return "; ".join(problems) or None

    async def _not_ready(self) -> str | None:
        """What keeps turns from working now, in one line; None when nothing does."""
        if self._stops:
            return "it is being stopped"
        if (problem := self.missing()) is not None:
            return problem
        agents = self._agents.ids()
        if agents and not any(self._agents.find(agent_id) for agent_id in agents):
            return "no agent's context can be read"
        if not self.registry.serves():
            return "no key of any provider is usable now"
        shown = self._settings.state.shown
        return None if await self.state.store.is_writable() else f"the state {shown!r} can't be written"

    async def observed(self) -> Observed:
        """For ``/metrics``."""
        problem = await self._not_ready()
        writable = problem is None or await self.state.store.is_writable()
        return Observed(problem is None, writable, self.registry.pool())

    @property
    def turns_under_way(self) -> int:
        return len(self._playing)

    async def own(self, request: Request) -> Exchange | None:
        """What is answered without a credential: ``/health`` and ``/ready`` on the proxy's own port, and ``HEAD /``, which
        Claude Code asks of its provider before all else. None of it tells anything; the log says why we are not ready.
        """
        if request.method == "HEAD" and request.bare_path == "/":
            return said(200, {})
        if request.host is not None or request.method not in {"GET", "HEAD"}:
            return None
        if request.bare_path == "/health":
            return said(200, {"ok": True})
        if request.bare_path == "/ready":
            problem = await self._not_ready()
            if problem is not None and problem != self._problem:
                self._log.event("error", error="not_ready", reason=problem)
            self._problem = problem
            return said(503 if problem else 200, {"ready": not problem})
        return None

    def admit(self, request: Request) -> Admitted | Exchange:
        """The agent that asks, or the refusal."""
        if self._stops:
            return stopping(request.path)
        return authenticate.admit(self._agents, request, self._log)

    def must_read(self, admitted: Admitted, request: Request) -> bool:
        """Return whether the body must be there before the request is decided about."""
        return self.dialect(request) is not None or self.other_paths.must_read(admitted.agent, request)

    def dialect(self, request: Request) -> Spoken | None:
        """The dialect that this request is read in; None: it is of none (``other_paths``)."""
        end = end_of(request.path) if request.method.upper() == "POST" else None
        return None if end is None else DIALECTS[end]

    async def exchange(self, admitted: Admitted, request: Request) -> Exchange | Forward:
        """What happens to an admitted request whose body is there. Cancelled when the runner leaves."""
        if self._stops:  # while its body was on the way
            return stopping(request.path)
        spoken = self.dialect(request)
        try:
            body = await _cleared(admitted, request.body)
            if spoken is None:
                return await self.other_paths.decide(admitted, request, body)
            view = _read(admitted.agent, spoken.dialect, body)
            rule = housekeeping(view)
            if admitted.agent.tools and view.bypass is None and rule is None and not spoken.counts:
                return await self._mediate(admitted, request, view, spoken.dialect)
            admits = self._accounts.admit
            if not spoken.counts and (spent := await admits(admitted.agent, request, view.model)) is not None:
                return spent
            if rule is not None:
                self._log.event("intervention", admitted.agent, model=view.model, intervention=f"housekeeping:{rule}")
                return self.forwarding.forward(admitted, request, view, counts=spoken.counts, aside=True)
            context = await self._context_for(admitted, view, recall=not spoken.counts)
            if not admitted.agent.tools or view.bypass is not None:
                return self._bypassed(admitted, request, view, spoken, context)
            return await self._counted(admitted, request, view, spoken.dialect, context)
        except (UnreadableRequestError, json_splice.WireError) as error:
            return refused(request.path, 400, "invalid_request", str(error))

    async def exchange_unread(
        self, admitted: Admitted, request: Request, problem: tuple[int, str, str]
    ) -> Exchange | Forward:
        """Decide about an admitted request whose body can't be read. ``problem``: status, code and message for a dialect's."""
        if self._stops:
            return stopping(request.path)
        if self.dialect(request) is not None:
            return refused(request.path, *problem)
        return await self.other_paths.decide_unread(admitted, request, problem[2])

    def reread(self) -> list[str]:
        """Read agents and providers from their files again; what has changed by that."""
        return reload.reread(self._agents, self.registry)

    def stop(self) -> None:
        """Nothing more is begun; what is under way goes on."""
        self._stops = True

    async def finish(self, seconds: float) -> None:
        """Let turns that are under way end, for so long; then cut them off."""
        await self._playing.finish(seconds)

    async def close(self, seconds: float) -> None:
        """The same, and close every connection."""
        await self.finish(seconds)
        await self._context.close()
        await self._peers.upstream.close()
        await self._peers.services.close()
        await self._accounts.close()
        await self.state.store.close()
        await self.state.journal.close()

    async def _mediate(self, admitted: Admitted, request: Request, view: RunnerRequest, dialect: Dialect) -> Exchange:
        before = Before(
            spend=lambda: self._accounts.admit(admitted.agent, request, view.model),
            context=lambda: self._context_for(admitted, view, recall=True),
        )
        return await self._mediating.answer(Mediated(admitted, request, view, dialect, self.redactor(admitted)), before)

    async def _context_for(self, admitted: Admitted, view: RunnerRequest, *, recall: bool) -> str:
        """Text for the end of the system prompt; "" for an agent without context, whose requests pass as they are."""
        if view.bypass == NOT_READ or not self._context.concerns(admitted.agent):
            return ""
        return await self._context.text(admitted.agent, view, self.redactor(admitted), recall=recall)

    def known(self) -> Redactor:
        """Of all secrets of the pod: its providers', and those of all of its agents. None is forgotten whose file has gone, or
        can't be read just now: it may still be valid.
        """
        agents = filter(None, map(self._agents.find, self._agents.ids()))
        secrets = {*self.registry.secrets(), *(secret for agent in agents for secret in agent.secrets)}
        if not secrets <= self._secrets:
            self._secrets |= secrets
            self._known = Redactor(self._secrets)
        return self._known

    def redactor(self, admitted: Admitted) -> Redactor:
        """What no service, prompt, runner or history may see. The log is told of it too."""
        return Redactor(self.secrets(admitted))

    def secrets(self, admitted: Admitted) -> list[Secret]:
        """Of this request: its providers', and its agent's."""
        secrets = [*self.registry.secrets(), *admitted.agent.secrets, admitted.token, admitted.secret]
        self._log.protect(secrets)
        return secrets

    def _bypassed(
        self, admitted: Admitted, request: Request, view: RunnerRequest, spoken: Spoken, context: str
    ) -> Exchange | Forward:
        """No tools are offered: the agent has none, or the form of the request rules them out."""
        if admitted.agent.tools:
            self._log.event("intervention", admitted.agent, model=view.model, intervention=view.bypass)
        if context:
            view = replace(view, body=spoken.dialect.with_context(view, context))
        return self.forwarding.forward(admitted, request, view, counts=spoken.counts)

    async def _counted(
        self, admitted: Admitted, request: Request, view: RunnerRequest, dialect: Dialect, context: str
    ) -> Exchange | Forward:
        """Tokens are counted as they would be spent: with the managed tools, the hidden rounds and the context."""
        session = session_of(request.headers, view.session)
        _, offered = await self._offering.made(admitted.agent, view, dialect, Around(context, session))
        counted = offered(ToolUse.AS_ASKED).body
        return self.forwarding.forward(admitted, request, replace(view, body=counted), counts=True)


async def _cleared(admitted: Admitted, body: bytes) -> bytes:
    """What a runner's tools print may hold its own credential (``env``), which is nobody else's business. One body may hide
    something in each of a million places: others are heard meanwhile.
    """
    own = Redactor([admitted.secret])
    return own.document(body) if len(body) < _AT_ONCE else await asyncio.to_thread(own.document, body)


def _read(agent: Agent, dialect: Dialect, body: bytes) -> RunnerRequest:
    """The view of a request. What no rule of ours needs to read is the provider's to judge, and goes there."""
    try:
        return dialect.read_request(body)
    except UnreadableRequestError:
        if agent.tools:
            raise
        return read_model(body)
