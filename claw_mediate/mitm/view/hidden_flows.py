"""Hidden requests as flows of their own: each round of the model and each tool call.

    who hears of them   the view, the dumper, and what saves flows; never a script, nor an addon
                        that changes flows
    when                a flow is there as soon as it is asked, and has its response later
    the parent          the flow of the runner's request: it is shown with the provider that is
                        asked, and gets the turn's line of history when the turn is over

While nobody observes flows, none is made. Metadata is plain values, because flows are copied and
saved with it (``docs/spec/inspect.md``, decision 0025).
"""

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
from claw_mediate.http.headers import raw_headers
from claw_mediate.mitm.addon_state import AddonState
from claw_mediate.mitm.flow_state import flows_awaiting, state_of

_log = logging.getLogger(__name__)

PARENT, TURN, AGENT, ENTRY = "claw.parent", "claw.turn", "claw.agent", "claw.entry"
KIND, ROUND, TOOL, PROVIDER = "claw.kind", "claw.round", "claw.tool", "claw.provider"
DUPLICATE, REPLAYED, LATENCY = "claw.duplicate", "claw.replayed", "claw.latency_ms"
SERVER = "claw.server"
"""The name that an MCP server gives itself, for a call over MCP."""
MARKS = {"turn": ":llama:", "model": ":robot:", "tool": ":wrench:"}
MAX_SHOWN = 4 << 20
"""Bytes that are kept of a body, and of a line of history."""
NOT_MADE, _RECORDED = "not-made.invalid", "recorded.invalid"
"""Hosts of requests that were not made: such names never resolve (RFC 2606)."""
FAILED = "cllama: "
"""The text before the reason why there was no response."""
_MAX_NAME_LENGTH = 128
"""The most characters of a tool's name: a model may invent one of any length."""
_NOT_PRINTABLE = "\N{REPLACEMENT CHARACTER}"
"""In the place of a character of such a name that may move a terminal's cursor."""
_PORTS = {"http": 80, "https": 443}
_ENTRY_SECONDS = 1.0


def observe(parent: http.HTTPFlow, addon_state: AddonState) -> RequestObserver | None:
    """Return the observer of this flow's request; None while nobody observes flows."""
    return _ParentObserver(parent, addon_state) if addon_state.is_observed() else None


def stop_waiting(parent: http.HTTPFlow) -> None:
    """Note that the runner has its response, or has left."""
    state_of(parent).awaited_turn = None


async def wait_for_entry(parent: http.HTTPFlow) -> None:
    """Wait a moment for the line of history of a turn that its last runner has left.

    It is saved with the flow.
    """
    turn_id = parent.metadata.get(TURN)
    if turn_id is None or flows_awaiting(turn_id) or ENTRY in parent.metadata:
        return

    state = state_of(parent)
    state.entry_written = asyncio.Event()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(state.entry_written.wait(), _ENTRY_SECONDS)
    state.entry_written = None


def _fail_silently[**P, T](otherwise: T) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Wrap a method that shows a turn: its failure is logged, and must not harm the turn."""

    def wrap(show: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(show)
        def safe(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return show(*args, **kwargs)
            except Exception as error:  # noqa: BLE001
                _log.error("a turn can't be shown: %s", type(error).__name__, exc_info=True)
                return otherwise

        return safe

    return wrap


class _Notifier:
    """Notifies the observers of a flow, and nobody else."""

    def __init__(self, addon_state: AddonState) -> None:
        self._addon_state = addon_state

    def _notify(self, *events: hooks.Hook) -> None:
        for event in events:
            for observer in self._addon_state.observers:
                with addonmanager.safecall():  # an observer's failure must not harm the turn
                    ctx.master.addons.invoke_addon_sync(observer, event)


class _ParentObserver(_Notifier):
    """Observes a runner's request, which may begin a turn or join one."""

    def __init__(self, parent: http.HTTPFlow, addon_state: AddonState) -> None:
        super().__init__(addon_state)
        self._flow = parent

    @_fail_silently(None)
    def on_turn(self, turn_id: str, agent_id: str) -> None:
        self._flow.metadata |= {TURN: turn_id, AGENT: agent_id}
        self._flow.comment = f"claw {turn_id} of {agent_id}"
        self._flow.marked = self._flow.marked or MARKS["turn"]
        state_of(self._flow).awaited_turn = turn_id
        self._notify(hooks.UpdateHook([self._flow]))

    @_fail_silently(NO_EXCHANGE_OBSERVER)
    def on_request(self, hidden: HiddenRequest) -> ExchangeObserver:
        if hidden.subject.kind == "model" and hidden.request.url:
            self._show_provider(hidden.request.url)
        return _HiddenFlow(self._flow, hidden, self._addon_state)

    @_fail_silently(None)
    def on_end(self, entry: bytes) -> None:
        """Give the line of history to all flows that wait for the turn.

        Some may have joined it after this one left.
        """
        turn_id = self._flow.metadata.get(TURN)
        flows = flows_awaiting(turn_id) if turn_id is not None else []
        if self._flow not in flows:
            flows.append(self._flow)

        text = _bounded(entry)
        for each in flows:
            state = state_of(each)
            state.awaited_turn = None
            each.metadata[ENTRY] = text
            if state.entry_written is not None:
                state.entry_written.set()
        self._notify(hooks.UpdateHook(flows))

    def _show_provider(self, asked: str) -> None:
        """Show the provider that is asked as the host of a request to the base URL."""
        if not isinstance(self._flow.client_conn.proxy_mode, ReverseMode):
            return

        scheme, host, port, _ = _place(asked)
        request = self._flow.request
        if (request.scheme, request.data.host, request.data.port) != (scheme, host, port):
            request.scheme = scheme
            request.data.port = port
            request.host = host
            self._notify(hooks.UpdateHook([self._flow]))


class _HiddenFlow(_Notifier):
    def __init__(
        self, parent: http.HTTPFlow, hidden: HiddenRequest, addon_state: AddonState
    ) -> None:
        super().__init__(addon_state)
        self._started = time.monotonic()
        self._flow = _flow(parent, hidden)
        self._notify(HttpRequestHeadersHook(self._flow), HttpRequestHook(self._flow))

    @_fail_silently(None)
    def on_response(self, said: ResponseInfo) -> None:
        now = time.time()
        length = len(said.body) if said.size is None else said.size
        fields = raw_headers([("content-type", said.content_type), ("content-length", str(length))])
        reason = RESPONSES.get(said.status, "").encode()
        content = said.body[:MAX_SHOWN]
        self._flow.response = http.Response(
            b"HTTP/1.1", said.status, reason, http.Headers(fields), content, None, now, now
        )
        self._end(HttpResponseHeadersHook(self._flow), HttpResponseHook(self._flow))

    @_fail_silently(None)
    def on_failure(self, why: str) -> None:
        self._flow.error = flow.Error(FAILED + why)
        self._end(HttpErrorHook(self._flow))

    def _end(self, *events: hooks.Hook) -> None:
        self._flow.live = False
        self._flow.metadata[LATENCY] = round((time.monotonic() - self._started) * 1000)
        self._notify(*events)


def _flow(parent: http.HTTPFlow, hidden: HiddenRequest) -> http.HTTPFlow:
    """Return the flow of a hidden request, below that of its runner."""
    about = hidden.subject
    is_model = about.kind == "model"
    name = "".join(
        each if each.isprintable() else _NOT_PRINTABLE for each in about.name[:_MAX_NAME_LENGTH]
    )
    now = time.time()

    asked = hidden.request.url or _url_of_no_request(hidden, name)
    scheme, host, port, path = _place(asked)
    server = connection.Server(address=(host, port), timestamp_start=now)
    child = http.HTTPFlow(parent.client_conn, server)
    child.request = http.Request(
        host,
        port,
        hidden.request.method.encode(),
        scheme.encode(),
        b"",
        path.encode(errors="surrogateescape"),
        b"HTTP/1.1",
        _headers(hidden.request, url.hostport(scheme, host, port)),
        hidden.request.body[:MAX_SHOWN],
        None,
        now,
        now,
    )
    child.live = True
    child.marked = MARKS[about.kind]

    what = "model" if is_model else name
    child.comment = f"claw {what} round {about.round} of {hidden.turn_id} by {hidden.agent_id}"
    child.metadata |= {
        PARENT: parent.id,
        TURN: hidden.turn_id,
        AGENT: hidden.agent_id,
        KIND: about.kind,
        ROUND: about.round,
        PROVIDER if is_model else TOOL: name,
        DUPLICATE: about.duplicate,
        REPLAYED: about.replayed,
    }
    if hidden.request.server:
        child.metadata[SERVER] = hidden.request.server
    return child


def _headers(asked: RequestInfo, authority: str) -> http.Headers:
    fields = list(raw_headers([("host", authority), *asked.headers]))
    if asked.body:
        fields.append((b"content-length", b"%d" % len(asked.body)))
    return http.Headers(fields)


def _url_of_no_request(hidden: HiddenRequest, name: str) -> str:
    host = _RECORDED if hidden.subject.replayed else NOT_MADE
    return f"http://{host}/{quote(name or hidden.subject.kind, safe='.')}"


def _place(text: str) -> tuple[str, str, int, str]:
    """Return (scheme, host, port, path with its query) of a URL, without any user information."""
    try:
        parts = urlsplit(text)
        scheme = parts.scheme if parts.scheme in _PORTS else "http"
        port = parts.port or _PORTS[scheme]
    except ValueError:
        return "http", NOT_MADE, _PORTS["http"], "/"

    path = parts.path + (f"?{parts.query}" if parts.query else "")
    return scheme, parts.hostname or NOT_MADE, port, path or "/"


def _bounded(entry: bytes) -> str:
    """Return a line of history; without its requests if it is too long.

    Return "" if it is too long even so.
    """
    if len(entry) > MAX_SHOWN:
        document: dict[str, Any] = msgspec.json.decode(entry, type=dict[str, msgspec.Raw])
        document["request_original"] = None
        document["request_effective"] = None
        entry = msgspec.json.encode(document)
    if len(entry) > MAX_SHOWN:
        return ""
    return entry.decode(errors="replace").strip()
