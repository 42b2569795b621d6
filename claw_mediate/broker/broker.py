"""The MCP broker, for runners that call tools themselves (docs/spec/mcp.md).

It is ``/mcp/<agent>`` on the proxy's own listeners, and serves an agent's tools with ``delivery:
native``, and no others. The client is the agent whose token it sends: its path names that agent,
its sessions are its own, and a page of another origin is refused, whatever token it has. Any Host
is served.
"""

import asyncio
import re

from claw_contract.manifest import Tool
from claw_mcp.protocol import SSE_TYPE
from claw_mcp.server import HttpRequest, StreamableHttpServer
from claw_mediate.agents.directory import AgentDirectory, UnreadableDirectoryError
from claw_mediate.broker.backend import CALLER, NativeBackend
from claw_mediate.broker.calls import Caller, NativeCalls
from claw_mediate.broker.siblings import SessionRouter
from claw_mediate.core.api_paths import find_broker
from claw_mediate.core.http import Request, RunnerResponse, refuse
from claw_mediate.telemetry.event_log import EventLog

MAX_SESSIONS = 256  # Of one agent; one more ends the one that was idle longest
_LOCAL_ORIGIN = re.compile(r"https?://(?:localhost|127\.0\.0\.1|\[::1\])(?::[0-9]{1,5})?")
_GRACE_SECONDS = 1.0  # The time to record what was cut off
_TOOLS_CHANGED = "notifications/tools/list_changed"
_WATCH_SECONDS = 0.5  # Between two looks at the files of agents whose clients listen


def is_for_broker(request: Request) -> bool:
    """Return whether a request is the broker's: by its path, on a listener of the proxy itself."""
    return request.host is None and find_broker(request.path) is not None


class Broker:
    """The MCP server of all agents of one mediator."""

    def __init__(self, calls: NativeCalls, log: EventLog, agents: AgentDirectory) -> None:
        self._calls = calls
        self._log = log
        self._agents = agents
        self._tools: dict[str, tuple[Tool, ...]] = {}  # By agent, as its clients know them
        self._router = SessionRouter()
        self._server = StreamableHttpServer(
            NativeBackend(calls),
            is_allowed_host=lambda _: True,
            is_allowed_origin=lambda origin: _LOCAL_ORIGIN.fullmatch(origin) is not None,
            max_sessions=MAX_SESSIONS,
        )
        self._server.sessions.id_prefix = self._router.prefix
        self._closing: asyncio.Future[None] | None = None
        self._watching: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._calls)

    async def answer(self, caller: Caller) -> RunnerResponse:
        """Answer a request of an authenticated agent. Cancelled when the client leaves."""
        agent, request = caller.agent, caller.request
        if find_broker(request.path) != agent.id:
            reason = f"the token of agent {agent.id} at another broker"
            self._log.limited_event("error", error="not_admitted", reason=reason)
            message = "this token is not admitted here"
            return refuse(request.path, 403, "agent_not_admitted", message)

        port = self._router.find(request)
        if port is not None:
            return await self._router.ask(port, request)

        self._tools.setdefault(agent.id, agent.native_tools)
        CALLER.set(caller)
        asked = HttpRequest(request.method.upper(), request.path, request.headers, request.body)
        response = await self._server.handle(asked, agent.id)

        is_stream = ("content-type", SSE_TYPE) in response.headers
        if is_stream and (self._watching is None or self._watching.done()):
            self._watching = asyncio.ensure_future(self._watch())
        return RunnerResponse(
            response.status, response.headers, response.chunks, streaming=is_stream
        )

    def stop(self) -> None:
        """End the streams of the server, which would keep the proxy from stopping.

        With the last call, all sessions end.
        """
        self.end_streams()
        self._closing = asyncio.ensure_future(self._close_when_idle())

    def end_streams(self) -> None:
        """End the streams on which clients only listen: those that go on connect again."""
        self._server.end_streams()
        if self._watching is not None:
            self._watching.cancel()

    def note_change(self, agent_id: str) -> None:
        """Report to an agent's clients that its tools have changed, where its files say so."""
        try:
            agent = self._agents.find(agent_id)
        except UnreadableDirectoryError:
            return  # nothing is known to have changed
        if agent is None or self._tools.get(agent_id) == agent.native_tools:
            return

        if agent_id in self._tools:
            self._server.broadcast(_TOOLS_CHANGED, principal=agent_id)
        self._tools[agent_id] = agent.native_tools

    async def finish(self, seconds: float) -> None:
        """Let running calls end for ``seconds``, then cut them off."""
        await self._calls.finish(seconds, _GRACE_SECONDS)

    async def close(self) -> None:
        """End all sessions."""
        if self._closing is not None:
            self._closing.cancel()
        await self._server.close()
        await self._router.close()

    async def _close_when_idle(self) -> None:
        await self._calls.wait_until_idle()
        await self._server.close()

    async def _watch(self) -> None:
        """Look at the files of agents whose clients listen.

        So these are told of a change even while nobody sends a request.
        """
        while agents := self._server.listening():
            for agent_id in agents:
                self.note_change(agent_id)
            await asyncio.sleep(_WATCH_SECONDS)
