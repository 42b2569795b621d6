"""The composition root: a runner's request in, its answer out (spec/mediation.md).

    admit     who asks            Admitted, or a refusal
    exchange  what happens        Exchange (an answer of ours), or Forward (not mediated: the host sends it on)
    forwarding                    routes; and what became of a forwarded request, told by the host

It knows nothing of mitmproxy. The host calls ``admit`` when the headers are there and ``exchange`` when the body is.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sqlite3
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple
from urllib.parse import unquote

from claw_contract.secret import Redactor
from claw_mediate import wire
from claw_mediate.catalog import Catalog
from claw_mediate.continuity import bounded
from claw_mediate.dialects import openai_chat
from claw_mediate.dialects.base import Dialect, RunnerRequest, UnreadableRequestError
from claw_mediate.exchange import Exchange, Forward, Request, refused, said
from claw_mediate.io import identity
from claw_mediate.io.agents import Agents
from claw_mediate.io.drive import Ports, World
from claw_mediate.io.forwarding import Forwarding, target
from claw_mediate.io.headers import for_provider
from claw_mediate.io.history import History
from claw_mediate.io.identity import Admitted
from claw_mediate.io.log import EventLog
from claw_mediate.io.mediated import Ended, Job, MediatedTurn, streamed, whole
from claw_mediate.io.providers import KEY_VARIABLES, Registry
from claw_mediate.io.record import Recorder
from claw_mediate.io.services import Caller, Services
from claw_mediate.io.settings import Settings
from claw_mediate.io.store import Store
from claw_mediate.io.upstream import ModelAnswer, Upstream
from claw_mediate.model import Answer, Call

DIALECTS: Final[Mapping[str, Dialect]] = {"/chat/completions": openai_chat}
"""By the end of the path of the POST that speaks it."""


_SLASHES = re.compile(r"[/\\]+(?:\.[/\\]+)*")
_ENDS = re.compile(r"[?#;]")


_LAST_SECONDS = 2.0
"""What turns that were cancelled have for their last lines; a write may take longer than a stop can wait."""


class Peers(NamedTuple):
    """The two sides that a mediator talks to, and the clock that turns are measured with."""

    upstream: Upstream
    services: Services
    now: Callable[[], float] = time.monotonic


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
        self._peers = peers or Peers(Upstream(self.registry), Services(settings.secrets))
        self._store = Store(settings.state)
        self._recorder = Recorder(
            History(settings.history, settings.history_max_bytes) if settings.history else None, log
        )
        self.forwarding = Forwarding(self.registry, self._recorder)
        self._playing: set[asyncio.Task[Ended]] = set()

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
            ready = self.missing() is None and self._store.writable()
            return said(200 if ready else 503, {"ready": ready})
        return None

    def admit(self, request: Request) -> Admitted | Exchange:
        """The agent that asks, or the refusal."""
        return identity.admit(self._agents, request)

    def dialect(self, request: Request) -> Dialect | None:
        """The dialect that mediates this request; None: it is forwarded.

        A path counts by what a lenient provider would make of it: its spelling must not be a way round.
        """
        if request.method.upper() != "POST":
            return None
        path = _SLASHES.sub("/", _ENDS.split(unquote(request.path))[0]).rstrip("/").lower()
        return next((dialect for end, dialect in DIALECTS.items() if path.endswith(end)), None)

    async def exchange(self, admitted: Admitted, request: Request) -> Exchange | Forward:
        """What happens to an admitted request whose body is there. Cancelled when the runner leaves."""
        dialect = self.dialect(request)
        if dialect is None:
            return self.forward(admitted, request)
        try:
            view = dialect.read_request(request.body)
            job = self._job(admitted, request, view, dialect)
            if isinstance(job, Exchange | Forward):
                return job
            return await self._play(job, admitted)
        except (UnreadableRequestError, wire.WireError) as error:
            return refused(request.path, 400, "invalid_request", str(error))

    def forward(self, admitted: Admitted, request: Request, view: RunnerRequest | None = None) -> Exchange | Forward:
        """A request that is not mediated: the same bytes, with the credential swapped (and the model's prefix off)."""
        return self.forwarding.forward(admitted, request, view)

    async def close(self, seconds: float) -> None:
        """Let turns that are under way end, for so long; then cancel them, and close every connection."""
        if self._playing:
            await asyncio.wait(self._playing, timeout=seconds)
        for task in self._playing:
            task.cancel()
        if self._playing:
            await asyncio.wait(self._playing, timeout=_LAST_SECONDS)
        await self._peers.upstream.close()
        await self._peers.services.close()
        self._store.close()

    def _job(
        self, admitted: Admitted, request: Request, view: RunnerRequest, dialect: Dialect
    ) -> Job | Exchange | Forward:
        agent = admitted.agent
        room = dialect.MOST_TOOLS - len(view.declared)
        if not agent.tools or view.bypass is not None:
            if agent.tools:
                self._log.event("intervention", agent.id, model=view.model, intervention=view.bypass)
            return self.forward(admitted, request, view)
        catalog = Catalog.of(agent.tools, view.declared, room)
        if len(catalog.offered) < len(agent.tools):
            left_out = [tool.name for tool in agent.tools[len(catalog.offered) :]]
            self._log.event(
                "intervention", agent.id, model=view.model, intervention="managed_tools_over_limit", tools=left_out
            )
        routed = self.forwarding.route(request, view.model)
        if isinstance(routed, Exchange):
            return routed
        provider, model = routed
        if model != view.model:
            view = replace(view, body=wire.edited(view.body, {"model": json.dumps(model).encode()}))
        secrets = [*self.registry.secrets(), *agent.secrets, admitted.token, admitted.secret]
        self._log.protect(secrets)
        turn_id = f"turn_{uuid.uuid4().hex}"
        return Job(turn_id, agent, request, view, dialect, catalog, provider, model, b"", Redactor(secrets))

    def _recalled(self, job: Job) -> Mapping[str, bytes]:
        """Hidden rounds of earlier turns. A store that fails costs the memory of them, never the turn."""
        try:
            return self._store.recall(job.agent.id, job.view.anchors.values())
        except sqlite3.Error as error:
            self._log.event("error", job.agent.id, turn_id=job.turn_id, error="continuity_not_read", reason=str(error))
            return {}

    async def _play(self, job: Job, admitted: Admitted) -> Exchange:
        recalled = self._recalled(job)
        hidden = {index: recalled[anchor] for index, anchor in job.view.anchors.items() if anchor in recalled}
        woven = bounded(hidden)
        offered = job.dialect.offer(job.view, job.catalog, woven)
        job = replace(job, effective=next(iter(offered.values())))
        caller = Caller(admitted.agent, job.turn_id)
        headers = [*for_provider(job.request.headers, admitted.secret), ("accept-encoding", "gzip, deflate")]
        below = target(job.provider, job.request.path)

        async def model(body: bytes, *, again: bool) -> ModelAnswer:
            return await self._peers.upstream.post(job.agent.id, job.provider, below, headers, body, again=again)

        async def tools(call: Call, key: str, seconds: float) -> Answer:
            return await self._peers.services.call(caller, call, key, seconds)

        self._recorder.request(job, len(job.catalog.offered))
        world = World(job.dialect, job.catalog, offered, Ports(model, tools, self._peers.now), job.turn_id)
        play = asyncio.ensure_future(MediatedTurn(job, world, self._recorder, self._store).play())
        self._playing.add(play)
        play.add_done_callback(self._playing.discard)
        try:
            if job.view.stream:
                return await streamed(job, world, play, self._settings.keepalive_first, self._settings.keepalive)
            return await whole(play)
        except asyncio.CancelledError:
            play.cancel()
            raise
