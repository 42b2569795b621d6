"""``claw tools serve``: a host's tools over HTTP, or over standard input and output.

Specification: docs/spec/tools-host.md "Serving".

Rules. Over HTTP the bearer token alone says which principal calls; it is compared with all tokens,
in constant time. Over stdio the principal is the only one, or the one that the operator names. The
log is on standard output over HTTP, and on standard error over stdio.
"""

import asyncio
import hashlib
import hmac
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Final

from claw_mcp.asgi import McpApp, is_allowed_host, is_allowed_origin
from claw_mcp.json_log import FaultHandler, JsonLog
from claw_mcp.listening import listen, run_until_stopped, serve
from claw_mcp.server import StreamableHttpServer
from claw_mcp.stdio_server import StdioServer, Wire
from claw_tools.host import Host, find_secrets
from claw_tools.provider import ToolProvider
from claw_tools.settings import HostSettings, Principal

_LIST_CHANGED: Final = "notifications/tools/list_changed"

type RunServer = Callable[[Host, StreamableHttpServer], Awaitable[None]]


def serve_http(settings: HostSettings, providers: Iterable[ToolProvider]) -> None:
    """Serve until SIGTERM or SIGINT.

    Raise ``ValueError`` or ``OSError`` with one line if it can't start.
    """
    if not any(principal.token for principal in settings.principals):
        raise ValueError(
            "no principal has a token, and so none could call: give each one 'token: {env: NAME}'"
        )

    address = settings.listen
    with listen(address.host, address.port) as listener:
        port = listener.getsockname()[1]

        async def run(host: Host, server: StreamableHttpServer) -> None:
            find_principal = principal_finder(settings.principals)
            app = McpApp(server, address.path, find_principal, host.health)
            await serve(app, listener, host.run())

        asyncio.run(_serve(settings, providers, f"{address.host}:{port}", run))


def serve_stdio(settings: HostSettings, providers: Iterable[ToolProvider], principal: str) -> None:
    """Serve a principal until its client leaves, SIGTERM or SIGINT.

    Raise ``ValueError`` if it can't start.
    """
    chosen = choose_principal(settings, principal)
    wire = Wire()

    async def run(host: Host, server: StreamableHttpServer) -> None:
        await run_until_stopped(server, StdioServer(server, chosen.name, wire).run(), host.run())

    own_settings = replace(settings, principals=(chosen,))
    asyncio.run(_serve(own_settings, providers, "stdio", run))


def choose_principal(settings: HostSettings, name: str) -> Principal:
    """Return the principal of this name; without a name, the only one. Raise ``ValueError``."""
    principals = {principal.name: principal for principal in settings.principals}
    names = ", ".join(principals)
    if not name:
        if len(principals) > 1:
            raise ValueError(f"there are several principals: name one by --principal ({names})")
        return settings.principals[0]

    if name not in principals:
        raise ValueError(f"there is no principal {name!r}: name one of {names}")
    return principals[name]


def principal_finder(principals: Iterable[Principal]) -> Callable[[str], str | None]:
    """Return a function from an ``Authorization`` header to the name of its principal, or None."""
    known = [
        (_digest(principal.token.reveal()), principal.name)
        for principal in principals
        if principal.token is not None
    ]

    def find(authorization: str) -> str | None:
        scheme, _, credential = authorization.partition(" ")
        given = _digest(credential)
        found = None
        for digest, name in known:  # All of them: the time does not tell which one is near
            if hmac.compare_digest(given, digest):
                found = name
        return found if scheme.lower() == "bearer" else None

    return find


async def _serve(
    settings: HostSettings, providers: Iterable[ToolProvider], address: str, run: RunServer
) -> None:
    log = JsonLog("tool_host", find_secrets(settings))
    logging.getLogger().addHandler(FaultHandler(log))
    host = Host(settings, lambda kind, members: log.event(kind, **members), providers)
    allowed_hosts = frozenset(name.lower() for name in settings.listen.allowed_hosts)

    try:
        server = StreamableHttpServer(
            host.shell,
            is_allowed_host=partial(is_allowed_host, allowed=allowed_hosts),
            is_allowed_origin=partial(is_allowed_origin, allowed=allowed_hosts),
            max_body=settings.listen.max_body,
        )
        host.on_change = lambda: server.broadcast(_LIST_CHANGED)

        log.state("listening", address=address)
        await run(host, server)
    finally:
        await host.close()
        log.state("stopped")


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="replace")).digest()
