"""The two listeners of the sidecar without ``--mode``: base URL and forward proxy (``docs/spec/mediation.md`` section 1).

mitmproxy begins to open its default listener before it loads a script, but loading comes before the port is bound. So that task
is cancelled, and ours are opened once mitmproxy runs. If a version of mitmproxy binds earlier, that closes the default
listener again, and nothing was let through meanwhile: the guard is there from the first request on.
"""

from __future__ import annotations

import asyncio
import logging

from mitmproxy import exceptions
from mitmproxy.proxy import mode_servers

from claw_mediate.mitm.governance import BuiltinAddons
from claw_mediate.settings import parse_address

_TASK = "setup_servers"  # mitmproxy's name of the task that opens the listeners
_LOOKUP_FAILED = "Transparent mode failure: "
"""The beginning of mitmproxy's line about a connection whose original destination the kernel does not know."""


def modes(listen: str, proxy: str) -> list[str]:
    """Return the mode specifications of both listeners. Raise ``OptionsError`` with one line.

    The target of the reverse mode is never dialled: a decision names the provider.
    """
    try:
        base_host, base_port = parse_address(listen, "listen")
        proxy_host, proxy_port = parse_address(proxy, "proxy")
    except ValueError as error:
        raise exceptions.OptionsError(str(error)) from error
    return [f"reverse:http://pod.invalid@{_prefix(base_host)}{base_port}", f"regular@{_prefix(proxy_host)}{proxy_port}"]


def survive_direct_connections(builtin: BuiltinAddons) -> None:
    """Let the proxy start though somebody connects to a transparent listener and no NAT rule led them there.

    mitmproxy closes such a connection and logs an error. Any error that is logged before it runs ends it, though.
    Raise ``RuntimeError`` for a mitmproxy that is built differently.
    """
    if _LOOKUP_FAILED not in mode_servers.ServerInstance.handle_stream.__code__.co_consts:
        raise RuntimeError(
            "this version of mitmproxy is built differently: its lookup of destinations can't be watched"
        )
    logging.getLogger(mode_servers.__name__).addFilter(_explain)
    if builtin.errorcheck is not None:
        builtin.errorcheck.logger.addFilter(_concerns_startup)


def cancel_default(builtin: BuiltinAddons) -> None:
    """Stop the default listener, which nobody asked for, from being opened."""
    for task in asyncio.all_tasks():
        if task.get_name() == _TASK:
            task.cancel()
            # Never started, so there is nothing to stop when the list of modes changes.
            builtin.proxyserver.servers._instances.clear()  # noqa: SLF001


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


def _prefix(host: str) -> str:
    return f"{host}:" if host else ""
