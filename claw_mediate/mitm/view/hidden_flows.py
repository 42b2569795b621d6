"""What a runner does not see, as flows of their own: each hidden round of the model and each tool call, linked to the flow of
the request that it is for (spec/inspect.md; reference/mitmproxy.md section 2).

    who is told   the view, the dumper, and what saves flows; never a script, nor an addon that changes flows
    when          as it happens: a flow is there as soon as it is asked, and has its answer later
    the parent    is shown with the provider that is asked, and gets the turn's line of history when that is over

Where nobody looks on there is no watch, and nothing is made. Metadata is plain values: flows are copied and saved with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec
from mitmproxy import addonmanager, connection, ctx, flow, hooks, http
from mitmproxy.net.http import url
from mitmproxy.net.http.status_codes import RESPONSES
from mitmproxy.proxy.layers.http import (
    HttpErrorHook,
    HttpRequestHeadersHook,
    HttpRequestHook,
    HttpResponseHeadersHook,
    HttpResponseHook,
)
from mitmproxy.proxy.mode_specs import ReverseMode

from claw_mediate.core.observer import (
    NO_EXCHANGE_OBSERVER,
    ExchangeObserver,
    HiddenRequest,
    RequestInfo,
    RequestObserver,
    ResponseInfo,
)
from claw_mediate.http.headers import as_read

_log = logging.getLogger(__name__)

PARENT, TURN, AGENT, ENTRY = "claw.parent", "claw.turn", "claw.agent", "claw.entry"
KIND, ROUND, TOOL, PROVIDER = "claw.kind", "claw.round", "claw.tool", "claw.provider"
DUPLICATE, REPLAYED, LATENCY = "claw.duplicate", "claw.replayed", "claw.latency_ms"
MARKS = {"turn": ":llama:", "model": ":robot:", "tool": ":wrench:"}
MOST_SHOWN = 4 << 20
"""Bytes of a body that are kept to be looked at, and of a line of history."""
_OBSERVERS = ("view", "claw-keeping", "dumper", "save", "savehar")
NOT_MADE, _RECORDED = "not-made.invalid", "recorded.invalid"
"""Hosts of what was not asked: no such name can ever be resolved (RFC 2606)."""
_LONGEST_NAME = 128
"""Of a tool: a model may invent one, of any length, and with what moves a terminal's cursor."""
_PORTS = {"http": 80, "https": 443}

_LAST_SECONDS = 1.0
_left: dict[str, asyncio.Event] = {}
_turns: dict[str, list[http.HTTPFlow]] = {}
"""The flows of runners that wait for a turn. Here, and not in the addon: a reloaded script must not lose them."""


@functools.cache
def looked_on() -> bool:
    """Whether anybody sees flows, now; forgotten with each change of an option (``veil``)."""
    options = ctx.options
    detail = "flow_detail" in options and options.flow_detail > 0
    return bool(detail or options.save_stream_file or options.hardump) or ctx.master.addons.get("view") is not None


def watching(parent: http.HTTPFlow) -> RequestObserver | None:
    """Who looks on at what becomes of this flow's request."""
    return _Parent(parent) if looked_on() else None


def over(parent: http.HTTPFlow) -> None:
    """The runner has its answer, or has left."""
    turn_id = parent.metadata.get(TURN)
    if turn_id in _turns:
        _turns[turn_id] = [other for other in _turns[turn_id] if other is not parent]
        if not _turns[turn_id]:
            del _turns[turn_id]


async def settled(parent: http.HTTPFlow) -> None:
    """Wait, for a moment, for the line of history of a turn that its last runner has left: it is saved with the flow."""
    turn_id = parent.metadata.get(TURN)
    if turn_id is None or turn_id in _turns or ENTRY in parent.metadata:
        return
    waits = _left[parent.id] = asyncio.Event()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(waits.wait(), _LAST_SECONDS)
    del _left[parent.id]


def tell(*told: hooks.Hook) -> None:
    """Those who look on, and nobody else."""
    addons = ctx.master.addons
    for hook in told:
        for name in _OBSERVERS:
            if (observer := addons.get(name)) is not None:  # not by its truth: a view without flows is false
                with addonmanager.safecall():  # what goes wrong there is nothing to a turn
                    addons.invoke_addon_sync(observer, hook)


def _harmless[**P, T](otherwise: T) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Whatever goes wrong in showing a turn is nothing to the turn."""

    def made(shows: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(shows)
        def safe(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return shows(*args, **kwargs)
            except Exception as error:  # noqa: BLE001
                _log.error("a turn can't be shown: %s", type(error).__name__, exc_info=True)
                return otherwise

        return safe

    return made


class _Parent:
    """The flow of a runner's request, which may begin a turn, or join one."""

    def __init__(self, parent: http.HTTPFlow) -> None:
        self._flow = parent

    @_harmless(None)
    def on_turn(self, turn_id: str, agent_id: str) -> None:
        self._flow.metadata |= {TURN: turn_id, AGENT: agent_id}
        self._flow.comment = f"claw {turn_id} of {agent_id}"
        self._flow.marked = self._flow.marked or MARKS["turn"]
        _turns.setdefault(turn_id, []).append(self._flow)
        tell(hooks.UpdateHook([self._flow]))

    @_harmless(NO_EXCHANGE_OBSERVER)
    def on_request(self, hidden: HiddenRequest) -> ExchangeObserver:
        if hidden.subject.kind == "model" and hidden.request.url:
            self._leads_to(hidden.request.url)
        return _Child(self._flow, hidden)

    @_harmless(None)
    def on_end(self, entry: bytes) -> None:
        """For all who wait for the turn: also for those who have joined it, and where this one has left."""
        text = _bounded(entry)
        waiting = _turns.pop(self._flow.metadata.get(TURN, ""), [])
        flows = [*waiting, *(() if self._flow in waiting else (self._flow,))]
        for waits in flows:
            waits.metadata[ENTRY] = text
            if waits.id in _left:
                _left[waits.id].set()
        tell(hooks.UpdateHook(flows))

    def _leads_to(self, asked: str) -> None:
        """At the base-URL entrance a request has no destination of its own: it is shown with the provider that is asked."""
        if isinstance(self._flow.client_conn.proxy_mode, ReverseMode):
            scheme, host, port, _ = _place(asked)
            request = self._flow.request
            if (request.scheme, request.data.host, request.data.port) != (scheme, host, port):
                request.scheme, request.data.port, request.host = scheme, port, host
                tell(hooks.UpdateHook([self._flow]))


class _Child:
    """The flow of one hidden request."""

    def __init__(self, parent: http.HTTPFlow, hidden: HiddenRequest) -> None:
        self._started = time.monotonic()
        self._flow = made = _flow(parent, hidden)
        tell(HttpRequestHeadersHook(made), HttpRequestHook(made))

    @_harmless(None)
    def on_response(self, said: ResponseInfo) -> None:
        now = time.time()
        length = len(said.body) if said.size is None else said.size
        fields = as_read([("content-type", said.content_type), ("content-length", str(length))])
        reason = RESPONSES.get(said.status, "").encode()
        content = said.body[:MOST_SHOWN]
        self._flow.response = http.Response(
            b"HTTP/1.1", said.status, reason, http.Headers(fields), content, None, now, now
        )
        self._end(HttpResponseHeadersHook(self._flow), HttpResponseHook(self._flow))

    @_harmless(None)
    def on_failure(self, why: str) -> None:
        self._flow.error = flow.Error(f"cllama: {why}")
        self._end(HttpErrorHook(self._flow))

    def _end(self, *told: hooks.Hook) -> None:
        self._flow.live = False
        self._flow.metadata[LATENCY] = round((time.monotonic() - self._started) * 1000)
        tell(*told)


def _flow(parent: http.HTTPFlow, hidden: HiddenRequest) -> http.HTTPFlow:
    about, now = hidden.subject, time.time()
    name = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in about.name[:_LONGEST_NAME])
    scheme, host, port, path = _place(hidden.request.url or _not_asked(hidden, name))
    server = connection.Server(address=(host, port), timestamp_start=now)
    made = http.HTTPFlow(parent.client_conn, server)
    made.request = http.Request(
        host,
        port,
        hidden.request.method.encode(),
        scheme.encode(),
        b"",
        path.encode(errors="surrogateescape"),
        b"HTTP/1.1",
        _headers(hidden.request, url.hostport(scheme, host, port)),
        hidden.request.body[:MOST_SHOWN],
        None,
        now,
        now,
    )
    made.live = True
    made.marked = MARKS[about.kind]
    what = "model" if about.kind == "model" else name
    made.comment = f"claw {what} round {about.round} of {hidden.turn_id} by {hidden.agent_id}"
    made.metadata |= {
        PARENT: parent.id,
        TURN: hidden.turn_id,
        AGENT: hidden.agent_id,
        KIND: about.kind,
        ROUND: about.round,
        PROVIDER if about.kind == "model" else TOOL: name,
        DUPLICATE: about.duplicate,
        REPLAYED: about.replayed,
    }
    return made


def _headers(asked: RequestInfo, authority: str) -> http.Headers:
    fields = as_read([("host", authority), *asked.headers])
    return http.Headers([*fields, (b"content-length", b"%d" % len(asked.body))] if asked.body else fields)


def _not_asked(hidden: HiddenRequest, name: str) -> str:
    host = _RECORDED if hidden.subject.replayed else NOT_MADE
    return f"http://{host}/{quote(name or hidden.subject.kind, safe='.')}"


def _place(text: str) -> tuple[str, str, int, str]:
    """(scheme, host, port, path with its query), without what stands before the host."""
    try:
        parts = urlsplit(text)
        scheme = parts.scheme if parts.scheme in _PORTS else "http"
        port = parts.port or _PORTS[scheme]
    except ValueError:
        return "http", NOT_MADE, _PORTS["http"], "/"
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    return scheme, parts.hostname or NOT_MADE, port, path or "/"


def _bounded(entry: bytes) -> str:
    """A line of history; without the requests where it is too long, and empty where it is too long even so."""
    if len(entry) > MOST_SHOWN:
        document: dict[str, Any] = msgspec.json.decode(entry)
        entry = msgspec.json.encode({**document, "request_original": None, "request_effective": None})
    return entry.decode(errors="replace").strip() if len(entry) <= MOST_SHOWN else ""
