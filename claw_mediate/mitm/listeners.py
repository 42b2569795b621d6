"""The two entrances of the sidecar, when no ``--mode`` is given: base URL and forward proxy (spec/mediation.md section 1).

mitmproxy begins to open its default listener before it loads a script. Loading comes before the port is bound, though: so the
task is cancelled, and ours are opened once mitmproxy runs. Should a version of mitmproxy bind earlier, ``reopen`` closes
the default listener again, and nothing was let through meanwhile: the guard is there from the first request on.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from mitmproxy import ctx, exceptions
from mitmproxy.proxy import mode_servers

from claw_mediate.settings import parse_address

_TASK = "setup_servers"
"""What mitmproxy calls the task that opens the listeners."""
_LOOKUP_FAILED = "Transparent mode failure: "
"""The beginning of mitmproxy's line about a connection whose original destination the kernel does not know."""


def modes(listen: str, proxy: str) -> list[str]:
    """Mode specifications of both entrances. The reverse target is never dialled: a decision names the provider.

    Raises ``OptionsError`` with one line.
    """
    try:
        base_host, base_port = parse_address(listen, "listen")
        proxy_host, proxy_port = parse_address(proxy, "proxy")
    except ValueError as error:
        raise exceptions.OptionsError(str(error)) from error
    return [f"reverse:http://pod.invalid@{_at(base_host)}{base_port}", f"regular@{_at(proxy_host)}{proxy_port}"]


def survive_direct_connections() -> None:
    """Let the proxy start though somebody connects to a transparent listener and no NAT rule led them there.

    mitmproxy closes such a connection and logs an error. Any error that is logged before it runs ends it, though.
    Raises ``RuntimeError`` where mitmproxy is built differently.
    """
    if _LOOKUP_FAILED not in mode_servers.ServerInstance.handle_stream.__code__.co_consts:
        raise RuntimeError(
            "this version of mitmproxy is built differently: its lookup of destinations can't be watched"
        )
    logging.getLogger(mode_servers.__name__).addFilter(_explain)
    if (startup := ctx.master.addons.get("errorcheck")) is not None:
        startup.logger.addFilter(_concerns_startup)


def hold() -> None:
    """Stop the default listener from being opened; it was not asked for."""
    for task in asyncio.all_tasks():
        if task.get_name() == _TASK:
            task.cancel()
            # Never started, so there is nothing to stop when the list of modes changes.
            ctx.master.addons.get("proxyserver").servers._instances.clear()  # noqa: SLF001


async def reopen() -> None:
    """Open the listeners of the modes that are set now; nothing to do where they are open."""
    proxyserver: Any = ctx.master.addons.get("proxyserver")
    await proxyserver.setup_servers()


def _explain(record: logging.LogRecord) -> bool:
    reason = record.getMessage()
    if reason.startswith(_LOOKUP_FAILED):
        record.msg = (
            "cllama: closed a connection to the transparent listener: no redirect of the kernel led it there"
            f" ({reason.removeprefix(_LOOKUP_FAILED)})"
        )
        record.args = ()
        record.closes_one_connection = True
    return True


def _concerns_startup(record: logging.LogRecord) -> bool:
    return not hasattr(record, "closes_one_connection")


def _at(host: str) -> str:
    return f"{host}:" if host else ""
