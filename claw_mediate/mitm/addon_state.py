"""The state that every part of the addon shares: one ``AddonState``, given to each constructor.

It has what is governed, by which mediator, within which limits. It outlives the script: what the
last script has set stays in force when that script is gone. Before any script has set it, nothing
is governed except the base URL, and egress is denied.
"""

import ipaddress
import math
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, Self

from mitmproxy import ctx, http
from mitmproxy.proxy.mode_specs import ReverseMode

from claw_contract.addresses import Network
from claw_contract.redaction.redactor import Redactor
from claw_mediate.mediator import Mediator
from claw_mediate.mitm.body_bytes import BodyBytes
from claw_mediate.mitm.connection_table import ConnectionTable
from claw_mediate.settings import Settings
from claw_mediate.telemetry.event_log import EventLog

BASE_URL = None
"""The destination of a request at the base-URL listener: the proxy itself."""
_MAX_HOST_LENGTH = 255
"""The length of a host's name (RFC 1035). Longer ones, which anybody may send, are not cached."""
_NOTHING_KNOWN = Redactor(())


@dataclass(frozen=True)
class BuiltinAddons:
    """mitmproxy's own addons that ours use.

    One that the program does not have is None: mitmdump has no view.
    """

    proxyauth: Any = None
    proxyserver: Any = None
    tlsconfig: Any = None
    errorcheck: Any = None
    termlog: Any = None
    consoleaddon: Any = None
    view: Any = None
    dumper: Any = None
    save: Any = None
    savehar: Any = None

    @classmethod
    def find(cls) -> Self:
        return cls(**{each.name: ctx.master.addons.get(each.name) for each in fields(cls)})


class AddonState:
    """The governed hosts, the mediator, the limits of the settings, and mitmproxy's own addons."""

    def __init__(self, events: EventLog, builtin: BuiltinAddons | None = None) -> None:
        self.events = events
        self.builtin = builtin or BuiltinAddons()
        self.observers: tuple[Any, ...] = ()
        """The addons that are notified of hidden flows, in this order."""
        self.mediator: Mediator | None = None
        self.has_script = False
        """True while a script is there that decides."""
        self.hosts: Mapping[str, str] = {}
        """The governed hosts as last read: canonical name → as configured."""
        self.denies_egress = True
        self.egress_networks: tuple[Network, ...] = ()
        """The private networks that ungoverned connections may lead to."""
        self.max_flows = 0
        """The most flows that the view keeps; 0: no limit, and none of their bytes either."""
        self.max_bytes = 0
        """The most bytes of flows that the view keeps."""
        self.max_unread_seconds = math.inf
        """The most time in which a runner may take nothing of what waits for it."""
        self.connections = ConnectionTable()
        self.body_bytes = BodyBytes()
        self._is_observed: bool | None = None

    def apply(self, settings: Settings, mediator: Mediator) -> None:
        """Govern by this mediator and these settings from now on."""
        self.mediator = mediator
        self.has_script = True
        self.denies_egress = settings.egress == "deny"
        self.egress_networks = settings.egress_networks
        self.body_bytes.max_agent = settings.max_agent_body_bytes
        self.body_bytes.max_all = settings.max_body_bytes
        self.max_flows = settings.keep_flows
        self.max_bytes = settings.keep_bytes
        self.max_unread_seconds = settings.live_max

    def redactor(self) -> Redactor:
        """Return the redactor of all secrets of this pod."""
        return self.mediator.redactors.of_pod() if self.mediator is not None else _NOTHING_KNOWN

    def refresh_hosts(self) -> Mapping[str, str]:
        """Return the governed hosts of now, and keep them."""
        if self.mediator is not None:
            self.hosts = _by_canonical_name(self.mediator.registry.hosts())
        return self.hosts

    def governs(self, flow: http.HTTPFlow) -> bool:
        """Return whether the flow goes to a governed host, as last read, or to the base URL."""
        host = destination(flow, self.hosts)
        return host is BASE_URL or host in self.hosts.values()

    def is_observed(self) -> bool:
        """Return whether anybody sees flows now.

        That is a view, or an option that dumps or saves them.
        """
        if self._is_observed is None:
            options = ctx.options
            dumps = "flow_detail" in options and options.flow_detail > 0
            saves = bool(options.save_stream_file or options.hardump)
            self._is_observed = dumps or saves or self.builtin.view is not None
        return self._is_observed

    def options_changed(self) -> None:
        """Forget what was derived from options of mitmproxy."""
        self._is_observed = None


def canonical(host: str) -> str:
    """Return a host in one spelling, as a name resolver would read it.

    So no other spelling of a governed host bypasses a rule.
    """
    return _canonical(host) if len(host) <= _MAX_HOST_LENGTH else _canonical.__wrapped__(host)


@lru_cache(maxsize=4096)
def _canonical(host: str) -> str:
    host = host.rstrip(".")
    try:
        host = host.encode("idna").decode("ascii")
    except UnicodeError:
        return host.lower()

    host = host.lower()
    try:
        address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        try:
            # 127.1, 0x7f000001 and 2130706433 are addresses too.
            return socket.inet_ntoa(socket.inet_aton(host))
        except OSError:
            return host

    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


@lru_cache(maxsize=8)
def _by_canonical_name(hosts: frozenset[str]) -> Mapping[str, str]:
    return {canonical(host): host for host in hosts}


def destination(flow: http.HTTPFlow, governed: Mapping[str, str]) -> str | None:
    """Return the host that the runner wants, or ``BASE_URL``.

    Its connection and its SNI tell, never its Host header. ``governed`` is canonical name → as
    configured; a governed name counts before any other.
    """
    if isinstance(flow.client_conn.proxy_mode, ReverseMode):
        return BASE_URL

    names = [canonical(name) for name in (flow.request.host, flow.client_conn.sni) if name]
    for name in names:
        if name in governed:
            return governed[name]

    return names[0]


def log_to_stderr() -> None:
    """Let mitmproxy's own messages go to stderr, from the first one on.

    Call it before mitmproxy starts. Its "Loading script" comes before any script runs, so that
    an addon alone can't keep it from stdout.
    """
    # It imports all of mitmproxy's addons, which its programs do anyway.
    from mitmproxy.addons import termlog

    termlog.TermLog.__init__.__defaults__ = (sys.stderr,)
