"""A runner's request and the response to it, independent of mitmproxy and of the event loop."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import msgspec

from claw_mediate.core.api_paths import is_anthropic, normalize_path
from claw_mediate.core.observer import RequestObserver

_OPENAI_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
}
_ANTHROPIC_TYPES = {
    **_OPENAI_TYPES,
    402: "billing_error",
    413: "request_too_large",
    504: "timeout_error",
    529: "overloaded_error",
}


def build_error_body(
    path: str,
    status: int,
    code: str,
    message: str,
    more: Mapping[str, object] | None = None,
    param: str | None = None,
) -> bytes:
    """Return an error body: in Anthropic's shape on its paths, else in OpenAI's.

    ``more``: further members, next to ``error``. ``param``: the member of the request that the
    error is about; only OpenAI's shape has it.
    """
    if is_anthropic(path):
        error: dict[str, object] = {
            "type": _ANTHROPIC_TYPES.get(status, "api_error"),
            "message": message,
        }
        return json.dumps({"type": "error", "error": error, **(more or {})}).encode()

    error = {
        "message": message,
        "type": _OPENAI_TYPES.get(status, "api_error"),
        "param": param,
        "code": code,
    }
    return json.dumps({"error": error, **(more or {})}).encode()


class _Error(msgspec.Struct):
    error: Any


def read_error_message(body: bytes) -> str:
    """Return the message of an error body of any dialect; "" if there is none."""
    try:
        error = msgspec.json.decode(body, type=_Error).error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return ""

    message = error.get("message") if isinstance(error, dict) else error
    return message if isinstance(message, str) else ""


type HeaderList = list[tuple[str, str]]

GONE = 499
"""The status, in history, of a request whose runner left. It is nginx's code."""
STOPPING = (
    "shutting_down",
    "the proxy is being stopped; ask again, and the turn goes on where it was",
)
"""Code and message of the refusal while the proxy stops."""
RETRY_AFTER = "5"  # Seconds until a restarted proxy is ready


@dataclass(frozen=True, slots=True)
class Request:
    """A runner's request."""

    method: str
    path: str  # With its query
    headers: HeaderList
    body: bytes
    # The governed destination; None if the request came to the base-URL listener
    host: str | None = None
    observer: RequestObserver | None = field(default=None, compare=False, repr=False)
    can_be_cut: bool = True
    """False if the runner can't tell a cut answer from a whole one.

    In HTTP/1.0 the end of the connection is the end of the body. Such a runner gets an error event.
    """

    @property
    def bare_path(self) -> str:
        return self.path.partition("?")[0]

    @property
    def normalized_path(self) -> str:
        return normalize_path(self.path)

    def header(self, name: str) -> list[str]:
        """Return the values of a header, whose name is given in lower case."""
        return [value for key, value in self.headers if key.lower() == name]


class AnswerCutError(Exception):
    """Raised by the chunks of a response to cut it: what was sent so far is not the whole answer.

    The runner sees it from its protocol: HTTP/1.1 ends without the last chunk, HTTP/2 and HTTP/3
    with a reset of the stream. It is no failure of the proxy, so the host logs nothing; the message
    is what an operator sees in the flow.
    """


class KeepaliveChunk(bytes):
    """A chunk of a response that only shows that the connection is alive.

    It is not sent to a runner that has not yet taken what was sent before.
    """


type OnDelivered = Callable[[], Awaitable[None]]
type NoteTurn = Callable[[str, OnDelivered], None]


class RunnerResponse(msgspec.Struct, frozen=True):
    """The response to a runner's request, whose chunks come as they are made."""

    status: int
    headers: HeaderList
    chunks: AsyncIterator[bytes]
    streaming: bool = False
    on_delivered: OnDelivered | None = None
    """Called when the whole response has left the process: the kernel has its last byte."""
    answer_of: str = ""
    """The id of the turn whose answer this is. A retry gets the same turn's answer again."""
    when_found: Callable[[NoteTurn], None] | None = None
    """Takes what is told ``answer_of`` and ``on_delivered`` of a stream that begins before its turn
    is found."""


@dataclass(frozen=True, slots=True)
class Forward:
    """A request that is not mediated: mitmproxy sends it to its provider."""

    base_url: str
    target: str  # Path and query, below ``base_url``
    credential: HeaderList  # The provider's
    write_refusal: Callable[[], bytes]
    """Returns the body of the error that the runner gets if the provider can't be reached."""
    body: bytes | None  # None: as the runner sent it
    dropped_headers: tuple[str, ...]
    """Names of headers that hold the agent's credential, or name a model against its policy."""
    content_type: str | None  # None: as the runner sent it
    handle: object
    """The mediator's own note of the request, which mitmproxy's side returns with the result."""


def respond(
    status: int,
    body: bytes,
    content_type: str = "application/json",
    retry_after: str = "",
    more: Sequence[tuple[str, str]] = (),
) -> RunnerResponse:
    """Return a response of one chunk. ``more``: further headers."""
    headers = [("content-type", content_type)]
    if retry_after:
        headers.append(("retry-after", retry_after))
    headers.extend(more)

    return RunnerResponse(status, headers, _single_chunk(body))


def refuse(
    path: str,
    status: int,
    code: str,
    message: str,
    more: Mapping[str, object] | None = None,
    param: str | None = None,
) -> RunnerResponse:
    """Return an error in the shape of the path's dialect."""
    return respond(status, build_error_body(path, status, code, message, more, param))


type Naming = Literal["previous_response_id", "conversation", "response_id"]
"""The place of an id in a request: a member of the body, or (``response_id``) the path."""
MAX_SHOWN_ID = 80  # Characters of an id in a message


def refuse_unknown_id(
    path: str, naming: Naming, object_id: str, reason: str = "this agent has none"
) -> RunnerResponse:
    """Return the refusal of an id that this agent can't use (docs/spec/responses.md section 10)."""
    kind = "conversation" if naming == "conversation" else "response"
    message = f"the {kind} {object_id[:MAX_SHOWN_ID]!r} is not known here: {reason}"

    match naming:
        case "previous_response_id":
            return refuse(path, 400, "previous_response_not_found", message, param=naming)
        case "response_id":
            return refuse(path, 404, "response_not_found", message, param=naming)
        case "conversation":
            return refuse(path, 404, "conversation_not_found", message, param=naming)


class UnknownObject(NamedTuple):
    """An object at a provider that the agent may not name."""

    kind: str
    id: str
    member: str  # The member of the request that has the id
    reason: str = (
        "this agent has none. What was made before the proxy, or outside of it, needs "
        "CLLAMA_STORED_IDS=any"
    )

    @property
    def shown_id(self) -> str:
        return self.id[:MAX_SHOWN_ID].encode(errors="replace").decode()


def refuse_unknown_object(path: str, unknown: UnknownObject) -> RunnerResponse:
    """Return the refusal of an object that the agent may not name.

    docs/spec/mediation.md section 2 has the rule.
    """
    if unknown.kind == "stored_completion":
        message = "stored chat completions can't be read through this proxy"
    else:
        kind = unknown.kind.replace("_", " ")
        message = f"the {kind} {unknown.shown_id!r} is not known here: {unknown.reason}"

    return refuse(path, 404, "object_not_found", message, param=unknown.member)


def refuse_stopping(path: str) -> RunnerResponse:
    """Return the refusal of a request that comes while the proxy stops."""
    return respond(503, build_error_body(path, 503, *STOPPING), retry_after=RETRY_AFTER)


def respond_json(status: int, document: object) -> RunnerResponse:
    """Return a small JSON document of the proxy's own."""
    return respond(status, json.dumps(document).encode())


async def _single_chunk(body: bytes) -> AsyncIterator[bytes]:
    yield body
