"""The links to MCP servers: to a command, or to a URL.

A command runs as a child, on standard input and output.

Rules. A child gets a minimal environment and what is declared for it, and nothing else of the
host's. What it writes to standard error is in the log.

All calls to a URL share a session. It is opened anew when the server does not know it, or can't be
reached. A call is made once more only after 404 in a session that was known, because the server
did not process it then; nothing else is sent twice. The credentials go to the URL and nowhere else:
redirects and the proxies of the environment are not followed.
"""

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, Final, Protocol

import httpx2

from claw_contract.toolhost_file import McpServerSection
from claw_mcp.channels import Channel, DiscoveryError, Quotation
from claw_mcp.child_log import ChildLog
from claw_mcp.client_protocol import TOOLS_CHANGED
from claw_mcp.client_session import ClientSession
from claw_mcp.http_channel import HttpChannel, HttpServer, NotSentError, Remedies, SessionLostError
from claw_mcp.protocol import RpcError, RpcMessage
from claw_mcp.stdio_child import NoAnswerError
from claw_mcp.supervisor import ChildSupervisor, TimeLimits, keep_running

CLIENT: Final = {"name": "claw-tools", "version": version("clawdapus")}
TIMING: Final = TimeLimits(call=1e9, start=5.0)  # The server's settings limit a call

# Of a command
_INHERITED: Final = ("HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "TMPDIR")

# Of a URL
_OPEN_SECONDS: Final = 60.0
_CONNECT_SECONDS: Final = 5.0
_IDLE_SECONDS: Final = 4.0  # Of a connection: less than many servers keep one
_MAX_CONNECTIONS: Final = 256
_REMEDIES: Final = Remedies(
    unreachable="start the server, or correct its 'url' in toolhost.yml",
    credential="correct its 'headers' in toolhost.yml",
    path="correct its 'url' in toolhost.yml",
)
_SUBSCRIPTION: Final = {"notifications": {"toolsListChanged": True}}


class ServerLink(Protocol):
    """A connection that is made anew whenever it is lost."""

    @property
    def is_ready(self) -> bool: ...

    async def run(self) -> None:
        """Keep the connection until cancelled; nothing of it is left then."""

    async def list_tools(self) -> list[Any]:
        """Return the tools as the server lists them. Raise ``RpcError`` and ``DiscoveryError``."""

    async def call(self, params: Mapping[str, Any], headers: Mapping[str, str]) -> bytes:
        """Return the result of ``tools/call`` as JSON.

        ``headers`` repeat arguments for servers that speak HTTP in the stateless era.

        Raise ``RpcError``, which may be ``NoAnswerError``.
        """


class ChildLink(ChildLog):
    """A ``ServerLink`` to a command, and the observer of its child."""

    def __init__(
        self,
        section: McpServerSection,
        quotation: Quotation,
        report: Callable[..., None],
        on_stale: Callable[[], None],
    ) -> None:
        """Start nothing. ``on_stale`` is called when the tools are to be listed."""
        super().__init__(
            lambda kind, **members: report(kind.removeprefix("mcp_"), **members), quotation.cut
        )
        self._report = report
        self._on_stale = on_stale

        command = (section.command or "", *section.args)
        environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        environment |= {name: secret.reveal() for name, secret in section.env.items()}
        self._supervisor = ChildSupervisor(command, environment, self, self._take_state, TIMING)
        self._session = ClientSession(_SupervisorChannel(self._supervisor, quotation), CLIENT)

    @property
    def is_ready(self) -> bool:
        return self._supervisor.is_ready

    async def run(self) -> None:
        await self._supervisor.run()

    async def list_tools(self) -> list[Any]:
        return await self._session.list_tools()

    async def call(self, params: Mapping[str, Any], _headers: Mapping[str, str]) -> bytes:
        return await self._supervisor.call("tools/call", params)

    def notice(self, message: RpcMessage) -> None:
        if message.method == TOOLS_CHANGED:
            self._on_stale()

    def _take_state(self, state: str, **members: Any) -> None:
        self._report(state, **self.short_reason(members))
        if state == "ready":
            self._on_stale()


class _SupervisorChannel(Channel):
    """The channel to whichever run of the child there is."""

    def __init__(self, supervisor: ChildSupervisor, quotation: Quotation) -> None:
        super().__init__(quotation)
        self._supervisor = supervisor

    async def request(self, method: str, params: Mapping[str, Any]) -> bytes:
        return await self._supervisor.call(method, params)

    async def notify(self, method: str) -> None:
        self._supervisor.notify(method)


@dataclass(eq=False)
class _Run:
    """A session at a URL, until it is lost."""

    channel: HttpChannel
    session: ClientSession
    lost: asyncio.Event = field(default_factory=asyncio.Event)
    is_listed: bool = False


class UrlLink:
    """A ``ServerLink`` to a URL."""

    def __init__(
        self,
        section: McpServerSection,
        quotation: Quotation,
        report: Callable[..., None],
        on_stale: Callable[[], None],
    ) -> None:
        """Connect to nothing. ``on_stale`` is called when the tools are to be listed."""
        headers = tuple(section.headers.items())
        self._server = HttpServer("the URL", section.url or "", headers, _REMEDIES)
        self._quotation = quotation
        self._report = report
        self._on_stale = on_stale
        self._client: httpx2.AsyncClient
        self._run: _Run | None = None
        self._ready = asyncio.Event()

    @property
    def is_ready(self) -> bool:
        return self._ready.is_set()

    async def run(self) -> None:
        limits = httpx2.Limits(max_connections=_MAX_CONNECTIONS, keepalive_expiry=_IDLE_SECONDS)
        timeout = httpx2.Timeout(None, connect=_CONNECT_SECONDS)
        tls = httpx2.create_ssl_context()
        async with httpx2.AsyncClient(
            verify=tls, trust_env=False, timeout=timeout, limits=limits
        ) as self._client:
            await keep_running(self._run_once, self._report, TIMING)

    async def list_tools(self) -> list[Any]:
        run = await self._running()
        try:
            tools = await run.session.list_tools()
        except (RpcError, DiscoveryError):
            # If tools were listed in this session before, calls may be running in it. So it stays,
            # unless the server has forgotten it.
            if run.channel.is_lost or not run.is_listed:
                self._lose(run)
            raise

        run.is_listed = True
        return tools

    async def call(self, params: Mapping[str, Any], headers: Mapping[str, str]) -> bytes:
        with suppress(SessionLostError):
            return await self._call(params, headers)

        # The server did not know the session any more, so it did not process the call: a second
        # attempt can't run it twice.
        try:
            return await self._call(params, headers)
        except SessionLostError:
            raise NoAnswerError("the server forgets its sessions", was_sent=False) from None

    async def _call(self, params: Mapping[str, Any], headers: Mapping[str, str]) -> bytes:
        """Attempt a call, once. Raise ``NoAnswerError`` if it has no answer.

        Raise ``SessionLostError``, too: then ``call`` may attempt it again.
        """
        run = await self._running()
        channel = run.channel

        try:
            return await channel.request(
                "tools/call",
                run.session.params(params),
                headers if channel.protocol.is_stateless else None,
            )
        except SessionLostError:
            raise
        except NotSentError:
            channel.is_lost = True
            raise NoAnswerError("the server can't be reached", was_sent=False) from None
        except DiscoveryError as error:
            raise NoAnswerError(str(error), was_sent=True) from None
        finally:
            if channel.is_lost:
                self._lose(run)

    async def _running(self) -> _Run:
        with suppress(TimeoutError):
            async with asyncio.timeout(TIMING.start):
                await self._ready.wait()
        if self._run is None:
            raise NoAnswerError("the server does not run", was_sent=False)
        return self._run

    def _lose(self, run: _Run) -> None:
        """Stop using a session. Calls that wait in it go on."""
        run.lost.set()
        if self._run is run:
            self._run = None
            self._ready.clear()

    async def _run_once(self) -> None:
        channel = HttpChannel(self._server, self._client, self._quotation, self._hear)
        run = _Run(channel, ClientSession(channel, CLIENT))
        try:
            async with asyncio.timeout(_OPEN_SECONDS):
                await run.session.start()

            self._run = run
            self._ready.set()
            self._report("ready")
            self._on_stale()

            await self._listen_until_lost(run)
            self._report("ended", reason="the session is lost")
        except (RpcError, DiscoveryError, TimeoutError) as error:
            reason = str(error) or f"it did not answer within {_OPEN_SECONDS:g} s"
            self._report("failed", reason=reason)
        finally:
            self._lose(run)
            await channel.close()

    async def _listen_until_lost(self, run: _Run) -> None:
        listening = asyncio.create_task(self._listen(run))
        try:
            await run.lost.wait()
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)

    async def _listen(self, run: _Run) -> None:
        """Read the server's notifications, as long as it has a stream for them."""
        delay = TIMING.first_restart
        while True:
            started = time.monotonic()
            try:
                if not await self._listen_once(run):
                    return
            except (NotSentError, SessionLostError):
                run.channel.is_lost = True
                self._lose(run)
                return
            except DiscoveryError:  # The stream broke
                pass

            has_lasted = time.monotonic() - started >= TIMING.max_restart
            if has_lasted:
                delay = TIMING.first_restart
            await asyncio.sleep(delay)
            delay = min(2 * delay, TIMING.max_restart)

            self._on_stale()  # What the server said in between was not heard

    async def _listen_once(self, run: _Run) -> bool:
        """Read one stream of notifications to its end; return False if the server has none."""
        if not run.channel.protocol.is_stateless:
            return await run.channel.listen()

        with suppress(RpcError):
            await run.channel.request("subscriptions/listen", run.session.params(_SUBSCRIPTION))
            return True
        return False

    def _hear(self, message: RpcMessage) -> None:
        if message.method == TOOLS_CHANGED:
            self._on_stale()
