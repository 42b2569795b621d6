"""A process that listens, serves an application, and ends by a signal."""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Coroutine
from typing import Any

import uvicorn

from claw_contract.limits import raise_descriptor_limit
from claw_mcp.asgi import McpApp
from claw_mcp.connections import ACCEPTED_AT_ONCE, MAX_DESCRIPTORS, ListenerConnectionTable
from claw_mcp.server import StreamableHttpServer

_DRAIN_SECONDS = 2
_WAITING_CONNECTIONS = 1_024  # In the kernel, until they are accepted


def listen(host: str, port: int) -> socket.socket:
    """Return the listening socket; without a host, it listens at every address.

    Raise ``OSError`` if the address can't be used.
    """
    is_dual = not host and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if is_dual or ":" in host else socket.AF_INET

    # TCP is named, because else asyncio leaves Nagle's algorithm on, and small answers wait.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if is_dual:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)

    try:
        listener.bind((host, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise OSError(error.errno, error.strerror, f"{host}:{port}") from None
    return listener


async def serve(app: McpApp, listener: socket.socket, work: Coroutine[Any, Any, None]) -> None:
    """Serve until SIGTERM or SIGINT, or until ``work`` ends. In the first case, cancel ``work``.

    Raise what serving or ``work`` has raised.
    """
    quiet: dict[str, Any] = {"log_config": None, "access_log": False, "server_header": False}
    table = ListenerConnectionTable(raise_descriptor_limit(MAX_DESCRIPTORS))

    # The protocol is named, and not chosen by what is installed: another one reads heads of any
    # length.
    http: Any = table.protocol()
    limits: dict[str, Any] = {
        "backlog": ACCEPTED_AT_ONCE,
        "timeout_graceful_shutdown": _DRAIN_SECONDS,
    }

    config = uvicorn.Config(app, http=http, lifespan="off", ws="none", **limits, **quiet)
    await run_until_stopped(app.server, _listen(_Uvicorn(config), listener), work)


async def run_until_stopped(
    server: StreamableHttpServer, *works: Coroutine[Any, Any, None]
) -> None:
    """Run until SIGTERM or SIGINT, or until one of ``works`` ends.

    Then end the sessions, and cancel what still runs. Raise what one of ``works`` has raised.
    """
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    tasks = [asyncio.create_task(each) for each in (*works, _wait(stopping))]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)

    await server.close()
    for task in tasks:
        task.cancel()
    for failure in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(failure, Exception):
            raise failure


async def _wait(event: asyncio.Event) -> None:
    await event.wait()


async def _listen(server: uvicorn.Server, listener: socket.socket) -> None:
    """Serve until cancelled; answers that are then being sent have two seconds."""
    serving = asyncio.create_task(server.serve([listener]))
    try:
        await asyncio.shield(serving)
    finally:
        server.should_exit = True
        await serving


class _Uvicorn(uvicorn.Server):
    """A server that leaves signals to us."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        # asyncio takes one number for both, how many it accepts at once and how many wait in the
        # kernel.
        for listener in sockets or ():
            listener.listen(_WAITING_CONNECTIONS)

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield
