"""The guard: no governed request leaves without a verdict (design.md "The guard", spec/mediation.md section 2).

mitmproxy fails open: a hook that raises, a script that breaks on hot reload or is deleted, lets the request through as it
is. So the guard is added to the master itself and outlives the script, every deciding hook is wrapped in ``fail_closed``,
and a governed request that nobody decided about is answered here.
"""

from __future__ import annotations

import functools
import ipaddress
import logging
import re
import socket
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from typing import Any
from weakref import WeakSet

from mitmproxy import http
from mitmproxy.proxy.mode_specs import ReverseMode

from claw_mediate.core.error_bodies import build_error_body
from claw_mediate.mitm import options

VERDICT = "claw.verdict"
"""Flow metadata: ``forward`` or ``answered``. Set only when a decision was made."""
LEFT = "claw.left"
"""Flow metadata: the runner left before its answer was whole."""
BASE_URL = None
"""The destination of a request at the base-URL entrance: the proxy itself."""
TOO_LARGE = (413, "request_too_large", "the body of this request is larger than the proxy reads (body_size_limit)")
DOTTED = (
    400,
    "credential_in_url",
    "the URL was edited where it shows dots in the place of a credential, and can't be sent",
)
_log = logging.getLogger(__name__)

_LONGEST_NAME = 255
"""Of a host (RFC 1035). What is longer, as anybody may send it, is not kept."""
_NOT_IN_A_TARGET = re.compile(rb"[\x00-\x20\x7f]")
_NOT_IN_A_VALUE = re.compile(rb"[\x00\r\n]")


def canonical(host: str) -> str:
    """A host in one spelling: as a name resolver would read it, so that no other spelling is a way round."""
    return _known(host) if len(host) <= _LONGEST_NAME else _canonical(host)


@lru_cache(maxsize=4096)
def _known(host: str) -> str:
    return _canonical(host)


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
            return socket.inet_ntoa(socket.inet_aton(host))  # 127.1, 0x7f000001 and 2130706433 are addresses too
        except OSError:
            return host
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def malformed(request: http.Request) -> str | None:
    """What is wrong with a head that peers might read in different ways; None: nothing."""
    if _NOT_IN_A_TARGET.search(request.data.path):
        return "the target of the request holds white space or control characters"
    try:
        request.data.path.decode()  # of what is not ASCII, runners send UTF-8, and it goes on as it is
    except UnicodeDecodeError:
        return "the target of the request is neither ASCII nor UTF-8"
    if any(_NOT_IN_A_VALUE.search(value) for _, value in request.headers.fields):
        return "a header holds a line break, a folded line or a null byte"
    if request.headers.get("transfer-encoding", "chunked").strip().lower() != "chunked":
        return "no transfer coding but chunked is read"
    return None


def is_framed(request: http.Request) -> bool:
    """Whether its head tells where its body ends."""
    return "content-length" in request.headers or "transfer-encoding" in request.headers


def chunk(request: http.Request) -> None:
    """A body that streams in frames (HTTP/2) needs chunks where the provider knows no frames."""
    if not is_framed(request):
        request.headers["transfer-encoding"] = "chunked"


@lru_cache(maxsize=8)
def governing(hosts: frozenset[str]) -> Mapping[str, str]:
    """Canonical name → governed host, as it was configured."""
    return {canonical(host): host for host in hosts}


def destination(flow: http.HTTPFlow, governed: Mapping[str, str]) -> str | None:
    """Where the runner was going: by its connection and its SNI, a governed name first, and never by its Host header."""
    if isinstance(flow.client_conn.proxy_mode, ReverseMode):
        return BASE_URL
    names = [canonical(name) for name in (flow.request.host, flow.client_conn.sni) if name]
    return next((governed[name] for name in names if name in governed), names[0])


_recorded: WeakSet[http.HTTPFlow] = WeakSet()


def begins(flow: http.HTTPFlow) -> None:
    """The first that anybody hears of a flow: of one that was loaded from a file, nobody waits for an answer."""
    if not flow.live:
        _recorded.add(flow)
    elif flow.is_replay:
        _recorded.discard(flow)


def is_recorded(flow: http.HTTPFlow) -> bool:
    """Whether it was loaded from a file, to be looked at: it is not decided about, and may share the id of one under way."""
    return flow in _recorded


def is_answered(flow: http.HTTPFlow) -> bool:
    """Whether somebody before us has an answer. It would be none any more to a request that we let stream out."""
    return flow.response is not None


def refuse(flow: http.HTTPFlow, status: int, code: str, message: str) -> None:
    """Answer here; where the request is already streaming out, end it instead. What is recorded stays as it is."""
    if is_recorded(flow):
        return
    if flow.request.stream and flow.response is None and flow.killable:
        flow.kill()
        return
    body = build_error_body(flow.request.path, status, code, message)
    flow.response = http.Response.make(status, body, {"content-type": "application/json"})


def fail_closed[S](
    hook: Callable[[S, http.HTTPFlow], Awaitable[None]],
) -> Callable[[S, http.HTTPFlow], Awaitable[None]]:
    """A hook that decides: whatever goes wrong in it, the runner gets a 502 and nothing goes out."""

    @functools.wraps(hook)
    async def closed(self: S, flow: http.HTTPFlow) -> None:
        try:
            await hook(self, flow)
        except BaseException as error:
            _log.error("%s failed: %s", hook.__name__, type(error).__name__, exc_info=isinstance(error, Exception))
            flow.metadata.pop(VERDICT, None)
            refuse(flow, 502, "governance_failed", "the proxy could not decide about this request")
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise

    return closed


class Guard:
    """Added to the master itself, behind all scripts."""

    name = "claw-guard"

    def __init__(self) -> None:
        self.hosts: Mapping[str, str] = {}
        """The governed hosts, as last told; they stay governed when the script is gone."""

    def governs(self, flow: http.HTTPFlow) -> bool:
        host = destination(flow, self.hosts)
        return host is BASE_URL or host in self.hosts.values()

    def configure(self, _updated: set[str]) -> None:
        options.check()

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        """A governed body goes out while it comes in only after a verdict; any other one always."""
        if not self.governs(flow):
            flow.request.stream = flow.response is None
        elif VERDICT not in flow.metadata:
            flow.request.stream = False

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        if flow.response is not None and not self.governs(flow):
            flow.response.stream = True

    def request(self, flow: http.HTTPFlow) -> None:
        """The last hook before a request goes out."""
        if flow.response is None and self.governs(flow) and VERDICT not in flow.metadata:
            refuse(flow, 503, "not_governed", "the proxy is not ready to decide about requests")

    def websocket_start(self, flow: http.HTTPFlow) -> None:
        """A way round every rule: never opened to a governed host."""
        if self.governs(flow) and flow.killable:
            flow.kill()


def metadata(flow: http.HTTPFlow, verdict: str, **about: Any) -> None:
    """Note the decision, and what an operator may filter for."""
    flow.metadata[VERDICT] = verdict
    for name, value in about.items():
        flow.metadata[f"claw.{name}"] = value
