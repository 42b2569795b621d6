"""The answers to whether the proxy can start, and whether turns work now (``/ready``)."""

import asyncio
import os
import time
from contextlib import suppress

from claw_contract.known_providers import KEY_VARIABLES
from claw_mediate.agents.directory import AgentDirectory, UnreadableDirectoryError
from claw_mediate.core.http import Request, RunnerResponse, respond_json
from claw_mediate.providers.registry import ProviderRegistry
from claw_mediate.settings import Settings
from claw_mediate.telemetry.event_log import EventLog
from claw_mediate.telemetry.history import History
from claw_mediate.telemetry.metrics import HealthSnapshot
from claw_mediate.workers import worker as workers
from claw_state.continuity import ContinuityStore

_PREPARATION_SECONDS = 1.0  # For some five hundred agents; others are read when they ask


class Readiness:
    """The state of one mediator, as it is told to the operator."""

    def __init__(
        self,
        settings: Settings,
        log: EventLog,
        registry: ProviderRegistry,
        agents: AgentDirectory,
        store: ContinuityStore,
        history: History | None,
    ) -> None:
        self._settings = settings
        self._log = log
        self._registry = registry
        self._agents = agents
        self._store = store
        self._history = history
        self._problem: str | None = None  # Why the proxy is not ready, as last logged
        self.is_stopping = False
        """True if nothing new is started any more."""

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

        is_any_usable = any(provider.is_usable for provider in self._registry.all().values())
        if not is_any_usable and not self._registry.may_be_filled:
            names = ", ".join(KEY_VARIABLES)
            no_key = (
                f"no provider has a key (set one of {names}, or CLAW_AUTH_DIR with providers.json)"
            )
            problems.append(self._registry.problem or no_key)

        if self._history is not None and not self._history.is_writable():
            problems.append(
                f"no history can be written in {str(self._history.directory)!r} "
                "(CLAW_SESSION_HISTORY_DIR)"
            )
        return "; ".join(problems) or None

    async def _not_ready(self) -> str | None:
        """Return in one line what keeps turns from working now; None if nothing does."""
        if self.is_stopping:
            return "it is being stopped"

        problem = self.missing()
        if problem is not None:
            return problem

        try:
            agents = self._agents.ids()
        except UnreadableDirectoryError as error:
            return str(error)

        if agents and not any(map(self._agents.find_readable, agents)):
            return "no agent's context can be read"
        if not self._registry.has_usable_key():
            return "no key of any provider is usable now"
        if not await self._store.is_writable():
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

    async def reply(self, _question: bytes) -> bytes:
        """Tell a sibling why this process is not ready; return empty bytes if it is."""
        problem = await self._not_ready()
        return (problem or "").encode()

    async def observed(self) -> HealthSnapshot:
        """Return what ``/metrics`` reports of the state and the keys."""
        problem = await self._not_ready()
        writable = problem is None or await self._store.is_writable()
        return HealthSnapshot(problem is None, writable, self._registry.count_keys())

    async def answer(self, request: Request) -> RunnerResponse | None:
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
