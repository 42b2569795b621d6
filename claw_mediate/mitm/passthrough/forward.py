"""A request that is sent on as it is: how it is put on mitmproxy's flow, and what becomes of its response.

    send        another destination and credential, and nothing that concerns one connection only; the body as it came
    responding  every byte at once, with a copy read for its usage; a short error is held back until it is whole
    responded   what a provider's error says of our keys is not told
    over        to the mediator: how it ended

Successes are never changed, and never held back.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit

from mitmproxy import http

from claw_mediate.core.error_bodies import build_error_body
from claw_mediate.core.http import Forward
from claw_mediate.http.content_coding import DecodingError, codings, readable
from claw_mediate.http.headers import CREDENTIALS, as_read
from claw_mediate.mediator import Mediator
from claw_mediate.mitm.gate import guard
from claw_mediate.mitm.passthrough.usage_tap import Tap
from claw_mediate.mitm.response_stream import door
from claw_mediate.mitm.response_stream.layer import MOST_HELD
from claw_mediate.mitm.view import redaction as veil
from claw_mediate.mitm.view.redacted_message import standard_phrase
from claw_mediate.turns.passthrough import PassthroughHandle

_ERROR = 400
_LEFT = 499
_UNREACHED = 502
_STOPPED = 503
_MOST_UNPACKED, _SECONDS = 8 << 20, 1.0
"""What an error is unpacked to, to be read."""
_ONE_CONNECTIONS = ("upgrade", "http2-settings", "proxy-connection", "keep-alive")
"""Headers that concern the runner's connection to us (RFC 9110, 7.6.1)."""
_GONE = frozenset(name.encode() for name in (*CREDENTIALS, *_ONE_CONNECTIONS))
_OPTIONS = ("close", "keep-alive")
_UNREADABLE = ("unreadable_error", "the provider's error can't be unpacked, and so it is not shown")


class Forwarded(NamedTuple):
    """A request under way."""

    mediator: Mediator
    ticket: PassthroughHandle
    tap: Tap | None = None


_under_way: dict[str, Forwarded] = {}
"""Here, and not in the addon: a script that is reloaded between two hooks of a request must not lose it."""


def send(flow: http.HTTPFlow, mediator: Mediator, decision: Forward) -> None:
    """Put the decision on the flow; mitmproxy sends it."""
    with veil.lifted(flow, "request"):  # the credential goes into what is sent, and not into what is shown
        _redirect(flow.request, decision)
        frame(flow.request)
    # Whom the key is for, and not what the runner's handshake named: mitmproxy would ask for that, and trust it.
    flow.server_conn.sni = flow.request.host
    door.if_unreachable(flow, _UNREACHED, decision.write_refusal)
    assert isinstance(decision.handle, PassthroughHandle)
    _under_way[flow.id] = Forwarded(mediator, decision.handle)
    guard.metadata(flow, "forward", provider=decision.handle.provider.name)


def _redirect(request: http.Request, decision: Forward) -> None:
    _keep_options(request)
    gone = _GONE.union(name.lower().encode(errors="surrogateescape") for name in decision.dropped_headers)
    kept = (field for field in request.headers.fields if field[0].lower() not in gone)
    request.headers.fields = (*kept, *as_read(decision.credential))
    # Part by part: a path is never read as a part of the authority.
    base = urlsplit(decision.base_url)
    request.scheme = base.scheme
    request.data.port = base.port or (443 if base.scheme == "https" else 80)
    request.host = base.hostname or ""  # which says the port of it, too
    request.path = base.path + decision.target
    if decision.body is not None:  # edited, and so it was unpacked
        for name in ("content-encoding", "transfer-encoding", "content-length"):
            request.headers.pop(name, None)
        request.raw_content = decision.body


def frame(request: http.Request) -> None:
    """Tell the provider where the body ends: what lies behind an unframed one would be a request of its own."""
    if request.raw_content and not guard.is_framed(request):
        request.headers["content-length"] = str(len(request.raw_content))


def responding(flow: http.HTTPFlow) -> None:
    """The head of the response is there."""
    assert flow.response is not None
    door.settled(flow)
    forwarded, response = _under_way[flow.id], flow.response
    forwarded.mediator.forwarding.answered(
        forwarded.ticket, response.status_code, response.headers.get("retry-after", "")
    )
    tap = Tap(response.headers.get("content-type", ""), codings(response.headers.get_all("content-encoding")))
    _under_way[flow.id] = forwarded._replace(tap=tap)
    if response.status_code >= _ERROR and _declared(response) <= MOST_HELD:
        door.hold(flow, tap)
        return
    response.stream = tap
    if response.is_http2 and flow.request.http_version == "HTTP/1.1" and "content-length" not in response.headers:
        # It came in frames; without chunks its end would be the end of the connection, like a break.
        response.headers["transfer-encoding"] = "chunked"


def responded(flow: http.HTTPFlow) -> None:
    """The response is whole. One that streamed has gone; one that was held back goes now."""
    forwarded, response = _under_way.get(flow.id), flow.response
    if forwarded is not None and forwarded.tap is not None and response is not None and not response.stream:
        forwarded.tap(response.raw_content or b"")
        forwarded.tap(b"")
        with veil.lifted(flow, "response"):
            _keep_keys_out(forwarded.ticket, response)
    over(flow, whole=True)


def over(flow: http.HTTPFlow, *, whole: bool) -> None:
    """A forwarded request has had its answer, or never will."""
    door.settled(flow)
    forwarded = _under_way.pop(flow.id, None)
    if forwarded is None:
        return
    mediator, ticket, tap = forwarded
    status = flow.response.status_code if flow.response is not None else _UNREACHED
    if flow.metadata.get(guard.LEFT):
        status, whole = _LEFT, False
    if tap is None:  # the provider gave no response; what the runner was told is in the flow
        body = flow.response.data.content or b"" if flow.response is not None else b""
        mediator.forwarding.over(ticket, status, {}, body, whole=False)
    else:
        mediator.forwarding.over(ticket, status, tap.usage, bytes(tap.body), whole=whole)


def cut_off() -> None:
    """The proxy ends: what is still under way is recorded as far as it got."""
    for mediator, ticket, tap in _under_way.values():
        usage, body = (tap.usage, bytes(tap.body)) if tap is not None else ({}, b"")
        mediator.forwarding.over(ticket, _STOPPED, usage, body, whole=False)
    _under_way.clear()


def _keep_options(request: http.Request) -> None:
    """Of Connection, what mitmproxy goes by. A runner could have any header removed behind us with it, our key's too."""
    named = [option.strip().lower() for value in request.headers.get_all("connection") for option in value.split(",")]
    options = [option for option in named if option in _OPTIONS]
    request.headers.pop("connection", None)
    if options:
        request.headers["connection"] = ", ".join(options)


def _declared(response: http.Response) -> int:
    """The length that the head tells, which mitmproxy has checked; 0: it tells none."""
    return int(response.headers.get("content-length", "0"))


def _keep_keys_out(ticket: PassthroughHandle, response: http.Response) -> None:
    """An error may say our key back; only then it is changed, or where nobody can say what a runner will read in it."""
    redactor = ticket.context.redactor
    fields = response.headers.fields
    response.headers.fields = tuple(each for each in fields if redactor.data(told := b": ".join(each)) == told)
    if redactor.data(response.data.reason) != response.data.reason:
        response.data.reason = standard_phrase(response.status_code)
    if not (packed := response.raw_content):
        return
    try:
        body = readable(packed, codings(response.headers.get_all("content-encoding")), _MOST_UNPACKED, _SECONDS)
        clear = redactor.document(body)
    except DecodingError:
        body, clear = packed, build_error_body(ticket.context.request.path, response.status_code, *_UNREADABLE)
        response.headers["content-type"] = "application/json"
    if clear != body:
        response.headers.pop("content-encoding", None)
        response.raw_content = clear
        if "transfer-encoding" not in response.headers:
            response.headers["content-length"] = str(len(clear))
