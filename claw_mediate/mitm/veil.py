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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakKeyDictionary

from mitmproxy import ctx, http
from mitmproxy.proxy.layers import http as layers

from claw_contract.secret import DOTS, Redactor
from claw_mediate.mitm import guard, shadow
from claw_mediate.mitm.concealing import Aside, Field, conceal, conceal_body, fields_of, shown_tokens, unveiled

_BEFORE = "proxyauth"
"""Whatever checks credentials itself stands before this part."""
_PLAIN = ("client ", "server ")
"""How messages begin that name peers only."""


@dataclass(slots=True)
class _Kept:
    """What is kept aside of one flow, and what else is secret in it."""

    redactor: Redactor | None = None
    looked_for: bool = False
    """Whether the request, as it came, is without them."""
    request: Aside = field(default_factory=Aside)
    response: Aside = field(default_factory=Aside)


_kept: WeakKeyDictionary[http.HTTPFlow, _Kept] = WeakKeyDictionary()
_NOTHING = Redactor(())


def knows(flow: http.HTTPFlow, redactor: Callable[[], Redactor]) -> None:
    """Whose request this is is known now: these secrets are looked for in its bodies."""
    if (kept := _kept.get(flow)) is not None and shadow.looked_on():
        kept.redactor = redactor()


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
    return (kept.request.body if kept is not None else None) or flow.request.raw_content or b""


@contextmanager
def lifted(flow: http.HTTPFlow) -> Iterator[None]:
    """The flow holds its real request meanwhile. Nobody else must be told of it before that is over."""
    kept = _kept.setdefault(flow, _Kept())
    flow.request.data, kept.request = unveiled(flow.request, kept.request).data, Aside()
    try:
        yield
    finally:
        conceal(flow.request, kept.request, kept.redactor)
        if kept.redactor is not None:
            kept.request.body = conceal_body(flow.request, kept.redactor)


def own_fields(flow: http.HTTPFlow, response: http.Response) -> list[Field]:
    """The headers of a response as they came in, in the order of those that are shown."""
    kept = _kept.get(flow)
    return [*response.headers.fields] if kept is None else fields_of(response, kept.response)


def on_the_wire(flow: http.HTTPFlow, commands: Iterator[Any], client: Any) -> Iterator[Any]:
    """What a stream says to its peers, with what is kept aside of it."""
    for command in commands:
        kept = _kept.get(flow)
        if kept is None or not isinstance(command, layers.SendHttp):
            yield command
            continue
        event, aside = command.event, kept.response if command.connection is client else kept.request
        if isinstance(event, layers.RequestHeaders):
            event = replace(event, request=unveiled(event.request, aside))
        elif isinstance(event, layers.ResponseHeaders) and event.response is flow.response:
            event = replace(event, response=unveiled(event.response, aside))
        elif isinstance(event, layers.RequestData | layers.ResponseData) and aside.body is not None:
            event, aside.body = replace(event, data=aside.body), None
        elif isinstance(event, layers.ResponseEndOfMessage | layers.ResponseProtocolError):
            _kept.pop(flow, None)
        command.event = event
        yield command


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
        logging.getLogger("mitmproxy.proxy.server").addFilter(self._told)
        addons.chain = [*addons.chain[:place], addons.register(self), *addons.chain[place:]]

    def configure(self, _updated: set[str]) -> None:
        shadow.looked_on.cache_clear()

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        kept = _kept[flow] = _Kept()
        if flow.is_replay:
            _once_more(flow)
        if "proxyauth" in flow.metadata:
            flow.metadata["proxyauth"] = (flow.metadata["proxyauth"][0], DOTS)
        if shadow.looked_on():
            kept.redactor = self.known().including(shown_tokens(flow.request))
            _keep_out_of_names(flow, kept.redactor)
        conceal(flow.request, kept.request, kept.redactor)

    http_connect = requestheaders

    def request(self, flow: http.HTTPFlow) -> None:
        """The body is there, or has passed."""
        kept = _kept.get(flow) or _Kept()
        if (redactor := self._secrets(kept)) is not None:
            body = conceal_body(flow.request, redactor)
            kept.request.body = None if flow.request.stream else body
            kept.looked_for = True

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        kept, response = _kept.get(flow), flow.response
        if kept is not None and response is not None:
            conceal(response, kept.response, self._secrets(kept))

    def response(self, flow: http.HTTPFlow) -> None:
        """A body that is not a stream's is an answer of ours, or has its own redaction before it goes on (``forward``)."""
        kept, response = _kept.get(flow), flow.response
        if kept is None or (redactor := self._secrets(kept)) is None:
            return
        if not kept.looked_for:  # nobody looked on when the request came
            conceal(flow.request, Aside(), redactor)
            conceal_body(flow.request, redactor)
        if response is not None and response.stream:
            conceal_body(response, redactor)
        if flow.error is not None:
            flow.error.msg = redactor.text(flow.error.msg)

    async def error(self, flow: http.HTTPFlow) -> None:
        self.response(flow)
        if guard.LEFT in flow.metadata:
            await shadow.settled(flow)

    def websocket_message(self, flow: http.HTTPFlow) -> None:
        """Like all streams: what has passed is not kept."""
        if flow.websocket is not None:
            del flow.websocket.messages[:-1]

    def websocket_end(self, flow: http.HTTPFlow) -> None:
        if flow.websocket is not None:
            flow.websocket.messages.clear()

    def _told(self, record: logging.LogRecord) -> bool:
        """Of a message that can't be read, mitmproxy's own log tells the bytes."""
        if not str(record.msg).startswith(_PLAIN) and (record.levelno >= logging.WARNING or shadow.looked_on()):
            record.msg = self.known().text(str(record.msg))
        return True

    def _secrets(self, kept: _Kept) -> Redactor | None:
        """What is looked for; None where nobody looks on."""
        if not shadow.looked_on():
            return None
        kept.redactor = kept.redactor or self.known()
        return kept.redactor


def _once_more(flow: http.HTTPFlow) -> None:
    """A flow that an operator sends again is decided about anew. It holds no credential; a hidden one is never sent."""
    for noted in (guard.VERDICT, guard.LEFT):
        flow.metadata.pop(noted, None)
    if shadow.KIND in flow.metadata:
        guard.refuse(flow, 403, "not_replayed", "a hidden request is not sent again: claw.replay plays its turn")


def _keep_out_of_names(flow: http.HTTPFlow, redactor: Redactor) -> None:
    """What is connected to can't be another name than what is shown: one that holds a secret is asked for nothing."""
    data = flow.request.data
    if any(redactor.data(said) != said for said in (data.host.encode(errors="replace"), data.authority, data.method)):
        data.host, data.authority, data.method = "redacted.invalid", b"", b"GET"
        guard.refuse(flow, 400, "credential_in_url", "a credential must not stand in the name of a host or of a method")
