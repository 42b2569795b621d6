"""A stdio server that is started again whenever it ends (docs/spec/mcp.md "The stdio wrapper").

Rules. A restart waits 0.2 s, twice as long after each failure, and at most 30 s; a run of ten
seconds starts that over. A call waits up to ten seconds for a server that is being started. What
clients asked of the server as a whole (subscriptions, the log level) is asked again of its
successor, since their sessions survive it.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from claw_mcp.protocol import HANDSHAKE_VERSIONS, RpcError
from claw_mcp.stateless import members
from claw_mcp.stdio_child import ChildObserver, NoAnswerError, OnProgress, Params, StdioChild

_HANDSHAKE_SECONDS = 300.0  # ``npx`` and ``uvx`` may have to download the server first
_HEALTHY_SECONDS = 10.0
_CLIENT: Final = {"name": "claw-mcp-stdio", "version": "1"}


@dataclass(frozen=True)
class TimeLimits:
    """The waits of a supervisor, in seconds."""

    call: float = 600.0  # Until a call is given up
    start: float = 10.0  # Until a call that waits for the server is given up
    first_restart: float = 0.2
    max_restart: float = 30.0


async def keep_running(
    run_once: Callable[[], Awaitable[None]], report: Callable[..., None], timing: TimeLimits
) -> None:
    """Run a server again whenever it ends, until cancelled.

    ``report("restarts", wait_ms=…)`` is called before each wait.
    """
    delay = timing.first_restart
    while True:
        started = time.monotonic()
        await run_once()

        if time.monotonic() - started >= _HEALTHY_SECONDS:
            delay = timing.first_restart

        report("restarts", wait_ms=round(delay * 1000))
        await asyncio.sleep(delay)
        delay = min(2 * delay, timing.max_restart)


class ChildSupervisor:
    """The server: it runs one child after the other, and calls go to the one that runs."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        observer: ChildObserver,
        report: Callable[..., None],
        timing: TimeLimits | None = None,
    ) -> None:
        """Run ``command``; call ``report(state, **members)`` for each start, end and failure."""
        self._command = command
        self._environment = environment
        self._observer = observer
        self._report = report
        self._timing = timing or TimeLimits()
        self._child: StdioChild | None = None
        self._description: dict[str, msgspec.Raw] = {}
        self._ready = asyncio.Event()
        self._repeated: dict[str, tuple[str, Params]] = {}  # Requests for each new child, by key

    @property
    def is_ready(self) -> bool:
        return self._ready.is_set()

    async def run(self) -> None:
        """Run the server until cancelled; no process of it is left then."""
        await keep_running(self._run_once, self._report, self._timing)

    async def describe(self) -> Mapping[str, Any]:
        """Return what the server said of itself.

        It has ``capabilities`` and ``serverInfo``, and ``instructions`` if the server gave some.
        """
        await self._running()
        return {"capabilities": {}, "serverInfo": _CLIENT} | self._description

    async def call(
        self, method: str, params: Params, on_progress: OnProgress | None = None
    ) -> bytes:
        """Return the result of a request as JSON. Raise ``RpcError``."""
        child = await self._running()
        return await child.call(method, params, self._timing.call, on_progress)

    def notify(self, method: str) -> None:
        """Send a notification, if the server runs."""
        if self._child is not None:
            self._child.notify(method)

    def keep(self, key: str, method: str, params: Params) -> None:
        """Repeat this request at each new start of the server."""
        self._repeated[key] = (method, params)

    def forget(self, key: str) -> None:
        """Repeat a request no more."""
        self._repeated.pop(key, None)

    async def _running(self) -> StdioChild:
        """Return the child, once it is ready. Raise ``NoAnswerError`` if that takes too long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._timing.start):
                await self._ready.wait()

        if self._child is None or not self._ready.is_set():
            raise NoAnswerError("the server does not run: its log says why", was_sent=False)
        return self._child

    async def _run_once(self) -> None:
        try:
            child = await StdioChild.start(self._command, self._environment, self._observer)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else None
            reason = f"no process can be started: {why or 'it is no command'}"
            self._report("failed", reason=reason)
            return

        try:
            self._report("started", pid=child.pid)
            if await self._shake_hands(child):
                await asyncio.wait([child.ended])
        finally:
            self._child = None
            self._ready.clear()
            code = await _complete(child.stop())
            self._report("ended", pid=child.pid, exit_code=code)

    async def _shake_hands(self, child: StdioChild) -> bool:
        """Open the session with a child, and make it the one that is called.

        Return False if it refuses.
        """
        parameters = {
            "protocolVersion": HANDSHAKE_VERSIONS[0],
            "capabilities": {},
            "clientInfo": _CLIENT,
        }
        try:
            result = members(await child.call("initialize", parameters, _HANDSHAKE_SECONDS))
            child.notify("notifications/initialized")
            for method, params in list(self._repeated.values()):
                with suppress(RpcError):
                    await child.call(method, params, self._timing.start)
        except RpcError as error:
            self._report("failed", reason=f"initialize: {error.message}")
            return False

        names = ("capabilities", "serverInfo", "instructions")
        self._description = {name: result[name] for name in names if name in result}
        self._child = child
        self._ready.set()
        self._report("ready", pid=child.pid)
        return True


async def _complete[T](work: Coroutine[None, None, T]) -> T:
    """Return the result of work that is done to its end even if its task is cancelled."""
    running = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise
