"""Hosts that are not governed: none of their TLS is opened, and with ``egress=deny`` nothing goes to them (mediation.md 1).

    what comes                                       allow              deny
    CONNECT                                          its tunnel         403
    TLS, no governed name in address or SNI          passes unopened    is closed, and one line
    HTTP                                             passes             403
    HTTP that names a governed host in its Host      403                403

The last: over plain HTTP, where no handshake names a host, a transparent proxy knows an address only. Such a request is
meant for a provider, has the agent's credential with it, and would go wherever that address leads.

Added to the master itself: when the script is gone, what it had told last still holds. Before it has told anything, all is
denied.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import Any

from mitmproxy import ctx, http, tls
from mitmproxy.net.http import url
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.server_hooks import ServerConnectionHookData
from OpenSSL import SSL

from claw_mediate.mitm.gate import guard

_DENIED = (403, "egress_denied", "this host is not governed, and egress is denied")
_NOT_OVER_TLS = (403, "not_over_tls", "this host is governed, and is spoken to over TLS: use https")
_MOST_TOLD = 1000
_log = logging.getLogger(__name__)
_NOBODY = SSL.Context(SSL.TLS_SERVER_METHOD)
"""It has no certificate, so that nobody can shake hands with it."""


class Egress:
    """The addon. It stands before the guard, which lets what is not governed stream."""

    name = "claw-egress"

    def __init__(self) -> None:
        self.denies = True
        self.hosts: Callable[[], Mapping[str, str]] = dict
        """The governed hosts of now, by their canonical names."""
        self._told: set[str] = set()

    def tls_clienthello(self, data: tls.ClientHelloData) -> None:
        """TLS of others passes as it is, or goes on to a handshake that fails."""
        if not self.denies and not self._governs(data.context, data.client_hello.sni):
            data.ignore_connection = True

    def tls_start_client(self, data: tls.TlsData) -> None:
        """After mitmproxy's own, which would have opened it. No handshake is made for a host that is not governed."""
        if not self._governs(data.context, data.context.client.sni):
            self._tell(data.context)
            data.ssl_conn = SSL.Connection(_NOBODY, None)
            data.ssl_conn.set_accept_state()

    def http_connect(self, flow: http.HTTPFlow) -> None:
        """Answered here, where no tunnel is open yet."""
        if self.denies and not self._is_governed(flow):
            flow.response = http.Response.make(403, b"this host is not governed, and egress is denied\n")

    @guard.fail_closed
    async def requestheaders(self, flow: http.HTTPFlow) -> None:
        """HTTP of others."""
        if self._is_governed(flow) or flow.response is not None:
            return
        if self.denies:
            guard.refuse(flow, *_DENIED)
        elif self.hosts().keys() & _named(flow.request):
            guard.refuse(flow, *_NOT_OVER_TLS)

    async def server_connect(self, data: ServerConnectionHookData) -> None:
        """Never to this proxy itself. It would dial itself again, and again (mitmproxy knows itself by two names only), and its
        own loopback, where metrics and pages are told without a token, is no runner's.
        """
        host, port, *_ = data.server.address or ("", 0)
        if port in _own_ports() and data.server.error is None and await _is_here(host, port):
            data.server.error = "this is the proxy itself"

    def _governs(self, context: Context, sni: str | None) -> bool:
        address = context.server.address
        names = (sni, address[0] if address else None)
        return any(guard.canonical(name) in self.hosts() for name in names if name)

    def _tell(self, context: Context) -> None:
        """Once for each host: a runner that meets no more than a closed connection can't say why."""
        address = context.server.address
        host = context.client.sni or (address[0] if address else "an unknown host")
        if host not in self._told and len(self._told) < _MOST_TOLD:
            self._told.add(host)
            _log.error("cllama: TLS of %r is refused: it is not governed, and egress is denied", host)

    def _is_governed(self, flow: http.HTTPFlow) -> bool:
        hosts = self.hosts()
        host = guard.destination(flow, hosts)
        return host is guard.BASE_URL or host in hosts.values()


def _own_ports() -> set[int]:
    """Of all entrances, of the metrics, and of mitmweb's page."""
    servers = ctx.master.addons.get("proxyserver").servers
    told = ctx.options.cllama_metrics.rpartition(":")[2]
    page = {ctx.options.web_port} if "web_port" in ctx.options else set()
    metrics = {int(told)} if told.isdecimal() else set()
    return {address[1] for server in servers for address in server.listen_addrs} | metrics | page


async def _is_here(host: str, port: int) -> bool:
    """Whether a host is this one: by the address that one would speak from to it. Nothing is sent."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    except OSError:
        return False  # dialling it will say why
    return any(_leads_here(family, place) for family, _, _, _, place in found)


def _leads_here(family: int, place: tuple[Any, ...]) -> bool:
    with socket.socket(family, socket.SOCK_DGRAM) as asks:
        try:
            asks.connect(place)
        except OSError:
            return False
        return bool(ip_address(place[0].partition("%")[0]).is_loopback or asks.getsockname()[0] == place[0])


def _named(request: http.Request) -> set[str]:
    """Every host that it says it is for."""
    said = (request.authority, *request.headers.get_all("host"))
    return {guard.canonical(url.parse_authority(each, check=False)[0]) for each in said}
