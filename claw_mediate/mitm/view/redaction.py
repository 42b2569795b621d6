"""What of a flow is on the wire only: whoever looks at a flow, or saves it, sees no secret (spec/inspect.md).

    heads      credentials give way to dots before any other part is told of the flow, and known secrets wherever they stand
               in a header or the target; what is sent has them back, as its head leaves
    bodies     without known secrets, and cut where they are long; what is sent is whole
    streams    are not kept; where an option keeps them (``store_streamed_bodies``), they are cleared once they have passed

Only credentials' headers are looked for where nobody looks on. What is kept aside lives as long as its flow is under way, and
no longer. The addon stands before all scripts, and outlives them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Literal
from weakref import WeakKeyDictionary

from mitmproxy import ctx, http
from mitmproxy.proxy.layers import http as layers

from claw_contract.redaction.redactor import Redactor
from claw_contract.secret import DOTS, Secret
from claw_mediate.mitm.gate import guard
from claw_mediate.mitm.view import hidden_flows
from claw_mediate.mitm.view.redacted_message import (
    Aside,
    conceal,
    conceal_body,
    fields_of,
    has_dots,
    shown_tokens,
    unveiled,
)

_BEFORE = "proxyauth"
"""Whatever checks credentials itself stands before this part."""
_PLAIN = ("client ", "server ")
"""How messages begin that name peers only."""
_TELL_NAMES = ("mitmproxy.proxy.server", "claw_mediate.mitm.gate.egress")
"""Whose log tells what a peer said."""


@dataclass(slots=True)
class _Kept:
    """What is kept aside of one flow, and what else is secret in it."""

    heads: Redactor | None = None
    """All that is known, and what the request shows as a credential; None while nobody looks on."""
    bodies: Redactor | None = None
    """What concerns whoever asks. Hundreds of values in each body would cost more than the request."""
    request: Aside = field(default_factory=Aside)
    response: Aside = field(default_factory=Aside)

    def conceal(self, message: http.Message) -> Aside:
        """Of a message as it is."""
        return self.body(message, conceal(message, self.heads))

    def rest(self, message: http.Message, aside: Aside) -> Aside:
        """What is still to be concealed: there may be somebody who looks on since a moment ago."""
        if aside.head_searched:
            return self.body(message, aside)
        message.data = unveiled(message, aside).data
        return self.conceal(message)

    def body(self, message: http.Message, aside: Aside) -> Aside:
        if self.heads is not None and not aside.body_searched:
            conceal_body(message, aside, self.bodies or self.heads)
        return aside


_kept: WeakKeyDictionary[http.HTTPFlow, _Kept] = WeakKeyDictionary()
_NOTHING = Redactor(())


def knows(flow: http.HTTPFlow, secrets: Callable[[], Sequence[Secret]]) -> None:
    """Whose request this is is known now: these secrets are looked for in its bodies."""
    if (kept := _kept.get(flow)) is not None and kept.heads is not None:
        found = secrets()
        kept.heads, kept.bodies = kept.heads.with_secrets(found), Redactor(found)


def keeps(flow: http.HTTPFlow) -> bool:
    """Whether anything of this flow is kept aside."""
    return flow in _kept


def real(flow: http.HTTPFlow) -> http.Request:
    """The request as it came in, or is to be sent."""
    kept = _kept.get(flow)
    return flow.request if kept is None else unveiled(flow.request, kept.request)


def body(flow: http.HTTPFlow) -> bytes:
    """The body of the request as it came in."""
    kept = _kept.get(flow)
    return (flow.request.raw_content if kept is None else kept.request.own_body(flow.request)) or b""


def is_sendable(flow: http.HTTPFlow) -> bool:
    """Whether the target is what it was, or another one: not if it was put together from dots."""
    kept, path = _kept.get(flow), flow.request.data.path
    line = kept.request.line if kept is not None else None
    return line is None or path == line[0] or not has_dots(path)


@contextmanager
def lifted(flow: http.HTTPFlow, what: Literal["request", "response"]) -> Iterator[None]:
    """The flow holds its real message meanwhile. Nobody else must be told of it before that is over."""
    kept, message = _kept.get(flow) or _Kept(), getattr(flow, what)
    message.data = unveiled(message, getattr(kept, what)).data
    try:
        yield
    finally:
        setattr(kept, what, kept.conceal(message))


def on_the_wire(flow: http.HTTPFlow, commands: Iterator[Any], client: Any) -> Iterator[Any]:
    """What a stream says to its peers, with what is kept aside of it."""
    for command in commands:
        kept = _kept.get(flow)
        if kept is not None and isinstance(command, layers.SendHttp):
            event, aside = command.event, kept.response if command.connection is client else kept.request
            if isinstance(event, layers.RequestHeaders):
                event.request = unveiled(event.request, aside)
            elif isinstance(event, layers.ResponseHeaders):
                if event.response is flow.response:
                    event.response = unveiled(event.response, aside)
            elif isinstance(event, layers.RequestData | layers.ResponseData):
                if aside.body is not None and event.data is aside.body[0]:
                    event.data = aside.body[1]
            elif isinstance(event, layers.ResponseEndOfMessage | layers.ResponseProtocolError):
                _over(flow)
        elif isinstance(command, layers.DropStream):
            _over(flow)
        yield command


def _over(flow: http.HTTPFlow) -> None:
    """Nothing more is sent of it, but what a WebSocket has to say."""
    if flow.websocket is None:
        _kept.pop(flow, None)


class Veil:
    """The addon."""

    name = "claw-veil"

    def __init__(self) -> None:
        self.known: Callable[[], Redactor] = lambda: _NOTHING
        """All secrets of this pod, told by the script; they stay known when it is gone."""

    def install(self) -> None:
        """Before all scripts. A list of its own: the one that is there may just be gone through."""
        addons = ctx.master.addons
        place = addons.chain.index(addons.get(_BEFORE)) + 1
        for name in _TELL_NAMES:
            logging.getLogger(name).addFilter(self._told)
        addons.chain = [*addons.chain[:place], addons.register(self), *addons.chain[place:]]

    def configure(self, _updated: set[str]) -> None:
        hidden_flows.looked_on.cache_clear()

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        kept = _kept[flow] = _Kept()
        if flow.is_replay and not guard.is_recorded(flow):
            _once_more(flow)
        if "proxyauth" in flow.metadata:
            flow.metadata["proxyauth"] = (flow.metadata["proxyauth"][0], DOTS)
        if (heads := self._looks(flow, kept)) is not None:
            _keep_out_of_names(flow, heads)
        kept.request = conceal(flow.request, heads)

    http_connect = requestheaders

    def request(self, flow: http.HTTPFlow) -> None:
        """The body is there, or has passed."""
        if (kept := _kept.get(flow)) is not None and self._looks(flow, kept) is not None:
            kept.request = kept.rest(flow.request, kept.request)

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        kept, response = _kept.get(flow), flow.response
        if kept is not None and response is not None:
            kept.response = conceal(response, self._looks(flow, kept))

    def response(self, flow: http.HTTPFlow) -> None:
        """All that is still to be concealed."""
        kept, response = _kept.get(flow), flow.response
        if kept is None or (redactor := self._looks(flow, kept)) is None:
            return
        kept.request = kept.rest(flow.request, kept.request)
        if response is not None:
            kept.response = kept.rest(response, kept.response)
        if flow.error is not None:
            flow.error.msg = redactor.text(flow.error.msg)
        if guard.is_recorded(flow):  # nothing of it is ever sent
            _over(flow)

    async def error(self, flow: http.HTTPFlow) -> None:
        self.response(flow)
        _over(flow)  # of a connection that was closed, mitmproxy does not always say so
        if guard.LEFT in flow.metadata:
            await hidden_flows.settled(flow)

    def websocket_message(self, flow: http.HTTPFlow) -> None:
        """Like all streams: what has passed is not kept. What is sent is mitmproxy's own message, of which this is a copy."""
        kept, socket = _kept.get(flow) or _Kept(), flow.websocket
        if socket is None:
            return
        del socket.messages[:-1]
        if (redactor := self._looks(flow, kept)) is not None:
            said = socket.messages[-1]
            if (clear := redactor.data(said.content)) != said.content:
                socket.messages[-1] = copy(said)
                socket.messages[-1].content = clear

    def websocket_end(self, flow: http.HTTPFlow) -> None:
        kept = _kept.pop(flow, None) or _Kept()
        if flow.websocket is not None:
            flow.websocket.messages.clear()
            if (redactor := self._looks(flow, kept)) is not None and flow.websocket.close_reason:
                flow.websocket.close_reason = redactor.text(flow.websocket.close_reason)

    def _told(self, record: logging.LogRecord) -> bool:
        """Of a message that can't be read, mitmproxy's own log tells the bytes."""
        if not str(record.msg).startswith(_PLAIN) and (record.levelno >= logging.WARNING or hidden_flows.looked_on()):
            record.msg, record.args = self.known().text(record.getMessage()), ()
        return True

    def _looks(self, flow: http.HTTPFlow, kept: _Kept) -> Redactor | None:
        """What is looked for in a head; None where nobody looks on."""
        if not hidden_flows.looked_on():
            return None
        if kept.heads is None:
            kept.heads = self.known().with_secrets(shown_tokens(unveiled(flow.request, kept.request)))
        return kept.heads


def _once_more(flow: http.HTTPFlow) -> None:
    """A flow that an operator sends again is decided about anew. It holds no credential; a hidden one is never sent."""
    for noted in (guard.VERDICT, guard.LEFT):
        flow.metadata.pop(noted, None)
    flow.request.headers.fields = fields_of(flow.request, Aside())  # none with dots: what they stand for is gone
    if hidden_flows.KIND in flow.metadata:
        guard.refuse(flow, 403, "not_replayed", "a hidden request is not sent again: claw.replay plays its turn")
    elif has_dots(flow.request.data.path):
        guard.refuse(flow, 403, "not_replayed", "a request is not sent again without the secret that stood in its URL")


def _keep_out_of_names(flow: http.HTTPFlow, redactor: Redactor) -> None:
    """What is connected to can't be another name than what is shown: one that holds a secret is asked for nothing."""
    data, client = flow.request.data, flow.client_conn
    offered = [offer for offer in client.alpn_offers if redactor.data(offer) == offer]
    sni = (client.sni or "").encode(errors="replace")
    said = (data.host.encode(errors="replace"), data.authority, data.method, data.scheme, sni)
    if any(redactor.data(name) != name for name in said) or len(offered) < len(client.alpn_offers):
        data.host, data.authority, data.method, data.scheme = "redacted.invalid", b"", b"GET", b"http"
        client.sni, client.alpn_offers = None, offered
        guard.refuse(flow, 400, "credential_in_url", "a credential must not stand in the name of a host or of a method")
