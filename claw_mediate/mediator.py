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
from collections.abc import Mapping
from functools import partial

from claw_contract.content_coding import DecodingError
from claw_contract.manifest import TOTAL_TIMEOUT_MS
from claw_mediate import reload
from claw_mediate.agents import authenticate
from claw_mediate.agents.authenticate import Identity
from claw_mediate.agents.directory import AgentDirectory, UnreadableDirectoryError
from claw_mediate.broker.broker import Broker, is_for_broker
from claw_mediate.broker.calls import Caller, NativeCalls
from claw_mediate.core import json_splice
from claw_mediate.core.api_paths import (
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
)
from claw_mediate.dialects.base import UnreadableRequestError
from claw_mediate.dialects.endpoints import DialectEndpoint, find_endpoint, read_request
from claw_mediate.dialects.responses import kept as kept_responses
from claw_mediate.http.large_bodies import compute
from claw_mediate.prompt.build import PromptContext
from claw_mediate.prompt.feeds import AskWorkers
from claw_mediate.providers.failover import ProviderFailover
from claw_mediate.providers.live_reply import FlowLimits
from claw_mediate.providers.paths import BODYLESS, PathTables
from claw_mediate.providers.redactors import Redactors, without_own_token
from claw_mediate.providers.registry import AuthPaths, ProviderRegistry
from claw_mediate.providers.routing import Router
from claw_mediate.readiness import Readiness
from claw_mediate.settings import Settings
from claw_mediate.state import State, open_state
from claw_mediate.telemetry.event_log import EventLog
from claw_mediate.telemetry.history import History
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

        # Who is asked: the providers and services, for the agents
        auth = AuthPaths(settings.auth, settings.key_states)
        self.registry = ProviderRegistry(
            auth, settings.hosts, log, env, look_seconds=settings.file_look
        )
        self._peers = peers or Peers(
            ProviderFailover(self.registry, log), ToolExecutor(settings.secrets, log)
        )
        self._agents = AgentDirectory(settings.context, log, self._note_change, settings.file_look)
        self.redactors = Redactors(self.registry, self._agents, log)

        # What outlives a turn, and what a prompt is given
        self.state = open_state(settings.state, log, before, settings.pod)
        prices = PriceList(settings.auth, log, settings.file_look)
        self._budgets = Budgets(self.state.spending, prices, log, settings.budget_fail_mode)
        self._prompt = PromptContext.of(settings, log, _feed_question())
        history = _own_history(settings)
        billing = Billing(self._budgets)
        recorder = Recorder(history, log, billing, self._prompt.retain)

        # Where a request goes
        self._paths = PathTables(self.registry, settings.paths, log)
        routing = Router(self.registry, self._paths, log)

        # What a provider keeps, and whose it is
        store = self.state.ownership
        self._ownership = Ownership(store, log, settings.stored_ids)
        self._objects = ProviderObjects(store, log, self._paths, settings.stored_ids)
        owners = Owners(self._ownership, self._objects)

        # What all of these pass through
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

        # Requests that are not mediated
        upstream = self._peers.upstream
        self.passthrough = Passthrough(parts, self.registry, self._paths, self.redactors)
        lists = ObjectLists(upstream, routing, self._objects)
        self.other_paths = OtherPaths(self.passthrough, self._paths, self._budgets, owners, lists)
        self._kept_objects = KeptObjects(
            upstream, routing, owners, self.passthrough, kept_responses
        )

        # Turns, and calls that runners make themselves
        flow_limits = FlowLimits(settings.live_idle, settings.live_max, unread=settings.live_max)
        self._turns = TurnRegistry(parts, flow_limits)
        self._pipeline = TurnPipeline(settings, log, parts, self._turns, self.passthrough)
        calls = NativeCalls(self._peers, recorder, self.state.journal)
        self._broker = Broker(calls, log, self._agents)

        self.readiness = Readiness(
            settings, log, self.registry, self._agents, self.state.store, history
        )

    async def reply_feed(self, question: bytes) -> bytes:
        """Return what a sibling asks for: our copy of an agent's feed; empty if there is none."""
        return self._prompt.feeds.reply(question)

    def _note_change(self, agent_id: str) -> None:
        """Follow a change of an agent's files.

        Its MCP sessions with services are ended, and its own MCP clients are told.
        """
        self._peers.services.release(agent_id)
        self._broker.note_change(agent_id)

    @property
    def turns_under_way(self) -> int:
        return len(self._turns) + len(self._broker)

    def admit(self, request: Request) -> Identity | RunnerResponse:
        """Return the agent that sent a request, or the refusal."""
        if self.readiness.is_stopping:
            return refuse_stopping(request.path)
        if is_ambiguous(request.path):
            message = "the path can be read in two ways"
            return refuse(request.path, 400, "malformed_request", message)

        admitted = authenticate.authenticate(self._agents, request, self._log)
        if isinstance(admitted, RunnerResponse):
            return admitted

        self.redactors.of_request(admitted)  # From now on the log redacts its secrets.
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
        return find_endpoint(self._paths.find(request))

    async def exchange(self, admitted: Identity, request: Request) -> RunnerResponse | Forward:
        """Decide about an admitted request whose body has arrived.

        Cancelled when the runner leaves.
        """
        if self.readiness.is_stopping:  # since its head arrived
            return refuse_stopping(request.path)
        if request.body and request.method.upper() in BODYLESS:
            return self._paths.refuse_body(admitted.agent, request)

        match = self._paths.find(request)
        request = self._paths.canonical(request, match)
        try:
            body = await without_own_token(admitted, request.body)
            return await self._decide(admitted, request, body, find_endpoint(match))
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
            return await self._broker.answer(
                Caller(admitted, request, self.redactors.of_request(admitted))
            )

        if endpoint is None:
            path = _find_object(request)
            if path is None:
                return await self.other_paths.decide(admitted, request, body)
            request = dataclasses.replace(request, body=body)
            return await self._kept_objects.answer(admitted, request, path)

        has_tools = bool(admitted.agent.tools)
        read = partial(read_request, endpoint, body, has_tools=has_tools)
        view = await compute(len(body), read)
        incoming = DialectRequest(
            admitted,
            request,
            view,
            endpoint.dialect,
            self.redactors.of_request(admitted),
            only_counts=endpoint.only_counts,
        )
        return await self._pipeline.answer(incoming)

    async def exchange_packed(
        self, admitted: Identity, request: Request, error: DecodingError
    ) -> RunnerResponse | Forward:
        """Decide about an admitted request whose body can't be decoded."""
        if self.readiness.is_stopping:
            return refuse_stopping(request.path)
        if self.is_ours(request):
            return refuse(request.path, error.status, "unreadable_content_encoding", str(error))
        return await self.other_paths.decide_unread(admitted, request, str(error))

    def reread(self) -> list[str]:
        """Read agents and providers from their files again; return what changed, a line each."""
        return reload.reload_files(self._agents, self.registry, self._note_change)

    def stop(self) -> None:
        """Start nothing new; running turns and calls go on."""
        self.readiness.is_stopping = True
        self._broker.stop()

    def retire(self) -> None:
        """Send the MCP clients that only listen to the mediator of the new settings."""
        self._broker.end_streams()

    def longest_turn(self) -> float:
        """Return how many seconds a turn may take: its own time, and that in which replies flow."""
        own_time = TOTAL_TIMEOUT_MS / 1000
        for agent in self._agents.readable():
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


def _find_object(request: Request) -> KeptPath | None:
    """Return the kept object that the path names.

    None for other paths, and for those that create an object.
    """
    if creates_object(request.method, request.path):
        return None
    return find_kept(request.path)
