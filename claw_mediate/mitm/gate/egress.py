"""Hosts that are not governed: their TLS is never decrypted, and ``egress=deny`` blocks them.

    what comes                                       allow              deny
    CONNECT                                          its tunnel         403
    TLS, no governed name in address or SNI          passes encrypted   is closed, one line of log
    HTTP                                             passes             403
    HTTP that names a governed host in its Host      403                403
    anything to a private or special address         403, or 502        403

In the last row a name gets 502: its address is known, and checked, only when it is dialled
(``destinations``).

About the row before it: over plain HTTP no handshake names a host, so that a transparent proxy
knows only an address. Such a request is meant for a provider and carries the agent's credential,
but would go wherever that address leads.

The addon outlives the script, and denies everything until a script has set what is governed
(decision 0024).
"""

import asyncio
import logging
import socket
from ipaddress import ip_address
from typing import Any

from mitmproxy import connection, ctx, http, tls
from mitmproxy.net.http import url
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.mode_specs import ReverseMode, UpstreamMode
from mitmproxy.proxy.server_hooks import ServerConnectionHookData
from OpenSSL import SSL

from claw_contract.limits import LineLimit
from claw_mediate.mitm.addon_state import AddonState, canonical
from claw_mediate.mitm.gate import destinations, guard

_DENIED = (403, "egress_denied", "this host is not governed, and egress is denied")
_NOT_OVER_TLS = (
    403,
    "not_over_tls",
    "this host is governed, and is reached over TLS only: use https",
)
_UNGOVERNED = "it is not governed, and egress is denied"
_MAX_SHOWN = 255  # Characters of a host's name
_log = logging.getLogger(__name__)
_NO_CERTIFICATE = SSL.Context(SSL.TLS_SERVER_METHOD)  # Every handshake with it fails


class EgressAddon:
    """The addon. It comes before the guard, which lets ungoverned flows stream."""

    name = "claw-egress"

    def __init__(self, addon_state: AddonState) -> None:
        self._addon_state = addon_state
        self._limit = LineLimit(max_lines=1)

    def running(self) -> None:
        destinations.install_check(asyncio.get_running_loop())

    def tls_clienthello(self, data: tls.ClientHelloData) -> None:
        """Let TLS to ungoverned hosts pass unopened.

        When egress is denied, it goes on to a handshake that fails.
        """
        if self._addon_state.denies_egress:
            return
        if self._governs(data.context, data.client_hello.sni):
            return

        data.ignore_connection = True
        self._addon_state.connections.note_tunnel(data.context.client.id)

    def tls_start_client(self, data: tls.TlsData) -> None:
        """Fail the handshake for an ungoverned host.

        This comes after mitmproxy's own hook, which has set up a handshake that decrypts.
        """
        if not self._governs(data.context, data.context.client.sni):
            self._log_refusal_of_tls(data.context)
            data.ssl_conn = SSL.Connection(_NO_CERTIFICATE, None)
            data.ssl_conn.set_accept_state()

    def http_connect(self, flow: http.HTTPFlow) -> None:
        if self._is_governed(flow):
            return

        host = flow.request.host
        problem = self._find_problem(host)
        if problem is not None:
            self._log_refusal(host, problem)
            flow.response = http.Response.make(403, f"this host is refused: {problem}\n".encode())

    @guard.fail_closed
    async def requestheaders(self, flow: http.HTTPFlow) -> None:
        """Refuse plain HTTP to ungoverned hosts, and to those that only Host calls governed."""
        # The script has just read which hosts are governed. Without a script the guard refuses what
        # was governed before.
        if self._addon_state.governs(flow) or flow.response is not None or self._is_governed(flow):
            return

        host = flow.request.host
        if self._addon_state.denies_egress:
            self._log_refusal(host, _UNGOVERNED)
            guard.refuse(flow, *_DENIED)
        elif self._addon_state.refresh_hosts().keys() & _named_hosts(flow.request):
            guard.refuse(flow, *_NOT_OVER_TLS)
        elif (problem := self._find_problem(host)) is not None:
            self._log_refusal(host, problem)
            guard.refuse(flow, 403, "egress_denied", f"this host is refused: {problem}")

    async def server_connect(self, data: ServerConnectionHookData) -> None:
        """Refuse connections to this proxy itself, and check where ungoverned ones lead.

        It would connect to itself again and again (mitmproxy knows itself by two names only), and
        its loopback, where metrics and pages need no token, is not for runners.
        """
        server = data.server
        host, port, *_ = server.address or ("", 0)
        is_own_port = port in self._own_ports()
        if is_own_port and server.error is None and await _is_this_host(host, port):
            server.error = "this is the proxy itself"

        if server.error is None and not self._is_configured(data.client, host, port):
            networks = self._addon_state.egress_networks
            server.error = destinations.find_refusal(host, networks)
            destinations.check_dial(networks)

    def server_connect_error(self, data: ServerConnectionHookData) -> None:
        """Log a connection that its address forbids."""
        host, *_ = data.server.address or ("an unknown host",)
        if data.server.error is not None and destinations.is_refusal(data.server.error):
            self._log_refusal(host, data.server.error)

    def _find_problem(self, host: str) -> str | None:
        """Return why an ungoverned host is refused, as far as its name tells."""
        if self._addon_state.denies_egress:
            return _UNGOVERNED
        return destinations.find_refusal(host, self._addon_state.egress_networks)

    def _is_configured(self, client: connection.Client, host: str, port: int) -> bool:
        """Return whether the configuration names this place.

        It is a provider's, or that of the other proxy of ``--mode``.
        """
        mode = client.proxy_mode
        if isinstance(mode, ReverseMode | UpstreamMode) and mode.address == (host, port):
            return True

        mediator = self._addon_state.mediator
        if mediator is None:
            return False
        place = canonical(host), port
        providers = mediator.registry.all().values()
        return any(destinations.endpoint(provider.base_url) == place for provider in providers)

    def _governs(self, context: Context, sni: str | None) -> bool:
        address = context.server.address
        names = (sni, address[0] if address else None)
        return any(canonical(name) in self._addon_state.refresh_hosts() for name in names if name)

    def _is_governed(self, flow: http.HTTPFlow) -> bool:
        self._addon_state.refresh_hosts()
        return self._addon_state.governs(flow)

    def _log_refusal_of_tls(self, context: Context) -> None:
        address = context.server.address
        host = address[0] if address else "an unknown host"
        self._log_refusal(context.client.sni or host, _UNGOVERNED, "TLS of ")

    def _log_refusal(self, host: str, problem: str, what: str = "") -> None:
        """Log one line a minute for each host.

        A runner often sees only a closed connection, and can't say why.
        """
        left_out = self._limit.take(f"{what}{host}")
        if left_out is not None:
            more = f" ({left_out} more were not logged)" if left_out else ""
            _log.error("cllama: %s%r is refused: %s%s", what, host[:_MAX_SHOWN], problem, more)

    def _own_ports(self) -> set[int]:
        """Return the ports on which this process listens."""
        servers = self._addon_state.builtin.proxyserver.servers
        ports = {address[1] for server in servers for address in server.listen_addrs}

        metrics_port = ctx.options.cllama_metrics.rpartition(":")[2]
        if metrics_port.isdecimal():
            ports.add(int(metrics_port))
        if "web_port" in ctx.options:
            ports.add(ctx.options.web_port)
        return ports


async def _is_this_host(host: str, port: int) -> bool:
    """Return whether a host is this machine."""
    try:
        places = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    except OSError:
        return False  # the connection attempt will say why

    return any(_routes_here(family, place) for family, _, _, _, place in places)


def _routes_here(family: int, place: tuple[Any, ...]) -> bool:
    """Return whether packets to an address stay on this machine.

    A datagram socket that is connected sends nothing, but knows the route.
    """
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(place)
        except OSError:
            return False

        address = ip_address(place[0].partition("%")[0])
        return address.is_loopback or bool(probe.getsockname()[0] == place[0])


def _named_hosts(request: http.Request) -> set[str]:
    names = (request.authority, *request.headers.get_all("host"))
    return {canonical(url.parse_authority(name, check=False)[0]) for name in names}
