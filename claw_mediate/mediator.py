"""The composition root: a runner's request in, its answer out (docs/spec/mediation.md).

    admit        identifies the agent: Admitted, or a refusal
    exchange     decides about the request: RunnerResponse (our answer), or Forward (the host sends it on)
    passthrough  is given the outcome of a forwarded request

It does not import mitmproxy. The host calls ``admit`` when the headers have arrived and
``exchange`` when the body has.
"""

import asyncio
import dataclasses
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

from msgspec.structs import replace

from claw_contract.known_providers import KEY_VARIABLES
from claw_contract.redaction.redactor import LongTextError, Redactor
from claw_contract.secret import Secret
from claw_mediate import reload
from claw_mediate.agents import authenticate
from claw_mediate.agents.authenticate import Identity
from claw_mediate.agents.directory import Agent, AgentDirectory, UnreadableDirectoryError
from claw_mediate.broker.broker import Broker, is_for_broker
from claw_mediate.broker.calls import Caller, NativeCalls
from claw_mediate.core import json_splice
from claw_mediate.core.api_paths import (
    Endpoint,
    KeptPath,
    creates_object,
    find_kept,
    is_ambiguous,
)
from claw_mediate.core.http import (
    Forward,
    Request,
    RunnerResponse,
    refuse,
    refuse_stopping,
    respond_json,
)
from claw_mediate.core.known_paths import PathMatch
from claw_mediate.core.model_policy import Provider
from claw_mediate.dialects.anthropic import messages as anthropic_messages
from claw_mediate.dialects.base import Dialect, RunnerRequest, UnreadableRequestError
from claw_mediate.dialects.model_only import read_model
from claw_mediate.dialects.openai import chat as openai_chat
from claw_mediate.dialects.responses import kept as kept_responses
from claw_mediate.dialects.responses import response as openai_responses
from claw_mediate.http.content_coding import DecodingError
from claw_mediate.http.large_bodies import compute
from claw_mediate.prompt.build import PromptContext
from claw_mediate.prompt.feeds import AskWorkers
from claw_mediate.providers.failover import ProviderFailover
from claw_mediate.providers.paths import BODYLESS, PathTables
from claw_mediate.providers.registry import AuthPaths, ProviderRegistry
from claw_mediate.providers.routing import Router
from claw_mediate.settings import Settings
from claw_mediate.state import State, open_state
from claw_mediate.telemetry.event_log import EventLog
from claw_mediate.telemetry.history import History
from claw_mediate.telemetry.metrics import HealthSnapshot
from claw_mediate.tools.executor import ToolExecutor
from claw_mediate.turns.budgets import Budgets, PriceList
from claw_mediate.turns.context import DialectRequest
from claw_mediate.turns.continuity import Continuity
from claw_mediate.turns.kept.object_lists import ObjectLists
from claw_mediate.turns.kept.ownership import Ownership
from claw_mediate.turns.kept.provider_objects import Owners, ProviderObjects
from claw_mediate.turns.kept_objects import KeptObjects
from claw_mediate.turns.passthrough import OtherPaths, Passthrough
from claw_mediate.turns.pipeline import TurnPipeline
from claw_mediate.turns.recorder import Recorder
from claw_mediate.turns.registry import Parts, Peers, TurnRegistry
from claw_mediate.workers import worker as workers


class Spoken(NamedTuple):
    """The dialect of a request, and whether it only counts tokens, or is the
    runner's own housekeeping.

    ``names``: whether it may name what a provider keeps. Then one that can't be read is refused:
    the id could be anybody's.
    """

    dialect: Dialect
    counts: bool = False
    side_request: str | None = None
    names: bool = False


class _RequestRedactor(NamedTuple):
    """The redactor of an agent's latest request, with what it was made of."""

    providers: Mapping[str, Provider]
    admitted: Identity
    redactor: Redactor


DIALECTS: Final[Mapping[Endpoint, Spoken]] = {
    "/chat/completions": Spoken(openai_chat),
    "/messages": Spoken(anthropic_messages),
    "/messages/count_tokens": Spoken(anthropic_messages, counts=True),
    "/responses": Spoken(openai_responses, names=True),
    "/responses/compact": Spoken(openai_responses, side_request="compact", names=True),
    "/responses/input_tokens": Spoken(openai_responses, counts=True, names=True),
}
"""By the end of the POST's path."""
_PREPARATION_SECONDS = 1.0  # Some five hundred agents; others are read when they ask
_MAX_INLINE_BYTES = (
    256 << 10
)  # Bytes of a body that are redacted in the event loop; a longer body is redacted in a thread
_MAX_REDACTED_TEXT = 1 << 20  # Bytes of a text in a body of more than 4 MiB that is decoded
_LONG_TEXT = "a text of more than 1 MiB holds the agent's own token: take the token out of it"


class Mediator:
    """The mediator of one pod."""

    def __init__(
        self,
        settings: Settings,
        log: EventLog,
        env: Mapping[str, str] = os.environ,
        peers: Peers | None = None,
        before: State | None = None,
    ) -> None:
        """Build everything from the settings; ``before`` is the state of the
        mediator that this one replaces.

        Raise ``ValueError`` with one line for a state that can't be opened, or a bad base URL.
        """
        self._settings = settings
        self._log = log
        self.registry = ProviderRegistry(
            AuthPaths(settings.auth, settings.key_states), settings.hosts, log, env
        )
        self._peers = peers or Peers(
            ProviderFailover(self.registry, log), ToolExecutor(settings.secrets, log)
        )
        self._agents = AgentDirectory(settings.context, log, self._note_change)
        self.state = open_state(settings.state, log, before, settings.pod)
        self._budgets = Budgets(
            self.state.spending, PriceList(settings.auth, log), log, settings.budget_fail_mode
        )
        self._prompt = PromptContext.of(settings, log, _feed_question())
        self._history: History | None = None
        if settings.history is not None:
            directory = workers.own_history(settings.history)
            self._history = History(directory, settings.history_max_bytes, settings.history_files)

        recorder = Recorder(self._history, log, self._budgets, self._prompt.retain)
        paths = self._paths = PathTables(self.registry, settings.paths, log)
        routing = Router(self.registry, paths, log)

        store, upstream = self.state.ownership, self._peers.upstream
        self._ownership = Ownership(store, log, settings.stored_ids)
        self._objects = ProviderObjects(store, log, paths, settings.stored_ids)
        owners = Owners(self._ownership, self._objects)

        self.passthrough = Passthrough(self.registry, routing, paths, recorder, owners)
        lists = ObjectLists(upstream, routing, self._objects)
        self.other_paths = OtherPaths(self.passthrough, paths, self._budgets, owners, lists)
        self._kept_objects = KeptObjects(
            upstream, routing, owners, self.passthrough, kept_responses
        )

        parts = Parts(
            peers=self._peers,
            recorder=recorder,
            journal=self.state.journal,
            continuity=Continuity(self.state.store, log),
            owners=owners,
            budgets=self._budgets,
            prompt=self._prompt,
            routing=routing,
        )
        self._turns = TurnRegistry(parts)
        self._pipeline = TurnPipeline(settings, log, parts, self._turns, self.passthrough)
        calls = NativeCalls(self._peers, recorder, self.state.journal)
        self._broker = Broker(calls, log, self._agents)

        self._problem: str | None = None  # Why the proxy is not ready, as last logged
        self._stops = False
        self._secrets: set[Secret] = set()
        self._known = Redactor(())
        self._redactors: dict[str, _RequestRedactor] = {}

    def missing(self) -> str | None:
        """Return in one line, with the remedy, what keeps the proxy from starting;
        None if nothing does, or it may yet come.
        """
        problems = []
        context = self._settings.context
        if not context.is_dir():
            problems.append(
                f"no context directory at {str(context)!r} (run `claw compile`, then set "
                "CLAW_CONTEXT_ROOT)"
            )
        elif not os.access(context, os.R_OK | os.X_OK):
            problems.append(
                f"the context directory {str(context)!r} can't be read (let the proxy's "
                "user list it)"
            )
        usable = any(provider.is_usable for provider in self.registry.all().values())
        if not usable and not self.registry.may_be_filled:
            names = ", ".join(KEY_VARIABLES)
            nowhere = (
                f"no provider has a key (set one of {names}, or CLAW_AUTH_DIR with providers.json)"
            )
            problems.append(self.registry.problem or nowhere)
        if self._history is not None and not self._history.is_writable():
            problems.append(
                f"no history can be written in {str(self._history.directory)!r} "
                "(CLAW_SESSION_HISTORY_DIR)"
            )
        return "; ".join(problems) or None

    async def _not_ready(self) -> str | None:
        """Return in one line what keeps turns from working now; None if nothing does."""
        if self._stops:
            return "it is being stopped"
        if (problem := self.missing()) is not None:
            return problem
        try:
            agents = self._agents.ids()
        except UnreadableDirectoryError as error:
            return str(error)
        if agents and not any(map(self._find_readable, agents)):
            return "no agent's context can be read"
        if not self.registry.has_usable_key():
            return "no key of any provider is usable now"
        shown = self._settings.state.shown
        return (
            None
            if await self.state.store.is_writable()
            else f"the state {shown!r} can't be written"
        )

    async def prepare(self) -> None:
        """Do beforehand, for a short time, what the first requests would wait for:
        read the agents' files, open the state.
        """
        until = time.monotonic() + _PREPARATION_SECONDS
        with suppress(
            OSError, UnreadableDirectoryError
        ):  # or it takes too long; requests will tell
            for agent_id in self._agents.ids():
                if time.monotonic() > until:
                    return
                self._agents.find(agent_id)
            async with asyncio.timeout(_PREPARATION_SECONDS):
                await self._not_ready()

    async def _fleet_not_ready(self) -> str | None:
        """Return in one line what keeps the whole proxy from working: this process,
        or another worker.
        """
        problem = await self._not_ready()
        if problem is not None or (worker := workers.current()) is None:
            return problem
        return await worker.find_problem()

    async def reply_readiness(self, _question: bytes) -> bytes:
        """Return what a sibling is told: why this process is not ready; empty where it is."""
        return (await self._not_ready() or "").encode()

    async def reply_feed(self, question: bytes) -> bytes:
        """Return what a sibling asks for: our copy of an agent's feed; empty if there is none."""
        return self._prompt.feeds.reply(question)

    def _note_change(self, agent_id: str) -> None:
        """End an agent's MCP sessions with services, and tell its own clients; its
        files have changed.
        """
        self._peers.services.release(agent_id)
        self._broker.note_change(agent_id)

    async def observed(self) -> HealthSnapshot:
        """Return what ``/metrics`` reports of the state and the keys."""
        problem = await self._not_ready()
        writable = problem is None or await self.state.store.is_writable()
        return HealthSnapshot(problem is None, writable, self.registry.count_keys())

    @property
    def turns_under_way(self) -> int:
        return len(self._turns) + len(self._broker)

    async def own(self, request: Request) -> RunnerResponse | None:
        """Answer what needs no credential: ``/health`` and ``/ready`` on the
        proxy's own port, and ``HEAD /``.
        """
        # Claude Code sends the latter first of all. The answers give no details; the log says why
        # we are not ready.
        if request.method == "HEAD" and request.bare_path == "/":
            return respond_json(200, {})
        if request.host is not None or request.method not in {"GET", "HEAD"}:
            return None
        if request.bare_path == "/health":
            return respond_json(200, {"ok": True})
        if request.bare_path == "/ready":
            problem = await self._fleet_not_ready()
            if problem is not None and problem != self._problem:
                self._log.event("error", error="not_ready", reason=problem)
            self._problem = problem
            return respond_json(503 if problem else 200, {"ready": not problem})
        return None

    def admit(self, request: Request) -> Identity | RunnerResponse:
        """Return the agent that sent a request, or the refusal."""
        if self._stops:
            return refuse_stopping(request.path)
        if is_ambiguous(request.path):
            return refuse(
                request.path, 400, "malformed_request", "the path can be read in two ways"
            )
        admitted = authenticate.authenticate(self._agents, request, self._log)
        if (
            isinstance(admitted, RunnerResponse)
            or is_for_broker(request)
            or self._paths.knows(request)
        ):
            return admitted
        return self._paths.refuse(admitted.agent, request)

    def must_read(self, admitted: Identity, request: Request) -> bool:
        """Return whether the body must be there before the request is decided about."""
        return self.is_ours(request) or self.other_paths.must_read(admitted.agent, request)

    def is_ours(self, request: Request) -> bool:
        """Return whether we answer or edit the request: it is in a dialect, or for the broker."""
        return (
            self.dialect(request) is not None
            or is_for_broker(request)
            or _find_object(request) is not None
        )

    def dialect(self, request: Request) -> Spoken | None:
        """Return the dialect of a request; None for a request of no dialect (``other_paths``)."""
        return _spoken(self._paths.find(request))

    async def exchange(self, admitted: Identity, request: Request) -> RunnerResponse | Forward:
        """Decide about an admitted request whose body has arrived.

        Cancelled when the runner leaves.
        """
        if self._stops:  # while its body was on the way
            return refuse_stopping(request.path)
        if request.body and request.method.upper() in BODYLESS:
            return self._paths.refuse_body(admitted.agent, request)
        match = self._paths.find(request)
        spoken = _spoken(match)
        request = self._paths.canonical(request, match)
        try:
            body = await _without_own_token(admitted, request.body)
            if is_for_broker(request):
                return await self._broker.answer(
                    Caller(
                        admitted, dataclasses.replace(request, body=body), self.redactor(admitted)
                    )
                )
            if spoken is None and (path := _find_object(request)) is not None:
                return await self._kept_objects.answer(
                    admitted, dataclasses.replace(request, body=body), path
                )
            if spoken is None:
                return await self.other_paths.decide(admitted, request, body)
            view = await compute(len(body), partial(_read, admitted.agent, spoken, body))
            incoming = DialectRequest(
                admitted,
                request,
                view,
                spoken.dialect,
                self.redactor(admitted),
                only_counts=spoken.counts,
            )
            return await self._pipeline.answer(incoming)
        except (UnreadableRequestError, json_splice.JsonSpliceError) as error:
            return refuse(request.path, 400, "invalid_request", str(error))

    async def exchange_packed(
        self, admitted: Identity, request: Request, error: DecodingError
    ) -> RunnerResponse | Forward:
        """Decide about an admitted request whose body can't be decoded."""
        if self._stops:
            return refuse_stopping(request.path)
        if self.is_ours(request):
            return refuse(request.path, error.status, "unreadable_content_encoding", str(error))
        return await self.other_paths.decide_unread(admitted, request, str(error))

    def reread(self) -> list[str]:
        """Read agents and providers from their files again; return what changed, a line each."""
        return reload.reload_files(self._agents, self.registry, self._note_change)

    def stop(self) -> None:
        """Start nothing new; running turns and calls go on."""
        self._stops = True
        self._broker.stop()

    def retire(self) -> None:
        """Send the MCP clients that only listen to the mediator of the new settings."""
        self._broker.end_streams()

    async def finish(self, seconds: float) -> None:
        """Let running turns end for ``seconds``, then cancel them."""
        await asyncio.gather(self._turns.finish(seconds), self._broker.finish(seconds))

    async def close(self, seconds: float) -> None:
        """Finish, and close every connection."""
        await self.finish(seconds)
        await self._broker.close()
        await self._prompt.close()
        await self._peers.upstream.close()
        await self._peers.services.close()
        await self._budgets.close()
        await self._ownership.finish()
        await self._objects.finish()
        await self.state.store.close()
        await self.state.journal.close()

    def known(self) -> Redactor:
        """Return the redactor of all secrets of the pod: its providers' and all of its agents'."""
        # No secret is forgotten when its file is gone or can't be read: it may still be valid.
        secrets = set(self.registry.secrets())
        with suppress(UnreadableDirectoryError):
            for agent in filter(None, map(self._find_readable, self._agents.ids())):
                secrets.update(agent.secrets)
        if not secrets <= self._secrets:
            self._secrets |= secrets
            self._known = Redactor(self._secrets)
        return self._known

    def _find_readable(self, agent_id: str) -> Agent | None:
        """Return an agent, or None for one that can't be read now."""
        try:
            return self._agents.find(agent_id)
        except UnreadableDirectoryError:
            return None

    def redactor(self, admitted: Identity) -> Redactor:
        """Return the redactor of a request: no service, prompt, runner, history or
        log may see its secrets.

        It is made again when the providers, the agent's files or its token have changed.
        """
        agent, providers = admitted.agent, self.registry.all()
        latest = self._redactors.get(agent.id)
        if (
            latest is None
            or latest.providers is not providers
            or latest.admitted.agent is not agent
            or (latest.admitted.token, latest.admitted.secret) != (admitted.token, admitted.secret)
        ):
            latest = _RequestRedactor(providers, admitted, Redactor(self.secrets(admitted)))
            self._redactors[agent.id] = latest
        return latest.redactor

    def secrets(self, admitted: Identity) -> list[Secret]:
        """Return the secrets of a request, its providers' and its agent's, and
        protect the log from them.
        """
        secrets = [
            *self.registry.secrets(),
            *admitted.agent.secrets,
            admitted.token,
            admitted.secret,
        ]
        self._log.protect(secrets)
        return secrets


def _feed_question() -> AskWorkers | None:
    """Return how all workers of this proxy are asked for a feed; None where it is one process."""
    worker = workers.current()
    return None if worker is None else partial(worker.ask_all, "feed")


def _spoken(match: PathMatch | None) -> Spoken | None:
    """Return the dialect of a known path; None for another path."""
    return None if match is None or match.row.endpoint is None else DIALECTS[match.row.endpoint]


def _find_object(request: Request) -> KeptPath | None:
    """Return what the path names of what a provider keeps; None for other paths,
    and for one that makes something new.
    """
    return None if creates_object(request.method, request.path) else find_kept(request.path)


async def _without_own_token(admitted: Identity, body: bytes) -> bytes:
    """Return the body without the agent's own token, which the runner's tools may
    have printed (``env``).
    """
    # A body may hide something in each of a million places: other requests go on meanwhile.
    own = Redactor([admitted.secret])
    if len(body) < _MAX_INLINE_BYTES:
        return own.document(body)

    try:
        return await asyncio.to_thread(own.document, body, _MAX_REDACTED_TEXT)
    except LongTextError as error:
        raise UnreadableRequestError(_LONG_TEXT) from error


def _read(agent: Agent, spoken: Spoken, body: bytes) -> RunnerRequest:
    try:
        view = spoken.dialect.read_request(body)
    except UnreadableRequestError:
        if agent.tools or spoken.names:
            raise
        return read_model(body)
    if spoken.counts or spoken.side_request is not None:
        kept = None if view.kept is None else replace(view.kept, keeps_response=False)
        view = replace(view, kept=kept, side_request=spoken.side_request)
    return view
