"""The addon: what mitmproxy tells us, put before the mediator, and its decision put back (spec/mediation.md section 1).

    requestheaders   is it governed, who asks; what is not mediated is forwarded from here, streaming
    request          the body is there: mediate, or forward
    responseheaders  a forwarded response streams through, with a copy read for its usage
    done             turns under way may end

Both deciding hooks fail closed. ``done`` is no coroutine function: mitmproxy calls it from sync code on hot reload.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from mitmproxy import ctx, exceptions, http, tls

from claw_mediate.exchange import Exchange, Forward, Request, refused
from claw_mediate.io.forwarding import Ticket
from claw_mediate.io.headers import CREDENTIALS
from claw_mediate.io.identity import Admitted
from claw_mediate.io.log import EventLog
from claw_mediate.io.settings import Settings
from claw_mediate.mediator import Mediator
from claw_mediate.mitm import dispatch, door, entrances, guard, options
from claw_mediate.mitm.tap import Tap

DRAIN_SECONDS = 3.5
"""How long streams, and then turns, may take when the proxy stops: all of it within a container's 10 s."""
_log = logging.getLogger(__name__)

TURN_SECONDS = 900.0
"""How long turns may take whose proxy goes on without them, with a new script or new settings."""

# Of requests that are under way. Here and not in the addon: a script that is reloaded between two hooks of a request must
# not lose it, and this module outlives the script.
_admitted: dict[str, Admitted] = {}
_forwarded: dict[str, tuple[Mediator, Ticket, Tap | None]] = {}
_handed: dict[str, Callable[[], Awaitable[None]]] = {}
_closing: set[asyncio.Future[None]] = set()


class Cllama:
    """One life of the script; the door and the guard are the process's."""

    def __init__(self) -> None:
        self._mediator: Mediator | None = None
        self._settings: Settings | None = None
        self._events = EventLog()

    def load(self, loader: Any) -> None:
        """Options, and the parts that outlive this script. A failure is one line, and mitmproxy does not start."""
        options.add(loader)
        try:
            for part in (door.Door(), guard.Guard(), dispatch.Dispatch(self._events)):
                if ctx.master.addons.get(part.name) is None:
                    ctx.master.addons.add(part)
        except (exceptions.OptionsError, RuntimeError) as error:
            _log.error("cllama: %s", error)

    def configure(self, updated: set[str]) -> None:
        """Settings → mediator. On start-up a failure is one line and the end; later mitmproxy takes the change back."""
        if not any(name.startswith("cllama_") for name in updated):
            return
        try:
            options.harden()
            settings = Settings.of(options.values())
        except (ValueError, exceptions.OptionsError) as error:
            self._refuse_start(str(error))
            return
        if settings == self._settings:
            return
        try:
            mediator = Mediator(settings, self._events)
        except (OSError, sqlite3.Error) as error:
            self._refuse_start(f"the state {settings.state!r} can't be opened: {error}")
            return
        except ValueError as error:
            self._refuse_start(str(error))
            return
        if (problem := mediator.missing()) is not None:
            self._refuse_start(problem)
            return
        self._settings, old, self._mediator = settings, self._mediator, mediator
        if old is not None:
            _close(old, TURN_SECONDS)

    def running(self) -> Any:
        """Open the entrances. No coroutine function, for the same reason as ``done``."""
        return asyncio.ensure_future(entrances.reopen())

    def tls_clienthello(self, data: tls.ClientHelloData) -> None:
        """TLS of hosts that are not governed is not opened: their bytes pass through."""
        address = data.context.server.address
        names = {name.lower().rstrip(".") for name in (data.client_hello.sni, address[0] if address else None) if name}
        if self._settings is not None and not names & self._hosts():
            data.ignore_connection = True

    def http_connect(self, flow: http.HTTPFlow) -> None:
        if self._denies(flow):
            flow.response = http.Response.make(403, b"this host is not governed, and egress is denied\n")

    @guard.fail_closed
    async def requestheaders(self, flow: http.HTTPFlow) -> None:
        """Who asks, and what needs no body to be decided."""
        hosts = self._hosts()
        if not self._guard().governs(flow):
            if self._denies(flow):
                guard.refuse(flow, 403, "egress_denied", "this host is not governed, and egress is denied")
            return
        if self._mediator is None:
            return  # the guard refuses
        request = _request(flow, b"", hosts)
        if request.header("upgrade") and "websocket" in request.header("upgrade")[0].lower():
            await _answer(flow, refused(request.path, 426, "upgrade_required", "WebSocket is not served; use POST"))
        elif (own := await self._mediator.own(request)) is not None:
            await _answer(flow, own)
        elif isinstance(admitted := self._mediator.admit(request), Exchange):
            await _answer(flow, admitted)
        elif self._mediator.dialect(request) is not None:
            _admitted[flow.id] = admitted
        else:
            await self._apply(flow, self._mediator.forward(admitted, request))
            # Without a length of its own (HTTP/2) a body must be whole before it can be framed for the provider.
            flow.request.stream = flow.response is None and _is_framed(flow)

    @guard.fail_closed
    async def request(self, flow: http.HTTPFlow) -> None:
        """The body is there."""
        if flow.metadata.get(guard.VERDICT) == "forward" and not flow.request.stream:
            _frame(flow)
        admitted = _admitted.pop(flow.id, None)
        if admitted is None or flow.response is not None or self._mediator is None:
            return
        flow.metadata["claw.agent"] = admitted.agent.id
        if flow.request.headers.get("content-encoding", "identity").lower() != "identity":
            # A few bytes can unpack to gigabytes; no known runner compresses its requests.
            message = "compressed requests are not read; send the body as it is"
            await _answer(flow, refused(flow.request.path, 415, "unsupported_content_encoding", message))
            return
        request = _request(flow, flow.request.raw_content or b"", self._hosts())
        decision = await door.while_connected(flow, self._mediator.exchange(admitted, request))
        await self._apply(flow, decision)

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        """A forwarded response: every byte at once, none of them kept."""
        if flow.metadata.get(guard.VERDICT) != "forward" or flow.response is None:
            return
        door.settled(flow)
        mediator, ticket, _ = _forwarded[flow.id]
        mediator.forwarding.answered(ticket, flow.response.status_code, flow.response.headers.get("retry-after", ""))
        tap = Tap(flow.response.headers.get("content-type", ""))
        _forwarded[flow.id] = (mediator, ticket, tap)
        flow.response.stream = tap

    async def response(self, flow: http.HTTPFlow) -> None:
        if (handed := _handed.pop(flow.id, None)) is not None:
            await handed()  # a stream has been sent by now, and a whole answer is sent next, with nothing between
        self._over(flow)

    def error(self, flow: http.HTTPFlow) -> None:
        _admitted.pop(flow.id, None)
        _handed.pop(flow.id, None)
        self._over(flow)

    def done(self) -> Any:
        """The mediator's end; awaited when the proxy stops, and left to itself on hot reload."""
        mediator, self._mediator = self._mediator, None
        if mediator is None:
            return None
        return _close(mediator, DRAIN_SECONDS if ctx.master.should_exit.is_set() else TURN_SECONDS)

    async def _apply(self, flow: http.HTTPFlow, decision: Exchange | Forward) -> None:
        if isinstance(decision, Exchange):
            await _answer(flow, decision)
            return
        for name in (*CREDENTIALS, *decision.dropped):
            flow.request.headers.pop(name, None)
        # Part by part: a path is never read as a part of the authority.
        base = urlsplit(decision.base_url)
        flow.request.scheme = base.scheme
        flow.request.host = base.hostname or ""
        flow.request.port = base.port or (443 if base.scheme == "https" else 80)
        flow.request.path = base.path + decision.target
        for name, value in decision.credential:
            flow.request.headers[name] = value
        if decision.body is not None:
            flow.request.content = decision.body
        if flow.request.raw_content:
            _frame(flow)
        flow.request.headers["accept-encoding"] = "identity"  # so that the copy can be read for its usage
        door.if_unreachable(flow, 502, decision.refusal)
        assert isinstance(decision.ticket, Ticket)
        assert self._mediator is not None
        _forwarded[flow.id] = (self._mediator, decision.ticket, None)
        guard.metadata(flow, "forward", provider=decision.ticket.provider.name)

    def _over(self, flow: http.HTTPFlow) -> None:
        """A forwarded request has had its answer, or never will."""
        door.settled(flow)
        mediator, ticket, tap = _forwarded.pop(flow.id, (None, None, None))
        if mediator is None or ticket is None:
            return
        status = flow.response.status_code if flow.response is not None else 502
        if tap is None:  # the provider could not be reached; what the runner was told is in the flow
            body = flow.response.data.content or b"" if flow.response is not None else b""
            mediator.forwarding.over(ticket, status, {}, body, whole=False)
        else:
            mediator.forwarding.over(ticket, status, tap.usage, bytes(tap.body), whole=tap.whole)

    def _refuse_start(self, problem: str) -> None:
        if self._mediator is not None:
            raise exceptions.OptionsError(f"cllama: {problem}")
        _log.error("cllama: %s", problem)

    def _guard(self) -> guard.Guard:
        found: guard.Guard = ctx.master.addons.get(guard.Guard.name)
        return found

    def _hosts(self) -> frozenset[str]:
        """The governed hosts, told to the guard too, which keeps them when this script is gone."""
        hosts = self._mediator.registry.hosts() if self._mediator is not None else self._guard().hosts
        self._guard().hosts = hosts
        return hosts

    def _denies(self, flow: http.HTTPFlow) -> bool:
        hosts = self._hosts()
        host = guard.destination(flow, hosts)
        deny = self._settings is None or self._settings.egress == "deny"
        return deny and host is not guard.BASE_URL and host not in hosts


def _close(mediator: Mediator, seconds: float) -> asyncio.Future[None]:
    """Answers that are being sent are sent to their end, then turns have their time; nobody needs to wait for it."""

    async def drained() -> None:
        await door.idle(seconds)
        await mediator.close(seconds)

    future = asyncio.ensure_future(drained())
    _closing.add(future)
    future.add_done_callback(_closing.discard)
    return future


def _is_framed(flow: http.HTTPFlow) -> bool:
    return "content-length" in flow.request.headers or "transfer-encoding" in flow.request.headers


def _frame(flow: http.HTTPFlow) -> None:
    """Tell the provider where the body ends: what lies behind an unframed one would be a request of its own."""
    if flow.request.raw_content and not _is_framed(flow):
        flow.request.headers["content-length"] = str(len(flow.request.raw_content))


def _request(flow: http.HTTPFlow, body: bytes, hosts: frozenset[str]) -> Request:
    host = guard.destination(flow, hosts)
    assert host is guard.BASE_URL or host in hosts
    headers = [(name, value) for name, value in flow.request.headers.items(multi=True)]
    return Request(flow.request.method, flow.request.path, headers, body, host)


async def _answer(flow: http.HTTPFlow, exchange: Exchange) -> None:
    if exchange.handed is not None:
        _handed[flow.id] = exchange.handed
    if exchange.streaming:
        door.answer(flow, exchange)
    else:
        await door.whole(flow, exchange)
    if flow.request.method == "HEAD" and flow.response is not None:
        flow.response.data.content = b""
    guard.metadata(flow, "answered")
