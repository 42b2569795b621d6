"""Forwarded requests on mitmproxy's flows: how they are sent, and what becomes of their responses.

    send              another destination and credential, without the headers that are for one
                      connection only; the body unchanged
    begin_response    every byte at once, with a copy that is read for its usage; a short error is
                      held back until it is whole
    end_response      removes our keys from a provider's error
    finish            reports the end to the mediator
    finish_lost       reports the end of those whose connection is gone, which mitmproxy does not
                      report

Successful responses are never changed. They are held back only where a short answer gives ids of
objects, which must be recorded before the runner has them.
"""

from functools import partial
from urllib.parse import urlsplit

from mitmproxy import http

from claw_contract.content_coding import DecodingError, coding_names, decode_known
from claw_mediate.core.cost import ReceivedAnswer
from claw_mediate.core.http import Forward, build_error_body
from claw_mediate.http.headers import CREDENTIALS, OVERRIDES, raw_headers
from claw_mediate.mediator import Mediator
from claw_mediate.mitm.flow_state import ForwardedRequest, all_states, state_of
from claw_mediate.mitm.gate import guard
from claw_mediate.mitm.passthrough.answer_notes import AnswerNotes
from claw_mediate.mitm.passthrough.answer_tap import EVENT_STREAM, AnswerTap
from claw_mediate.mitm.passthrough.usage_hider import StreamWithoutUsage
from claw_mediate.mitm.response_stream import door
from claw_mediate.mitm.response_stream.layer import MAX_HELD
from claw_mediate.mitm.view.hidden_flows import PROVIDER
from claw_mediate.mitm.view.redacted_message import standard_phrase
from claw_mediate.mitm.view.redaction import unredacted
from claw_mediate.turns.passthrough import PassthroughHandle

_OK, _FIRST_REDIRECT, _FIRST_ERROR = 200, 300, 400
_ASKED = ReceivedAnswer(0, {})
"""A request that was sent, and has no answer yet."""
_RUNNER_LEFT = 499
_UNREACHED = 502
_SHUTTING_DOWN = 503
_MAX_UNPACKED = 8 << 20
_UNPACK_SECONDS = 1.0
"""Limits for an error that is unpacked to be read."""
_HOP_BY_HOP = ("upgrade", "http2-settings", "proxy-connection", "keep-alive")
"""Headers of the runner's connection to us (RFC 9110, 7.6.1)."""
_DROPPED = frozenset(name.encode() for name in (*CREDENTIALS, *OVERRIDES, *_HOP_BY_HOP))
_CONNECTION_OPTIONS = ("close", "keep-alive")
_of_clients: dict[str, set[http.HTTPFlow]] = {}
"""The forwarded requests under way, by the connection that they came on."""
_UNREADABLE = ("unreadable_error", "the provider's error can't be unpacked, and so it is not shown")


def send(flow: http.HTTPFlow, mediator: Mediator, decision: Forward) -> None:
    """Put the decision on the flow; mitmproxy sends it."""
    # The credential goes into what is sent, and not into what is shown.
    with unredacted(flow, "request"):
        _redirect(flow.request, decision)
        _frame(flow.request)

    # The host that the key is for, not the one of the runner's handshake: mitmproxy would ask
    # for that, and trust it.
    flow.server_conn.sni = flow.request.host
    door.set_fallback(flow, _UNREACHED, decision.write_refusal)

    assert isinstance(decision.handle, PassthroughHandle)
    state = state_of(flow)
    state.forwarded = ForwardedRequest(mediator, decision.handle)
    state.verdict = "forward"
    _of_clients.setdefault(flow.client_conn.id, set()).add(flow)
    flow.metadata[PROVIDER] = decision.handle.provider.name


def _redirect(request: http.Request, decision: Forward) -> None:
    """Write the destination, the credential and the body of the decision."""
    _keep_connection_options(request)
    dropped = _DROPPED.union(
        name.lower().encode(errors="surrogateescape") for name in decision.dropped_headers
    )
    kept = (field for field in request.headers.fields if field[0].lower() not in dropped)
    request.headers.fields = (*kept, *raw_headers(decision.credential))

    # Part by part: a path is never read as a part of the authority.
    base = urlsplit(decision.base_url)
    request.scheme = base.scheme
    request.data.port = base.port or (443 if base.scheme == "https" else 80)
    request.host = base.hostname or ""  # this setter also writes the Host header, with the port
    request.path = base.path + decision.target

    if decision.content_type is not None:
        request.headers["content-type"] = decision.content_type
    if decision.body is not None:  # edited, and so it was unpacked
        for name in ("content-encoding", "transfer-encoding", "content-length"):
            request.headers.pop(name, None)
        request.raw_content = decision.body


def _frame(request: http.Request) -> None:
    """Frame a body that has no frame.

    The provider would read what follows it as another request.
    """
    if request.raw_content and not guard.is_framed(request):
        request.headers["content-length"] = str(len(request.raw_content))


def begin_response(flow: http.HTTPFlow) -> None:
    """Handle the head of the response: stream it through a tap, or hold it back if it is short.

    An error is held back because our keys must not be in it. An answer that gives ids of
    objects is held back until they are recorded as the agent's: the runner may name one at
    another proxy as soon as it has it.
    """
    response = flow.response
    assert response is not None
    door.clear_fallback(flow)
    state = state_of(flow)
    assert state.forwarded is not None
    mediator, handle, _ = state.forwarded
    retry_after = response.headers.get("retry-after", "")
    mediator.passthrough.note_status(handle, response.status_code, retry_after)

    # What is to be noted of the answer: its usage, and of a success also its id, if the provider
    # keeps it, and the ids of objects that the provider gives in it.
    is_success = response.status_code < _FIRST_REDIRECT
    is_kept = handle.kept_as is not None and is_success
    on_id = partial(mediator.passthrough.note_id, handle) if is_kept else None
    gives = handle.gives if is_success else None
    on_given = partial(mediator.passthrough.note_objects, handle)
    has_limit = handle.context.admission is not None
    notes = AnswerNotes(on_id, gives, on_given, measures=has_limit)

    # The tap reads it, from a copy.
    codings = coding_names(response.headers.get_all("content-encoding"))
    content_type = response.headers.get("content-type", "")
    tap = AnswerTap(content_type, codings, notes)
    state.forwarded = state.forwarded._replace(tap=tap)

    is_error = response.status_code >= _FIRST_ERROR
    makes_object = gives is not None and not handle.is_dialect and "json" in content_type.lower()
    if (is_error or makes_object) and guard.declared_length(response) <= MAX_HELD:
        state.held_tap = tap
        return

    response.stream = tap
    if handle.hides_usage:
        _hide_usage(flow, tap, codings)

    # Frames of HTTP/2 become chunks: without them the end of the response would be the end of the
    # connection, like a break.
    loses_frames = response.is_http2 and flow.request.http_version == "HTTP/1.1"
    if loses_frames and "content-length" not in response.headers:
        response.headers["transfer-encoding"] = "chunked"


def _hide_usage(flow: http.HTTPFlow, tap: AnswerTap, codings: tuple[str, ...]) -> None:
    """Take the usage that only we asked for out of a stream again.

    The stream is unpacked for that, and its length is not known any more.
    """
    response = flow.response
    assert response is not None
    content_type = response.headers.get("content-type", "")
    if not content_type.lower().startswith(EVENT_STREAM):
        return

    try:
        response.stream = StreamWithoutUsage(tap, codings, partial(_break_off, flow))
    except DecodingError:  # an unknown coding: it goes on as it is
        return

    response.headers.pop("content-encoding", None)
    length = response.headers.pop("content-length", None)
    if length is not None and flow.request.http_version == "HTTP/1.1":
        response.headers["transfer-encoding"] = "chunked"


def _break_off(flow: http.HTTPFlow) -> None:
    if flow.killable:
        flow.kill()


async def end_response(flow: http.HTTPFlow) -> None:
    """Handle a complete response, and finish its request.

    One that was held back is read before it goes on, and an error is cleared of our keys.
    """
    forwarded, response = state_of(flow).forwarded, flow.response
    if forwarded is None or forwarded.tap is None or response is None or response.stream:
        finish(flow, is_whole=True)
        return

    forwarded.tap(response.raw_content or b"")
    forwarded.tap(b"")
    if response.status_code >= _FIRST_ERROR:
        with unredacted(flow, "response"):
            _remove_keys(forwarded.handle, response)
    elif forwarded.handle.gives is not None:
        await forwarded.mediator.passthrough.finish_noting()
    finish(flow, is_whole=True)


def finish(flow: http.HTTPFlow, *, is_whole: bool) -> None:
    """Report to the mediator that a forwarded request has its response, or never will."""
    door.clear_fallback(flow)
    state = state_of(flow)
    if state.forwarded is None:
        return

    mediator, handle, tap = state.forwarded
    state.forwarded = None
    _release(flow)

    response = flow.response
    status = response.status_code if response is not None else _UNREACHED
    if tap is not None:
        answer = tap.received(status)
        body = bytes(tap.body)
    else:
        # The provider gave no response; the flow holds what the runner got instead.
        answer = _no_answer(flow)
        body = (response.data.content or b"") if response is not None else b""
        is_whole = False

    if state.runner_left:
        status = _RUNNER_LEFT
        is_whole = False
    mediator.passthrough.record_end(handle, status, answer, body, whole=is_whole)


def finish_lost(client_id: str) -> None:
    """Report the end of what was forwarded for a runner whose connection is gone for a while.

    mitmproxy connects at most five requests of one runner at a time. Of a request that waits
    for its turn when its runner leaves, it never reports that it was cancelled.
    """
    for flow in [*_of_clients.get(client_id, ())]:
        state_of(flow).runner_left = True
        finish(flow, is_whole=False)


def _release(flow: http.HTTPFlow) -> None:
    flows = _of_clients.get(flow.client_conn.id, set())
    flows.discard(flow)
    if not flows:
        _of_clients.pop(flow.client_conn.id, None)


def has_forwarded(client_id: str) -> bool:
    """Return whether a request that came on this connection is under way to its provider."""
    return client_id in _of_clients


def _no_answer(flow: http.HTTPFlow) -> ReceivedAnswer:
    """Return what came where there was no response.

    A provider that was connected may have worked all the same.
    """
    was_asked = flow.server_conn.timestamp_tcp_setup is not None
    return ReceivedAnswer(0 if was_asked else None, {})


def record_unfinished() -> None:
    """Report all requests that are still under way when the proxy ends, as far as they got."""
    for state in all_states():
        if state.forwarded is None:
            continue

        mediator, handle, tap = state.forwarded
        state.forwarded = None
        answer = tap.received(_OK) if tap is not None else _ASKED
        body = bytes(tap.body) if tap is not None else b""
        mediator.passthrough.record_end(handle, _SHUTTING_DOWN, answer, body, whole=False)


def _keep_connection_options(request: http.Request) -> None:
    """Keep only those Connection options that mitmproxy acts on.

    By others a runner could have a header removed after us, even the key.
    """
    named = [
        option.strip().lower()
        for value in request.headers.get_all("connection")
        for option in value.split(",")
    ]
    options = [option for option in named if option in _CONNECTION_OPTIONS]

    request.headers.pop("connection", None)
    if options:
        request.headers["connection"] = ", ".join(options)


def _remove_keys(handle: PassthroughHandle, response: http.Response) -> None:
    """Remove our keys from an error that repeats them; replace an error that nobody can read.

    Leave any other unchanged.
    """
    redactor = handle.context.redactor
    clear_fields: list[tuple[bytes, bytes]] = []
    for name, value in response.headers.fields:
        line = name + b": " + value
        if redactor.data(line) == line:
            clear_fields.append((name, value))
    response.headers.fields = tuple(clear_fields)
    if redactor.data(response.data.reason) != response.data.reason:
        response.data.reason = standard_phrase(response.status_code)

    packed = response.raw_content
    if not packed:
        return

    codings = coding_names(response.headers.get_all("content-encoding"))
    try:
        body = decode_known(packed, codings, _MAX_UNPACKED, _UNPACK_SECONDS)
        clear = redactor.document(body)
        if clear == body:
            return
    except DecodingError:
        path = handle.context.request.path
        clear = build_error_body(path, response.status_code, *_UNREADABLE)
        response.headers["content-type"] = "application/json"

    response.headers.pop("content-encoding", None)
    response.raw_content = clear
    if "transfer-encoding" not in response.headers:
        response.headers["content-length"] = str(len(clear))
