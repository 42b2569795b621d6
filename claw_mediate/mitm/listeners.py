"""Listeners: when they are opened, and how several workers share them.

They are opened by the script, when the proxy is prepared (decision 0029). mitmproxy itself would
open them before it loads a script. ``claw proxy`` keeps it from that (``run``); under a plain
``mitmdump -s`` it is stopped halfway (``options.cancel_early``).

With ``claw proxy --workers N`` (decision 0035) every worker opens every listener of mitmproxy with
SO_REUSEPORT, and the kernel deals connections out among them. Before that, the first worker tries
each address without it, so that an address that another program or another proxy uses is refused.
It waits a while first, for workers of a proxy that was killed: those stop listening as soon as
their supervisor is gone. Who has connected to them by then gets an answer, and nobody else can
connect.

Each worker has one more listener, on loopback, where the others reach it. It is an entrance like
the base URL.
"""

import asyncio
import errno
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, Literal

from mitmproxy import ctx, exceptions, master
from mitmproxy.addons import proxyserver
from mitmproxy.proxy import mode_servers
from mitmproxy.tools import main

from claw_mediate.mitm.addon_state import BuiltinAddons, log_to_stderr
from claw_mediate.settings import ADDRESS_SECONDS, Settings
from claw_mediate.workers import worker as workers
from claw_mediate.workers.worker import Worker

_PAUSE_SECONDS: Final = 0.05
_INNER: Final = "reverse:http://pod.invalid@127.0.0.1:1"
"""The mode of the listener for other workers. Its socket is there: the port is not used."""
_FILES: Final = ("save_stream_file", "hardump")
"""Options that name a file which each worker would write."""

type HandleStream = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
_taking: set[asyncio.Task[None]] = set()


def run(program: Literal["mitmdump", "mitmweb"]) -> object:
    """Run a program of mitmproxy that opens no listener before our script does."""
    try:
        _postpone()
    except RuntimeError as error:
        sys.exit(f"cllama: {error}")
    log_to_stderr()
    sys.argv[0] = program
    return getattr(main, program)()


def run_worker() -> object:
    """Run mitmdump in a worker."""
    worker = workers.current()
    assert worker is not None
    try:
        _share(worker)
    except RuntimeError as error:
        sys.exit(f"cllama: {error}")
    return run("mitmdump")


def _postpone() -> None:
    """Leave out mitmproxy's own call that opens the listeners; ``open_all`` is the second one.

    Raise ``RuntimeError`` for a mitmproxy that is built differently.
    """
    if "setup_servers" not in master.Master.run.__code__.co_names:
        raise RuntimeError(
            "this version of mitmproxy is built differently: its listeners would be open before "
            "the proxy is ready"
        )
    open_now = proxyserver.Proxyserver.setup_servers

    async def open_later(_addon: proxyserver.Proxyserver) -> bool:
        proxyserver.Proxyserver.setup_servers = open_now  # type: ignore[method-assign]
        return True

    proxyserver.Proxyserver.setup_servers = open_later  # type: ignore[method-assign, assignment]


def _share(worker: Worker) -> None:
    """Open all listeners of this process as shared ones.

    Raise ``RuntimeError`` for a mitmproxy that is built differently.
    """
    if "start_server" not in mode_servers.AsyncioServerInstance.listen.__code__.co_names:
        raise RuntimeError(
            "this version of mitmproxy is built differently: its listeners can't be "
            "shared by workers"
        )

    async def listen(instance: Any, host: str, port: int) -> list[asyncio.Server]:
        if instance.mode.transport_protocol != "tcp" or not port:
            await _refuse(instance)
        if worker.place.is_alone and not worker.is_up:
            await _wait_until_free(worker, host, port)
        if not worker.is_up and worker.is_orphan:
            raise OSError(errno.ECANCELED, "the supervisor of this worker has ended")
        server = await asyncio.start_server(instance.handle_stream, host, port, reuse_port=True)
        worker.when_orphaned(partial(_stop_listening, server, instance.handle_stream))
        return [server]

    mode_servers.AsyncioServerInstance.listen = listen  # type: ignore[assignment, method-assign]
    # Each of these would take the other workers' own requests.
    for kind in (mode_servers.LocalRedirectorInstance, mode_servers.TunInstance):
        kind._start = _refuse  # type: ignore[assignment, method-assign] # noqa: SLF001


async def _wait_until_free(worker: Worker, host: str, port: int) -> None:
    """Wait for an address that somebody listens on.

    Raise ``OSError`` if it is still in use after ``ADDRESS_SECONDS``.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + ADDRESS_SECONDS
    has_told = False
    while True:
        try:
            probe = await asyncio.start_server(_leave_alone, host, port, start_serving=False)
        except OSError as error:
            is_in_use = error.errno == errno.EADDRINUSE
            if not is_in_use or loop.time() >= until or worker.is_orphan:
                raise
        else:
            probe.close()
            return

        if not has_told:
            has_told = True
            # Not by logging: what is below an error is not shown, and an error would end the
            # start.
            sys.stderr.write(
                f"cllama: {host or '*'}:{port} is in use; waiting {ADDRESS_SECONDS:g} s "
                "for it to be free\n"
            )
            sys.stderr.flush()
        await asyncio.sleep(_PAUSE_SECONDS)


async def _leave_alone(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    """Serve nobody: the server that it is for never listens."""


def _stop_listening(server: asyncio.Server, handle: HandleStream) -> None:
    """Stop listening, and take those who have connected already.

    A connection that the kernel has accepted would be reset without a word.
    """
    # Copies outlive the server, whose own sockets are closed with it.
    copies = [socket.socket(fileno=socket.dup(each.fileno())) for each in server.sockets]
    for copy in copies:
        _take_all(copy, handle)
    server.close()

    # Somebody may have connected meanwhile.
    for copy in copies:
        _take_all(copy, handle)
        copy.close()


def _take_all(listener: socket.socket, handle: HandleStream) -> None:
    """Serve every connection that the kernel has accepted."""
    listener.setblocking(False)
    # Mostly BlockingIOError: there are no more.
    with suppress(OSError):
        while True:
            accepted, _ = listener.accept()
            taking = asyncio.ensure_future(_take(accepted, handle))
            _taking.add(taking)
            taking.add_done_callback(_taking.discard)


async def _take(connection: socket.socket, handle: HandleStream) -> None:
    connection.setblocking(False)
    protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader(), handle)
    await asyncio.get_running_loop().connect_accepted_socket(lambda: protocol, connection)


async def _refuse(_instance: object) -> None:
    """Raise ``OSError`` for a way in that workers can't share."""
    raise OSError(
        errno.EOPNOTSUPP,
        "workers share listeners of TCP with a fixed port, and no others (--workers 1)",
    )


def check(settings: Settings) -> None:
    """Refuse what several workers can't do.

    Raise ``ValueError`` or ``OptionsError`` with one line.
    """
    worker = workers.current()
    if worker is None:
        return

    count = worker.place.count
    if settings.state.shown == "memory":
        raise ValueError(
            f"{count} workers need a state that they share: set CLAW_STATE to a "
            "file, or to redis://HOST:PORT/DB;"
            " without one a retry that reaches another worker would repeat a write (or run "
            "--workers 1)"
        )
    for name in _FILES:
        if getattr(ctx.options, name, None):
            raise exceptions.OptionsError(
                f"{name}: {count} workers would write one file (run --workers 1)"
            )


async def open_all(builtin: BuiltinAddons) -> None:
    """Open the listeners.

    A worker then also serves the other workers, and reports that it is up.
    """
    is_open = await builtin.proxyserver.setup_servers()
    worker = workers.current()
    if worker is None or not is_open:
        return

    if not worker.is_up:
        instance: Any = mode_servers.ServerInstance.make(_INNER, builtin.proxyserver)
        worker.inner_server = await asyncio.start_server(
            instance.handle_stream, sock=worker.place.inner
        )
    await worker.begin()
