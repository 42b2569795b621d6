"""The composition root: a runner's request in, its answer out (docs/spec/mediation.md).

    admit        identifies the agent: Identity, or a refusal
    exchange     decides about the request: RunnerResponse (our answer), or Forward (the host sends
                 it on)
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

from claw_contract.content_coding import DecodingError
from claw_contract.known_providers import KEY_VARIABLES
from claw_contract.manifest import TOTAL_TIMEOUT_MS
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
from claw_mediate.dialects.anthropic import DIALECT as ANTHROPIC_MESSAGES
from claw_mediate.dialects.base import Dialect, RunnerRequest, UnreadableRequestError
from claw_mediate.dialects.model_only import read_model
from claw_mediate.dialects.openai import DIALECT as OPENAI_CHAT
from claw_mediate.dialects.responses import DIALECT as OPENAI_RESPONSES
from claw_mediate.dialects.responses import kept as kept_responses
from claw_mediate.http.large_bodies import compute
from claw_mediate.prompt.build import PromptContext
from claw_mediate.prompt.feeds import AskWorkers
from claw_mediate.providers.failover import ProviderFailover
from claw_mediate.providers.live_reply import FlowLimits
from claw_mediate.providers.paths import BODYLESS, PathTables
from claw_mediate.providers.registry import AuthPaths, ProviderRegistry
from claw_mediate.providers.routing import Router
from claw_mediate.settings import Settings
from claw_mediate.state import State, open_state
from claw_mediate.telemetry.event_log import EventLog
from claw_mediate.telemetry.history import History
from claw_mediate.telemetry.metrics import HealthSnapshot
from claw_mediate.tools.executor import ToolExecutor
from claw_mediate.turns.billing import Billing
from claw_mediate.turns.budgets import Budgets, PriceList
from claw_mediate.turns.context import DialectRequest
from claw_mediate.turns.continuity import Continuity
from claw_mediate.turns.kept.object_lists import ObjectLists
from claw_mediate.turns.kept.ownership import Ownership
from claw_mediate.turns.kept.provider_objects import Owners, ProviderObjects
from claw_mediate.turns.kept_objects import KeptObjects
from claw_mediate.turns.other_paths import OtherPaths
from claw_mediate.turns.passthrough import Passthrough
from claw_mediate.turns.pipeline import TurnPipeline
from claw_mediate.turns.ports import Peers, TurnParts
from claw_mediate.turns.recorder import Recorder
from claw_mediate.turns.registry import TurnRegistry
from claw_mediate.workers import worker as workers


class DialectEndpoint(NamedTuple):
    """A path of a dialect, and what its requests are for."""

    dialect: Dialect
    only_counts: bool = False  # True if the tokens are to be counted, and no model is asked
    side_request: str | None = None
    """The rule by which its requests are side requests; None if they are not."""
    may_name_kept: bool = False
    """True if a request may name a kept object.

    Then one that can't be read is refused: the id in it could be anybody's.
    """


class _RequestRedactor(NamedTuple):
    """The redactor of an agent's latest request, with what it was made of."""

    providers: Mapping[str, Provider]
    admitted: Identity
    redactor: Redactor

    def is_of(self, admitted: Identity, providers: Mapping[str, Provider]) -> bool:
        """Return whether it was made of the same providers, files and token."""
        own = self.admitted
        return (
            self.providers is providers
            and own.agent is admitted.agent
            and own.token == admitted.token
            and own.secret == admitted.secret
        )


DIALECTS: Final[Mapping[Endpoint, DialectEndpoint]] = {
    "/chat/completions": DialectEndpoint(OPENAI_CHAT),
    "/messages": DialectEndpoint(ANTHROPIC_MESSAGES),
    "/messages/count_tokens": DialectEndpoint(ANTHROPIC_MESSAGES, only_counts=True),
    "/responses": DialectEndpoint(OPENAI_RESPONSES, may_name_kept=True),
    "/responses/compact": DialectEndpoint(
        OPENAI_RESPONSES, side_request="compact", may_name_kept=True
    ),
    "/responses/input_tokens": DialectEndpoint(
        OPENAI_RESPONSES, only_counts=True, may_name_kept=True
    ),
}
"""The dialects by the end of the path of a POST."""
_PREPARATION_SECONDS = 1.0  # For some five hundred agents; others are read when they ask
_MAX_INLINE_BYTES = 256 << 10
"""Bytes of a body that are redacted in the event loop; a longer body is redacted in a thread."""
_MAX_REDACTED_TEXT = 1 << 20
"""Bytes of a text that is decoded to redact it, in a body of more than 4 MiB."""
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
        """Build everything from the settings.

        ``before`` is the state of the mediator that this one replaces.

        Raise ``ValueError`` with one line for a state that can't be opened, or a bad base URL.
        """
        self._settings = settings
        self._log = log
        self._stops = False
        self._problem: str | None = None  # Why the proxy is not ready, as last logged

        # What is redacted: of the pod, and in each agent's requests
        self._secrets: set[Secret] = set()
        self._known = Redactor(())
        self._redactors: dict[str, _RequestRedactor] = {}

        # Who is asked: the providers and services, for the agents
        auth = AuthPaths(settings.auth, settings.key_states)
        self.registry = ProviderRegistry(
            auth, settings.hosts, log, env, look_seconds=settings.file_look
        )
        self._peers = peers or Peers(
            ProviderFailover(self.registry, log), ToolExecutor(settings.secrets, log)
        )
        self._agents = AgentDirectory(settings.context, log, self._note_change, settings.file_look)

        # What outlives a turn, and what a prompt is given
        self.state = open_state(settings.state, log, before, settings.pod)
        prices = PriceList(settings.auth, log, settings.file_look)
        self._budgets = Budgets(self.state.spending, prices, log, settings.budget_fail_mode)
        self._prompt = PromptContext.of(settings, log, _feed_question())
        self._history = _own_history(settings)
        billing = Billing(self._budgets)
        recorder = Recorder(self._history, log, billing, self._prompt.retain)

        # Where a request goes
        self._paths = PathTables(self.registry, settings.paths, log)
        routing = Router(self.registry, self._paths, log)

        # What a provider keeps, and whose it is
        store = self.state.ownership
        self._ownership = Ownership(store, log, settings.stored_ids)
        self._objects = ProviderObjects(store, log, self._paths, settings.stored_ids)
        owners = Owners(self._ownership, self._objects)

        # Requests that are not mediated
        upstream = self._peers.upstream
        self.passthrough = Passthrough(self.registry, routing, self._paths, recorder, owners)
        lists = ObjectLists(upstream, routing, self._objects)
        self.other_paths = OtherPaths(self.passthrough, self._paths, self._budgets, owners, lists)
        self._kept_objects = KeptObjects(
            upstream, routing, owners, self.passthrough, kept_responses
        )

        # Turns, and calls that runners make themselves
        parts = TurnParts(
            peers=self._peers,
            recorder=recorder,
            billing=billing,
            journal=self.state.journal,
            continuity=Continuity(self.state.store, log),
            owners=owners,
            budgets=self._budgets,
            prompt=self._prompt,
            routing=routing,
        )
        flow_limits = FlowLimits(settings.live_idle, settings.live_max)
        self._turns = TurnRegistry(parts, flow_limits)
        self._pipeline = TurnPipeline(settings, log, parts, self._turns, self.passthrough)
        calls = NativeCalls(self._peers, recorder, self.state.journal)
        self._broker = Broker(calls, log, self._agents)

    def missing(self) -> str | None:
        """Return in one line, with the remedy, what keeps the proxy from starting.

        None if nothing does, or what is missing may yet come.
        """
        problems: list[str] = []

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

        is_any_usable = any(provider.is_usable for provider in self.registry.all().values())
        if not is_any_usable and not self.registry.may_be_filled:
            names = ", ".join(KEY_VARIABLES)
            no_key = (
                f"no provider has a key (set one of {names}, or CLAW_AUTH_DIR with providers.json)"
            )
            problems.append(self.registry.problem or no_key)

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

        problem = self.missing()
        if problem is not None:
            return problem

        try:
            agents = self._agents.ids()
        except UnreadableDirectoryError as error:
            return str(error)

        if agents and not any(map(self._find_readable, agents)):
            return "no agent's context can be read"
        if not self.registry.has_usable_key():
            return "no key of any provider is usable now"
        if not await self.state.store.is_writable():
            return f"the state {self._settings.state.shown!r} can't be written"
        return None

    async def prepare(self) -> None:
        """Read the agents' files and open the state, so that the first requests need not wait.

        It takes a short time at most. What fails here, or takes too long, requests will report.
        """
        until = time.monotonic() + _PREPARATION_SECONDS
        with suppress(OSError, UnreadableDirectoryError):
            for agent_id in self._agents.ids():
                if time.monotonic() > until:
                    return
                self._agents.find(agent_id)

            async with asyncio.timeout(_PREPARATION_SECONDS):
                await self._not_ready()

    async def _fleet_not_ready(self) -> str | None:
        """Return in one line what keeps the whole proxy from working, all workers included."""
        problem = await self._not_ready()
        worker = workers.current()
        if problem is not None or worker is None:
            return problem
        return await worker.find_problem()

    async def reply_readiness(self, _question: bytes) -> bytes:
        """Tell a sibling why this process is not ready; return empty bytes if it is."""
        problem = await self._not_ready()
        return (problem or "").encode()

    async def reply_feed(self, question: bytes) -> bytes:
        """Return what a sibling asks for: our copy of an agent's feed; empty if there is none."""
        return self._prompt.feeds.reply(question)

    def _note_change(self, agent_id: str) -> None:
        """Follow a change of an agent's files.

        Its MCP sessions with services are ended, and its own MCP clients are told.
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
        """Answer what needs no credential; return None for all other requests.

        ``/health`` and ``/ready`` are answered on the proxy's own port, ``HEAD /`` on any.
        """
        if request.method == "HEAD" and request.bare_path == "/":  # Claude Code asks this first.
            return respond_json(200, {})
        if request.host is not None or request.method not in {"GET", "HEAD"}:
            return None

        if request.bare_path == "/health":
            return respond_json(200, {"ok": True})
        if request.bare_path == "/ready":
            # The answer gives no details; the log says why we are not ready.
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
            message = "the path can be read in two ways"
            return refuse(request.path, 400, "malformed_request", message)

        admitted = authenticate.authenticate(self._agents, request, self._log)
        if isinstance(admitted, RunnerResponse):
            return admitted

        if is_for_broker(request) or self._paths.knows(request):
            return admitted
        return self._paths.refuse(admitted.agent, request)

    def admit_again(self, admitted: Identity, request: Request) -> Identity | RunnerResponse:
        """Return the agent whose request's body has come, or the refusal.

        The body may come long after the head, and the agent's token may have been revoked since.
        """
        try:
            is_unchanged = self._agents.find(admitted.agent.id) is admitted.agent
        except UnreadableDirectoryError:
            is_unchanged = False
        return admitted if is_unchanged else self.admit(request)

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

    def dialect(self, request: Request) -> DialectEndpoint | None:
        """Return the dialect of a request; None for a request of no dialect (``other_paths``)."""
        return _endpoint_of(self._paths.find(request))

    async def exchange(self, admitted: Identity, request: Request) -> RunnerResponse | Forward:
        """Decide about an admitted request whose body has arrived.

        Cancelled when the runner leaves.
        """
        if self._stops:  # since its head arrived
            return refuse_stopping(request.path)
        if request.body and request.method.upper() in BODYLESS:
            return self._paths.refuse_body(admitted.agent, request)

        match = self._paths.find(request)
        request = self._paths.canonical(request, match)
        try:
            body = await _without_own_token(admitted, request.body)
            return await self._decide(admitted, request, body, _endpoint_of(match))
        except (UnreadableRequestError, json_splice.JsonSpliceError) as error:
            return refuse(request.path, 400, "invalid_request", str(error))

    async def _decide(
        self, admitted: Identity, request: Request, body: bytes, endpoint: DialectEndpoint | None
    ) -> RunnerResponse | Forward:
        """Decide about a request by its path and its ``body``, which is without the agent's token.

        Raise ``UnreadableRequestError`` and ``JsonSpliceError``.
        """
        if is_for_broker(request):
            request = dataclasses.replace(request, body=body)
            return await self._broker.answer(Caller(admitted, request, self.redactor(admitted)))

        if endpoint is None:
            path = _find_object(request)
            if path is None:
                return await self.other_paths.decide(admitted, request, body)
            request = dataclasses.replace(request, body=body)
            return await self._kept_objects.answer(admitted, request, path)

        view = await compute(len(body), partial(_read, admitted.agent, endpoint, body))
        incoming = DialectRequest(
            admitted,
            request,
            view,
            endpoint.dialect,
            self.redactor(admitted),
            only_counts=endpoint.only_counts,
        )
        return await self._pipeline.answer(incoming)

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

    def longest_turn(self) -> float:
        """Return how many seconds a turn may take: its own time, and that in which replies flow."""
        own_time = TOTAL_TIMEOUT_MS / 1000
        for agent in self._readable_agents():
            own_time = max(own_time, agent.limits.longest_seconds)
        return self._settings.live_max + own_time

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
        for agent in self._readable_agents():
            secrets.update(agent.secrets)
        if not secrets <= self._secrets:
            self._secrets |= secrets
            self._known = Redactor(self._secrets)
        return self._known

    def _readable_agents(self) -> list[Agent]:
        """Return the agents whose files can be read now."""
        with suppress(UnreadableDirectoryError):
            return [*filter(None, map(self._find_readable, self._agents.ids()))]
        return []

    def _find_readable(self, agent_id: str) -> Agent | None:
        """Return an agent, or None for one that can't be read now."""
        try:
            return self._agents.find(agent_id)
        except UnreadableDirectoryError:
            return None

    def redactor(self, admitted: Identity) -> Redactor:
        """Return the redactor of a request, which knows all of its secrets.

        No service, prompt, runner, history or log may see one of them. The redactor is made again
        when the providers, the agent's files or its token have changed.
        """
        agent, providers = admitted.agent, self.registry.all()
        latest = self._redactors.get(agent.id)
        if latest is None or not latest.is_of(admitted, providers):
            latest = _RequestRedactor(providers, admitted, Redactor(self.secrets(admitted)))
            self._redactors[agent.id] = latest
        return latest.redactor

    def secrets(self, admitted: Identity) -> list[Secret]:
        """Return the secrets of a request: its providers' and its agent's.

        The log redacts them from now on.
        """
        secrets = [
            *self.registry.secrets(),
            *admitted.agent.secrets,
            admitted.token,
            admitted.secret,
        ]
        self._log.protect(secrets)
        return secrets


def _own_history(settings: Settings) -> History | None:
    """Return the history that this process writes; None if the settings want none."""
    if settings.history is None:
        return None
    directory = workers.own_history(settings.history)
    return History(directory, settings.history_max_bytes, settings.history_files)


def _feed_question() -> AskWorkers | None:
    """Return a function that asks all workers for a feed; None if this process is the proxy."""
    worker = workers.current()
    if worker is None:
        return None
    return partial(worker.ask_all, "feed")


def _endpoint_of(match: PathMatch | None) -> DialectEndpoint | None:
    """Return the endpoint of a known path; None for a path of no dialect."""
    if match is None or match.row.endpoint is None:
        return None
    return DIALECTS[match.row.endpoint]


def _find_object(request: Request) -> KeptPath | None:
    """Return the kept object that the path names.

    None for other paths, and for those that create an object.
    """
    if creates_object(request.method, request.path):
        return None
    return find_kept(request.path)


async def _without_own_token(admitted: Identity, body: bytes) -> bytes:
    """Return the body without the agent's own token.

    The runner's tools may have printed it, for example by ``env``.
    """
    own = Redactor([admitted.secret])
    if len(body) < _MAX_INLINE_BYTES:
        return own.document(body)

    # A body may hide something in each of a million places: other requests go on meanwhile.
    try:
        return await asyncio.to_thread(own.document, body, _MAX_REDACTED_TEXT)
    except LongTextError as error:
        raise UnreadableRequestError(_LONG_TEXT) from error


def _read(agent: Agent, endpoint: DialectEndpoint, body: bytes) -> RunnerRequest:
    try:
        view = endpoint.dialect.read_request(body)
    except UnreadableRequestError:
        if agent.tools or endpoint.may_name_kept:
            raise
        return read_model(body)

    if not endpoint.only_counts and endpoint.side_request is None:
        return view
    # What comes back is no response that a later request may name.
    kept = None if view.kept is None else replace(view.kept, keeps_response=False)
    return replace(view, kept=kept, side_request=endpoint.side_request)
