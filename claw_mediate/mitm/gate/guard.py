"""The guard: no governed request leaves without a verdict.

mitmproxy fails open: a hook that raises, or a script that breaks on hot reload or is deleted, lets
the request out unchanged. So the guard is added to the master itself and outlives the script, every
deciding hook is wrapped in ``fail_closed``, and a governed request without a verdict is answered
here (``docs/spec/mediation.md`` section 2, decision 0004).
"""

import functools
import logging
import re
from collections.abc import Awaitable, Callable

from mitmproxy import http

from claw_mediate.core.http import RunnerResponse, build_error_body, respond
from claw_mediate.mitm import options
from claw_mediate.mitm.addon_state import AddonState
from claw_mediate.mitm.body_bytes import Limit
from claw_mediate.mitm.flow_state import is_recorded, state_of

TOO_LARGE = (
    413,
    "request_too_large",
    "the body of this request is larger than the proxy reads (body_size_limit)",
)
_LARGER_THAN_ALL = (
    413,
    "request_too_large",
    "the body of this request is larger than all that an agent may send at once",
)
_AGENT_IS_FULL = (
    429,
    "bytes_in_flight",
    "this agent's requests under way are too large together; ask again when one is answered",
)
_PROCESS_IS_FULL = (
    503,
    "bytes_in_flight",
    "all requests under way are too large together; ask again later",
)
_TOO_MANY_CONNECTIONS = (
    429,
    "too_many_connections",
    "this agent has too many connections, or requests under way; ask again when one is answered",
)
_RETRY_SECONDS = "2"
DOTTED_URL = (
    400,
    "credential_in_url",
    "the URL was edited where it shows dots in the place of a credential, and can't be sent",
)
_log = logging.getLogger(__name__)

_NOT_IN_A_TARGET = re.compile(rb"[\x00-\x20\x7f]")
_NOT_IN_A_VALUE = re.compile(rb"[\x00\r\n]")


def head_problem(request: http.Request) -> str | None:
    """Return why two HTTP programs might read this head differently; None for a sound one."""
    if _NOT_IN_A_TARGET.search(request.data.path):
        return "the target of the request holds white space or control characters"

    try:
        # Runners send UTF-8 where they do not send ASCII, and it goes on unchanged.
        request.data.path.decode()
    except UnicodeDecodeError:
        return "the target of the request is neither ASCII nor UTF-8"

    if any(_NOT_IN_A_VALUE.search(value) for _, value in request.headers.fields):
        return "a header holds a line break, a folded line or a null byte"
    if request.headers.get("transfer-encoding", "chunked").strip().lower() != "chunked":
        return "no transfer coding but chunked is read"
    return None


def is_framed(request: http.Request) -> bool:
    """Return whether the head says where the body ends."""
    return "content-length" in request.headers or "transfer-encoding" in request.headers


def declared_length(message: http.Message) -> int:
    """Return the length that the head declares; 0 if it declares none.

    mitmproxy has checked that it is a number.
    """
    return int(message.headers.get("content-length", "0"))


def chunk_unframed(request: http.Request) -> None:
    """Frame in chunks a body that came in HTTP/2's frames, for a provider that speaks HTTP/1."""
    if not is_framed(request):
        request.headers["transfer-encoding"] = "chunked"


def is_answered(flow: http.HTTPFlow) -> bool:
    """Return whether another addon has answered.

    A request that we let stream out could not get that response.
    """
    return flow.response is not None


def describe_overflow(limit: Limit, agent_id: str) -> str:
    """Return the log's line about a body that was refused."""
    whose = "of the process" if limit == "process" else f"of agent {agent_id}"
    return f"a request of agent {agent_id} was refused: the limit of bytes in flight {whose}"


def refuse_body(path: str, limit: Limit) -> RunnerResponse:
    """Return the refusal of a body for which there is no room."""
    match limit:
        case "one":
            return respond(_LARGER_THAN_ALL[0], build_error_body(path, *_LARGER_THAN_ALL))
        case "agent":
            body = build_error_body(path, *_AGENT_IS_FULL)
            return respond(_AGENT_IS_FULL[0], body, retry_after=_RETRY_SECONDS)
        case "process":
            body = build_error_body(path, *_PROCESS_IS_FULL)
            return respond(_PROCESS_IS_FULL[0], body, retry_after=_RETRY_SECONDS)


def refuse_connection(path: str) -> RunnerResponse:
    """Return the refusal of a request whose agent has its share of the descriptors."""
    status = _TOO_MANY_CONNECTIONS[0]
    return respond(
        status, build_error_body(path, *_TOO_MANY_CONNECTIONS), retry_after=_RETRY_SECONDS
    )


def refuse_rest(flow: http.HTTPFlow, limit: Limit) -> None:
    """Answer a flow whose body grew too large while it came in."""
    match limit:
        case "one":
            refuse(flow, *_LARGER_THAN_ALL)
        case "agent":
            refuse(flow, *_AGENT_IS_FULL)
        case "process":
            refuse(flow, *_PROCESS_IS_FULL)

    if flow.response is not None and limit != "one":
        flow.response.headers["retry-after"] = _RETRY_SECONDS


def refuse(flow: http.HTTPFlow, status: int, code: str, message: str) -> None:
    """Answer the flow with a refusal, or end it if its request is already streaming out.

    Leave recorded flows as they are.
    """
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
    """Wrap a deciding hook: whatever fails in it, the runner gets a 502 and nothing goes out."""

    @functools.wraps(hook)
    async def closed(self: S, flow: http.HTTPFlow) -> None:
        try:
            await hook(self, flow)
        except BaseException as error:
            has_traceback = isinstance(error, Exception)
            _log.error("%s failed: %s", hook.__name__, type(error).__name__, exc_info=has_traceback)
            state_of(flow).verdict = None
            refuse(flow, 502, "governance_failed", "the proxy could not decide about this request")
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise

    return closed


class GuardAddon:
    """The addon. It comes after all scripts."""

    name = "claw-guard"

    def __init__(self, addon_state: AddonState) -> None:
        self._governs = addon_state.governs

    def configure(self, _updated: set[str]) -> None:
        options.check()

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        """Let a governed body stream out only after a verdict, and any other body always."""
        if not self._governs(flow):
            flow.request.stream = flow.response is None
        elif state_of(flow).verdict is None:
            flow.request.stream = False

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        if flow.response is not None and not self._governs(flow):
            flow.response.stream = True

    def request(self, flow: http.HTTPFlow) -> None:
        """Refuse a governed request without a verdict.

        This is the last hook before it goes out.
        """
        if flow.response is None and self._governs(flow) and state_of(flow).verdict is None:
            refuse(flow, 503, "not_governed", "the proxy is not ready to decide about requests")

    def websocket_start(self, flow: http.HTTPFlow) -> None:
        """End a WebSocket to a governed host, which would bypass every rule."""
        if self._governs(flow) and flow.killable:
            flow.kill()
