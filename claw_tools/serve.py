"""``claw tools serve``: a host's tools over HTTP, or over standard input and output
(docs/spec/tools-host.md "Serving").

Rules. Over HTTP a principal is who has its bearer token, and nothing else of a request says who it
is; all tokens are compared, in constant time. Over stdio it is the only one, or the one that the
operator names. The log is on standard output over HTTP, and on standard error over stdio.
"""

import asyncio
import hashlib
import hmac
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from functools import partial

from claw_mcp.asgi import McpApp, is_allowed_host, is_allowed_origin
from claw_mcp.json_log import FaultHandler, JsonLog
from claw_mcp.listening import listen, run_until_stopped, serve
from claw_mcp.server import StreamableHttpServer
from claw_mcp.stdio_server import StdioServer, Wire
from claw_tools.host import Host, find_secrets
from claw_tools.provider import ToolProvider
from claw_tools.settings import HostSettings, Principal

_LIST_CHANGED = "notifications/tools/list_changed"


def serve_http(settings: HostSettings, providers: Iterable[ToolProvider]) -> None:
    """Serve until SIGTERM or SIGINT.

    Raise ``ValueError`` and ``OSError`` with one line where it can't start.
    """
    if not any(each.token for each in settings.principals):
        raise ValueError(
            "no principal has a token, and so none could call: give each one 'token: {env: NAME}'"
        )
    with listen(settings.host, settings.port) as listener:
        port = listener.getsockname()[1]

        async def run(host: Host, server: StreamableHttpServer) -> None:
            app = McpApp(server, settings.path, principal_finder(settings.principals), host.health)
            await serve(app, listener, host.run())

        asyncio.run(_serve(settings, providers, f"{settings.host}:{port}", run))


def serve_stdio(settings: HostSettings, providers: Iterable[ToolProvider], principal: str) -> None:
    """Serve a principal until its client leaves, SIGTERM or SIGINT.

    Raise ``ValueError`` where it can't start.
    """
    chosen = choose_principal(settings, principal)
    wire = Wire()

    async def run(host: Host, server: StreamableHttpServer) -> None:
        await run_until_stopped(server, StdioServer(server, chosen.name, wire).run(), host.run())

    asyncio.run(_serve(replace(settings, principals=(chosen,)), providers, "stdio", run))


def choose_principal(settings: HostSettings, name: str) -> Principal:
    """Return the principal of this name; without one, the only one. Raise ``ValueError``."""
    names = [each.name for each in settings.principals]
    if not name and len(names) > 1:
        raise ValueError(
            f"there are several principals: name one by --principal ({', '.join(names)})"
        )
    chosen = next((each for each in settings.principals if each.name == name or not name), None)
    if chosen is None:
        raise ValueError(f"there is no principal {name!r}: name one of {', '.join(names)}")
    return chosen


def principal_finder(principals: Iterable[Principal]) -> Callable[[str], str | None]:
    """Return a function from an ``Authorization`` header to the name of its
    principal; None if it is nobody's.
    """
    known = [
        (_digest(each.token.reveal()), each.name) for each in principals if each.token is not None
    ]

    def find(authorization: str) -> str | None:
        scheme, _, credential = authorization.partition(" ")
        given, found = _digest(credential), None
        for digest, name in known:  # All of them: the time does not tell which is near
            if hmac.compare_digest(given, digest):
                found = name
        return found if scheme.lower() == "bearer" else None

    return find


async def _serve(
    settings: HostSettings,
    providers: Iterable[ToolProvider],
    address: str,
    run: Callable[[Host, StreamableHttpServer], Awaitable[None]],
) -> None:
    log = JsonLog("tool_host", find_secrets(settings))
    logging.getLogger().addHandler(FaultHandler(log))
    host = Host(settings, lambda kind, members: log.event(kind, **members), providers)
    try:
        server = StreamableHttpServer(
            host.shell,
            is_allowed_host=partial(is_allowed_host, allowed=settings.allowed_hosts),
            is_allowed_origin=partial(is_allowed_origin, allowed=settings.allowed_hosts),
            max_body=settings.max_body,
        )
        host.on_change = lambda: server.broadcast(_LIST_CHANGED)
        log.state("listening", address=address)
        await run(host, server)
    finally:
        await host.close()
        log.state("stopped")


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="replace")).digest()
