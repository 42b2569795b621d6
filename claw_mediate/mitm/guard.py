"""The guard: no governed request leaves without a verdict (design.md "The guard", spec/mediation.md section 2).

mitmproxy fails open: a hook that raises, a script that breaks on hot reload or is deleted, lets the request through as it
is. So the guard is added to the master itself and outlives the script, every deciding hook is wrapped in ``fail_closed``,
and a governed request that nobody decided about is answered here.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from mitmproxy import http
from mitmproxy.proxy.mode_specs import ReverseMode

from claw_mediate.dialects.errors import refusal
from claw_mediate.mitm import options

VERDICT = "claw.verdict"
"""Flow metadata: ``forward`` or ``answered``. Set only when a decision was made."""
_log = logging.getLogger(__name__)


BASE_URL = None
"""The destination of a request at the base-URL entrance: the proxy itself."""


def destination(flow: http.HTTPFlow, governed: frozenset[str]) -> str | None:
    """Where the runner was going: by its connection and its SNI, a governed name first, and never by its Host header."""
    if isinstance(flow.client_conn.proxy_mode, ReverseMode):
        return BASE_URL
    names = [name.lower().rstrip(".") for name in (flow.request.host, flow.client_conn.sni) if name]
    return next((name for name in names if name in governed), names[0])


def refuse(flow: http.HTTPFlow, status: int, code: str, message: str) -> None:
    """Answer here; where the request is already streaming out, end it instead."""
    if flow.request.stream and flow.response is None and flow.killable:
        flow.kill()
        return
    body = refusal(flow.request.path, status, code, message)
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
        self.hosts: frozenset[str] = frozenset()
        """The governed hosts, as last told; they stay governed when the script is gone."""

    def governs(self, flow: http.HTTPFlow) -> bool:
        host = destination(flow, self.hosts)
        return host is BASE_URL or host in self.hosts

    def configure(self, _updated: set[str]) -> None:
        options.check()

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        """A body goes out while it comes in only after a verdict."""
        if self.governs(flow) and VERDICT not in flow.metadata:
            flow.request.stream = False

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
