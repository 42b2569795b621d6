"""Redaction of flows: a flow never holds a secret, and what is sent does.

    heads      credentials become dots before any other addon hears of the flow, and so do known
               secrets in headers and the target; the originals are put back into a copy as the head
               leaves
    bodies     are kept without known secrets, and cut if they are long; what is sent is whole
    streams    are not kept; if an option keeps them (``store_streamed_bodies``), they are cleared
               after they have passed

While nobody observes flows, only headers with credentials are redacted. Originals live as long as
their flow is under way. The addon comes before all scripts, and outlives them
(``docs/spec/inspect.md``, decision 0025).
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Any, Literal

from mitmproxy import ctx, http
from mitmproxy.proxy.layers import http as layers

from claw_contract.redaction.redactor import Redactor
from claw_contract.secret import DOTS, Secret
from claw_mediate.mitm.addon_state import AddonState
from claw_mediate.mitm.flow_state import FlowRedaction, FlowState, Originals, release, state_of
from claw_mediate.mitm.gate import guard
from claw_mediate.mitm.view import hidden_flows
from claw_mediate.mitm.view.redacted_message import (
    has_dots,
    original_fields,
    redact_body,
    redact_head,
    restore,
    shown_tokens,
)

_PLAIN_MESSAGES = ("client ", "server ")
"""The beginnings of messages that name peers only."""
_REDACTED_LOGGERS = ("mitmproxy.proxy.server", "claw_mediate.mitm.gate.egress")
"""Loggers that report what a peer sent."""
_MAX_REPORTED = 4 << 10
"""Characters of such a report.

mitmproxy quotes what it can't read, however long it is, and mitmweb keeps 10,000 reports.
"""


def _redact(redaction: FlowRedaction, message: http.Message) -> Originals:
    return _redact_body(redaction, message, redact_head(message, redaction.heads))


def _redact_rest(
    redaction: FlowRedaction, message: http.Message, originals: Originals
) -> Originals:
    """Redact what is not yet redacted: somebody may observe flows only since a moment ago."""
    if originals.head_searched:
        return _redact_body(redaction, message, originals)
    message.data = restore(message, originals).data
    return _redact(redaction, message)


def _redact_body(
    redaction: FlowRedaction, message: http.Message, originals: Originals
) -> Originals:
    if redaction.heads is not None and not originals.body_searched:
        redact_body(message, originals, redaction.bodies or redaction.heads)
    return originals


def add_secrets(flow: http.HTTPFlow, secrets: Callable[[], Sequence[Secret]]) -> None:
    """Search for the secrets of this agent in the bodies of its flow."""
    redaction = state_of(flow).redaction
    if redaction is None or redaction.heads is None:
        return

    own = secrets()
    redaction.heads = redaction.heads.with_secrets(own)
    redaction.bodies = Redactor(own)


def original_request(flow: http.HTTPFlow) -> http.Request:
    """Return the request as it came in, or is to be sent."""
    redaction = state_of(flow).redaction
    return flow.request if redaction is None else restore(flow.request, redaction.request)


def original_body(flow: http.HTTPFlow) -> bytes:
    """Return the body of the request as it came in."""
    redaction = state_of(flow).redaction
    if redaction is None:
        return flow.request.raw_content or b""
    return redaction.request.own_body(flow.request) or b""


def original_data(flow: http.HTTPFlow, data: bytes) -> bytes:
    """Return what is sent in the place of a body that is shown."""
    redaction = state_of(flow).redaction
    body = redaction.request.body if redaction is not None else None
    if body is None:
        return data

    shown, original = body
    return original if data is shown else data


def is_sendable(flow: http.HTTPFlow) -> bool:
    """Return whether the request has a target that can be sent.

    It is the original, or another one without dots: one that was edited around dots has no
    original.
    """
    path = flow.request.data.path
    redaction = state_of(flow).redaction
    line = redaction.request.line if redaction is not None else None
    return line is None or path == line[0] or not has_dots(path)


@contextmanager
def unredacted(flow: http.HTTPFlow, part: Literal["request", "response"]) -> Iterator[None]:
    """Let the flow hold its real message within the block.

    No other addon must hear of the flow in the block.
    """
    redaction = state_of(flow).redaction or FlowRedaction()
    message = getattr(flow, part)
    message.data = restore(message, getattr(redaction, part)).data
    try:
        yield
    finally:
        setattr(redaction, part, _redact(redaction, message))


def restore_originals(
    flow: http.HTTPFlow, state: FlowState, commands: Iterator[Any], client: Any
) -> Iterator[Any]:
    """Yield the commands of a flow's stream, with the originals in what they send."""
    for command in commands:
        redaction = state.redaction
        if redaction is not None and isinstance(command, layers.SendHttp):
            is_answer = command.connection is client
            originals = redaction.response if is_answer else redaction.request
            _restore_event(flow, state, command.event, originals)
        elif isinstance(command, layers.DropStream):
            _forget(flow, state)

        yield command


_DATA = layers.RequestData, layers.ResponseData
_ENDS = layers.ResponseEndOfMessage, layers.ResponseProtocolError


def _restore_event(flow: http.HTTPFlow, state: FlowState, event: Any, originals: Originals) -> None:
    """Put the originals into what one event sends."""
    if isinstance(event, _DATA):
        if originals.body is not None and event.data is originals.body[0]:
            event.data = originals.body[1]
    elif isinstance(event, layers.RequestHeaders):
        event.request = restore(event.request, originals)
    elif isinstance(event, layers.ResponseHeaders):
        if event.response is flow.response:
            event.response = restore(event.response, originals)
    elif isinstance(event, _ENDS):
        _forget(flow, state)


def _forget(flow: http.HTTPFlow, state: FlowState) -> None:
    if flow.websocket is None:
        state.redaction = None
        release(flow, state)


class RedactionAddon:
    name = "claw-redaction"

    def __init__(self, addon_state: AddonState) -> None:
        self._addon_state = addon_state

    def install(self) -> None:
        """Add this before all scripts, after the addon that checks mitmproxy's own credentials."""
        for name in _REDACTED_LOGGERS:
            logging.getLogger(name).addFilter(self._redact_record)

        # The chain becomes a new list, because the present one may just be iterated over.
        addons = ctx.master.addons
        place = addons.chain.index(self._addon_state.builtin.proxyauth) + 1
        addons.chain = [*addons.chain[:place], addons.register(self), *addons.chain[place:]]

    def configure(self, _updated: set[str]) -> None:
        self._addon_state.options_changed()

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        state = state_of(flow)
        redaction = state.redaction = FlowRedaction()
        if flow.is_replay and not state.is_recorded:
            _prepare_replay(flow)
        if "proxyauth" in flow.metadata:
            flow.metadata["proxyauth"] = (flow.metadata["proxyauth"][0], DOTS)

        heads = self._redactor_if_observed(flow, redaction)
        if heads is not None:
            _refuse_secret_names(flow, heads)
        redaction.request = redact_head(flow.request, heads)

    http_connect = requestheaders

    def request(self, flow: http.HTTPFlow) -> None:
        """Redact the body, which is there or has passed."""
        redaction = state_of(flow).redaction
        if redaction is not None and self._redactor_if_observed(flow, redaction) is not None:
            redaction.request = _redact_rest(redaction, flow.request, redaction.request)

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        redaction = state_of(flow).redaction
        if redaction is None or flow.response is None:
            return

        redactor = self._redactor_if_observed(flow, redaction)
        redaction.response = redact_head(flow.response, redactor)

    def response(self, flow: http.HTTPFlow) -> None:
        """Redact all that is not yet redacted."""
        state = state_of(flow)
        redaction = state.redaction
        if redaction is None:
            return
        redactor = self._redactor_if_observed(flow, redaction)
        if redactor is None:
            return

        redaction.request = _redact_rest(redaction, flow.request, redaction.request)
        if flow.response is not None:
            redaction.response = _redact_rest(redaction, flow.response, redaction.response)
        if flow.error is not None:
            flow.error.msg = _short(redactor.text(flow.error.msg))
        if state.is_recorded:  # nothing of it is ever sent
            _forget(flow, state)

    async def error(self, flow: http.HTTPFlow) -> None:
        self.response(flow)
        state = state_of(flow)
        _forget(flow, state)  # mitmproxy does not always report that a connection was closed
        if state.runner_left:
            await hidden_flows.wait_for_entry(flow)

    def websocket_message(self, flow: http.HTTPFlow) -> None:
        """Keep only the last message, redacted. It is a copy: mitmproxy sends its own message."""
        redaction = state_of(flow).redaction or FlowRedaction()
        socket = flow.websocket
        if socket is None:
            return

        del socket.messages[:-1]
        redactor = self._redactor_if_observed(flow, redaction)
        if redactor is None:
            return

        message = socket.messages[-1]
        clear = redactor.data(message.content)
        if clear != message.content:
            shown = copy(message)
            shown.content = clear
            socket.messages[-1] = shown

    def websocket_end(self, flow: http.HTTPFlow) -> None:
        state = state_of(flow)
        redaction = state.redaction or FlowRedaction()
        state.redaction = None
        release(flow, state)

        socket = flow.websocket
        if socket is None:
            return

        socket.messages.clear()
        redactor = self._redactor_if_observed(flow, redaction)
        if redactor is not None and socket.close_reason:
            socket.close_reason = redactor.text(socket.close_reason)

    def _redact_record(self, record: logging.LogRecord) -> bool:
        """Redact and shorten a log record.

        Of a message that can't be read, mitmproxy logs the bytes.
        """
        if str(record.msg).startswith(_PLAIN_MESSAGES):
            return True

        if record.levelno >= logging.WARNING or self._addon_state.is_observed():
            record.msg = _short(self._addon_state.redactor().text(record.getMessage()))
            record.args = ()
        return True

    def _redactor_if_observed(
        self, flow: http.HTTPFlow, redaction: FlowRedaction
    ) -> Redactor | None:
        """Return the redactor for heads; None while nobody observes flows."""
        if not self._addon_state.is_observed():
            return None
        if redaction.heads is None:
            own_tokens = shown_tokens(restore(flow.request, redaction.request))
            redaction.heads = self._addon_state.redactor().with_secrets(own_tokens)
        return redaction.heads


def _prepare_replay(flow: http.HTTPFlow) -> None:
    """Drop headers with dots, because their originals are gone. Refuse what can't be sent."""
    flow.request.headers.fields = original_fields(flow.request, Originals())
    problem: str | None = None
    if hidden_flows.KIND in flow.metadata:
        problem = "a hidden request is not sent again: claw.replay plays its turn"
    elif has_dots(flow.request.data.path):
        problem = "a request is not sent again without the secret that stood in its URL"

    if problem is not None:
        guard.refuse(flow, 403, "not_replayed", problem)


def _short(report: str) -> str:
    """Return the beginning of a report without secrets."""
    return f"{report[:_MAX_REPORTED]}…" if len(report) > _MAX_REPORTED else report


def _refuse_secret_names(flow: http.HTTPFlow, redactor: Redactor) -> None:
    """Refuse a request whose host, method or SNI contains a secret.

    We cannot show one name and connect to another.
    """
    data, client = flow.request.data, flow.client_conn
    offers = [offer for offer in client.alpn_offers if redactor.data(offer) == offer]
    sni = (client.sni or "").encode(errors="replace")
    names = (data.host.encode(errors="replace"), data.authority, data.method, data.scheme, sni)
    in_a_name = any(redactor.data(name) != name for name in names)
    in_an_offer = len(offers) < len(client.alpn_offers)
    if not in_a_name and not in_an_offer:
        return

    data.host = "redacted.invalid"
    data.authority = b""
    data.method = b"GET"
    data.scheme = b"http"
    client.sni = None
    client.alpn_offers = offers
    guard.refuse(
        flow,
        400,
        "credential_in_url",
        "a credential must not stand in the name of a host or of a method",
    )
