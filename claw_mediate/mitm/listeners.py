"""Listeners that several workers share (``claw proxy --workers N``, decision 0035).

Rules. Every worker opens every listener of mitmproxy with SO_REUSEPORT, and the kernel deals connections out among them. The
first worker tries each address without it before: an address that another program uses, or another proxy, is refused as ever.
Each worker has one more listener, on loopback, where the others reach it. It is an entrance like the base URL.
"""

import asyncio
import errno
import sys
from typing import Any, Final

from mitmproxy import ctx, exceptions
from mitmproxy.proxy import mode_servers
from mitmproxy.tools import main

from claw_mediate.mitm.governance import BuiltinAddons, log_to_stderr
from claw_mediate.settings import Settings
from claw_mediate.workers import worker as workers
from claw_mediate.workers.worker import Worker

_INNER: Final = "reverse:http://pod.invalid@127.0.0.1:1"  # The socket is there; the port of the specification is not used
_FILES: Final = ("save_stream_file", "hardump")
"""Options that name a file which each worker would write."""


def run_worker() -> object:
    """Run mitmdump in a worker. Listeners that ``--mode`` names are opened before a script is loaded."""
    worker = workers.current()
    assert worker is not None
    try:
        _share(worker)
    except RuntimeError as error:
        sys.exit(f"cllama: {error}")
    log_to_stderr()
    sys.argv[0] = "mitmdump"
    return main.mitmdump()


def _share(worker: Worker) -> None:
    """Open all listeners of this process as shared ones. Raise ``RuntimeError`` for a mitmproxy that is built differently."""
    if "start_server" not in mode_servers.AsyncioServerInstance.listen.__code__.co_names:
        raise RuntimeError("this version of mitmproxy is built differently: its listeners can't be shared by workers")

    async def listen(instance: Any, host: str, port: int) -> list[asyncio.Server]:
        if instance.mode.transport_protocol != "tcp" or not port:
            await _refuse(instance)
        if worker.place.is_alone and not worker.is_up:
            probe = await asyncio.start_server(instance.handle_stream, host, port, start_serving=False)
            probe.close()
        return [await asyncio.start_server(instance.handle_stream, host, port, reuse_port=True)]

    mode_servers.AsyncioServerInstance.listen = listen  # type: ignore[assignment, method-assign]
    for kind in (mode_servers.LocalRedirectorInstance, mode_servers.TunInstance):
        kind._start = _refuse  # type: ignore[assignment, method-assign] # noqa: SLF001 - each would take the others' own requests


async def _refuse(_instance: object) -> None:
    """Raise ``OSError`` for a way in that workers can't share."""
    raise OSError(errno.EOPNOTSUPP, "workers share listeners of TCP with a fixed port, and no others (--workers 1)")


def check(settings: Settings) -> None:
    """Refuse what several workers can't do. Raise ``ValueError`` or ``OptionsError`` with one line."""
    if (worker := workers.current()) is None:
        return
    if settings.state.shown == "memory":
        raise ValueError(
            f"{worker.place.count} workers need a state that they share: set CLAW_STATE to a file, or to redis://HOST:PORT/DB;"
            " without one a retry that reaches another worker would repeat a write (or run --workers 1)"
        )
    for name in _FILES:
        if getattr(ctx.options, name, None):
            raise exceptions.OptionsError(f"{name}: {worker.place.count} workers would write one file (run --workers 1)")


async def open_all(builtin: BuiltinAddons) -> None:
    """Open the listeners; a worker then serves the others, too, and reports that it is up."""
    is_open = await builtin.proxyserver.setup_servers()
    worker = workers.current()
    if worker is None or not is_open:
        return
    if not worker.is_up:
        instance: Any = mode_servers.ServerInstance.make(_INNER, builtin.proxyserver)
        worker.inner_server = await asyncio.start_server(instance.handle_stream, sock=worker.place.inner)
    await worker.begin()
