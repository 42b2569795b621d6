"""A client's session with an MCP server, in either era (docs/spec/mcp.md "Tools over MCP").

No I/O.

``claw discover``, the tools host and the proxy all talk to servers through ``ClientProtocol``, so
that they judge the same answer alike. A conversation is a generator: it yields the messages to
send, and is sent the answers. ``converse`` drives it over any transport.

The handshake is tried first. What its refusal means:

the error that answers ``initialize``                      means
─────────────────────────────────────────────────────────  ───────────────────────────────────
any code, and ``data.supported`` lists 2026-07-28          the server is of the stateless era
any code, and ``data.supported`` is a list without it      the server refuses the session
-32601, "method not found"                                 the server is of the stateless era
-32022, with HTTP status 400 or over stdio                 the server is of the stateless era
-32000, -32020, -32602, with status 400 or over stdio      either: the stateless era is tried, and
                                                           if it fails too, this refusal counts
any other                                                  the server refuses the session
"""

from collections.abc import Awaitable, Callable, Generator, Mapping
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from claw_contract.base import JsonObject
from claw_mcp import protocol
from claw_mcp.protocol import RpcError, RpcMessage

MAX_PAGES: Final = 100
MAX_TOOLS: Final = 1000
MAX_LIST_BYTES: Final = 8 * 1024 * 1024  # Of the results of all pages together
TOOLS_CHANGED: Final = "notifications/tools/list_changed"

_MAX_CURSOR_BYTES = 16 * 1024
_MAX_ID_BYTES = 256  # Of a server's request that is answered
_SERVER_FAULT = "a fault of the server"

_ERA_OR_SESSION = frozenset(
    {protocol.SERVER_ERROR, protocol.HEADER_MISMATCH, protocol.INVALID_PARAMS}
)
"""Codes by which servers without a handshake refuse it, and by which others refuse a session."""

_ABOUT_THE_CALL = frozenset({protocol.INVALID_PARAMS, protocol.MISSING_CAPABILITY})
"""Codes that blame one call. With any other code, status 400 may be about the session."""


class AskServer(NamedTuple):
    """A request that a conversation waits for. Its sender adds the ``_meta`` of the era."""

    method: str
    params: JsonObject


class NotifyServer(NamedTuple):
    """A notification. Its answer is an empty ``ServerAnswer``."""

    method: str


class ServerAnswer(NamedTuple):
    """A server's answer to a request: the result as JSON, and the HTTP header ``Mcp-Session-Id``.

    An error response is no ``ServerAnswer``: it is thrown into the conversation as ``RpcError``.
    """

    result: bytes = b""
    session_id: str | None = None


type Conversation[T] = Generator[AskServer | NotifyServer, ServerAnswer, T]
type Exchange = Callable[[AskServer | NotifyServer], Awaitable[ServerAnswer]]


async def converse[T](conversation: Conversation[T], exchange: Exchange) -> T:
    """Send the messages of a conversation by ``exchange``, each once; return its result.

    Raise what the conversation raises, and what ``exchange`` raises. A ``RpcError`` of ``exchange``
    is thrown into the conversation, which may go on after it.
    """
    try:
        message = next(conversation)
        while True:
            try:
                answer = await exchange(message)
            except RpcError as error:
                message = conversation.throw(error)
            else:
                message = conversation.send(answer)
    except StopIteration as end:
        outcome: T = end.value
        return outcome


class ServerFaultError(Exception):
    """An answer that breaks the protocol or its limits.

    ``problem`` is about the server ("its list of tools has …") and quotes nothing that it said.
    """

    def __init__(self, problem: str, remedy: str = _SERVER_FAULT) -> None:
        super().__init__(f"{problem}: {remedy}")
        self.problem = problem
        self.remedy = remedy


class UnknownVersionError(ServerFaultError):
    """A server that chose a version of the protocol that is not known here.

    ``version`` is what the server wrote: whoever shows it redacts it.
    """

    def __init__(self, version: str) -> None:
        super().__init__("it speaks a version of MCP that is not known")
        self.version = version


class SessionIdError(ServerFaultError):
    """A server that gave its session an id that no header can hold."""

    def __init__(self) -> None:
        super().__init__("it opened a session without a valid id")


class ClientProtocol:
    """The state of one session, and the conversations in it.

    ``version``: of the protocol, empty before the handshake. ``session_id``: None if the server
    keeps no sessions. ``server``: what the server says of itself, unchecked. ``refusal``: the
    refusal of the handshake if it meant either the era or the session; it counts if the first list
    of tools fails too.
    """

    def __init__(self, version: str = "") -> None:
        """Begin without a handshake if ``version`` is given."""
        self.version = version
        self.session_id: str | None = None
        self.server: Any = None
        self.refusal: RpcError | None = None

    @property
    def is_stateless(self) -> bool:
        return self.version == protocol.STATELESS_VERSION

    def open(self, client: JsonObject) -> Conversation[None]:
        """Do the handshake, or find that the server has none.

        ``client`` has our name and version. Raise ``RpcError`` for a server that refuses the
        session, and ``ServerFaultError``.
        """
        newest = protocol.HANDSHAKE_VERSIONS[0]
        params = {"protocolVersion": newest, "capabilities": {}, "clientInfo": client}
        try:
            answer = yield AskServer("initialize", params)
        except RpcError as error:
            if not _may_be_stateless(error):
                raise
            self.refusal = error if _may_be_about_the_session(error) else None
            self.version = protocol.STATELESS_VERSION
            return

        result = _read_result("initialize", answer)
        version = result.get("protocolVersion")
        self.server = result.get("serverInfo")

        if version == protocol.STATELESS_VERSION:
            self.version = version
            return
        if version not in protocol.HANDSHAKE_VERSIONS:
            raise UnknownVersionError(str(version))
        if answer.session_id is not None and not protocol.is_session_id(answer.session_id):
            raise SessionIdError

        self.version = str(version)
        self.session_id = answer.session_id
        yield NotifyServer("notifications/initialized")

    def list_tools(self, tools: list[Any]) -> Conversation[None]:
        """Append the tools to ``tools``, page by page, as the server lists them.

        Raise ``RpcError``, and ``ServerFaultError`` for a list that is broken or above a limit:
        ``tools`` then has those that were read.
        """
        params: JsonObject = {}
        seen: set[str] = set()
        size = 0
        tools_before_empty = 0  # The tools that were listed before an empty cursor

        for page in range(1, MAX_PAGES + 1):
            answer = yield AskServer("tools/list", params)
            size += len(answer.result)
            entries, cursor = self._read_page(answer)
            tools += entries

            if len(tools) > MAX_TOOLS:
                del tools[MAX_TOOLS:]
                raise _too_long(f"{MAX_TOOLS} tools")
            if size > MAX_LIST_BYTES:
                raise _too_long(f"{MAX_LIST_BYTES} bytes")
            if cursor is None:
                return

            leads_back = cursor in seen
            if leads_back and "" in seen:
                # An empty cursor is a cursor like any other (2026-07-28), but some servers mean "no
                # further page" by it. Asked with it, they begin again: we have had these tools.
                del tools[tools_before_empty:]
                return
            if leads_back:
                raise ServerFaultError(f"page {page} of its tools leads back to an earlier one")

            if cursor == "":
                tools_before_empty = len(tools)
            seen.add(cursor)
            params = {"cursor": cursor}

        raise ServerFaultError(f"its list of tools has more than {MAX_PAGES} pages")

    def headers(self, method: str = "", name: str = "") -> list[tuple[str, str]]:
        """Return the HTTP headers of a message in this session.

        ``method``: of a request. ``name``: of the tool or resource that it is for.
        """
        headers = []
        if self.version:
            headers.append((protocol.PROTOCOL_VERSION, self.version))
        if self.session_id is not None:
            headers.append((protocol.SESSION_ID, self.session_id))

        if self.is_stateless and method:
            headers.append((protocol.METHOD, method))
            if name:
                headers.append((protocol.NAME, protocol.write_header_value(name)))
        return headers

    def answer(self, request: RpcMessage) -> bytes | None:
        """Return the response to a server's request; None for one with an overlong id."""
        if len(bytes(request.id)) > _MAX_ID_BYTES:
            return None
        return answer_request(request, "this client has no such capability")

    def is_unknown(self, status: int | None) -> bool:
        """Return whether a status says that the server does not know the session any more.

        It has not processed the request then, so that a call may be repeated in a new session.
        """
        return status == HTTPStatus.NOT_FOUND and self.session_id is not None

    def is_doubtful(self, status: int, error: RpcError | None) -> bool:
        """Return whether the next request needs a new session, or another look at the era.

        Some servers refuse a session that they do not know with status 400. It does not say whether
        the request was processed.
        """
        if status != HTTPStatus.BAD_REQUEST:
            return False
        return error is None or error.code not in _ABOUT_THE_CALL

    def _read_page(self, answer: ServerAnswer) -> tuple[list[Any], str | None]:
        """Return (the tools of one page, the cursor of the next one or None)."""
        result = _read_result("tools/list", answer)
        tools = result.get("tools")
        cursor = result.get("nextCursor")

        if not isinstance(tools, list):
            raise ServerFaultError("its answer to 'tools/list' has no list of tools")
        if cursor is not None and not _is_cursor(cursor):
            raise ServerFaultError("the cursor of its tools is no text, or too long")

        meta = result.get("_meta")
        if self.is_stateless and isinstance(meta, dict):
            self.server = self.server or meta.get(protocol.SERVER_INFO_META)
        return tools, cursor


def answer_request(request: RpcMessage, refusal: str) -> bytes:
    """Return the response to a server's request; ``refusal``: the words for most of them.

    No capability is declared, so that a server may only ``ping`` and ask for the roots.
    """
    request_id = bytes(request.id)
    match request.method:
        case "ping":
            return protocol.write_result(request_id, b"{}")
        case "roots/list":
            return protocol.write_result(request_id, b'{"roots":[]}')
        case _:
            return protocol.write_error(request_id, RpcError(protocol.METHOD_NOT_FOUND, refusal))


def write_cancelled(request_id: bytes) -> bytes:
    """Return the notification that nobody waits for an answer any more (handshake era only).

    In the stateless era, the end of the connection says it.
    """
    params = b'{"requestId":%b,"reason":"nobody waits for the answer any longer"}' % request_id
    return protocol.write_notification("notifications/cancelled", params)


def _may_be_stateless(error: RpcError) -> bool:
    """Return whether a refusal of the handshake may say that the server has none."""
    supported = _supported_versions(error)
    if supported is not None:
        return protocol.STATELESS_VERSION in supported
    if error.code == protocol.METHOD_NOT_FOUND:
        return True

    has_code = error.code == protocol.UNSUPPORTED_VERSION or error.code in _ERA_OR_SESSION
    return has_code and error.status in {None, HTTPStatus.BAD_REQUEST}


def _may_be_about_the_session(error: RpcError) -> bool:
    """Return whether a refusal that ``_may_be_stateless`` may as well be of the session."""
    return error.code in _ERA_OR_SESSION and _supported_versions(error) is None


def _supported_versions(error: RpcError) -> list[Any] | None:
    supported = error.data.get("supported") if isinstance(error.data, dict) else None
    return supported if isinstance(supported, list) else None


def _read_result(method: str, answer: ServerAnswer) -> Mapping[str, Any]:
    result = protocol.read_object(answer.result)
    is_complete = result.get("resultType", "complete") == "complete"
    if not result or not is_complete:
        raise ServerFaultError(f"its answer to '{method}' is no complete result")
    return result


def _is_cursor(cursor: Any) -> bool:
    """Return whether a cursor is text that can be sent back: half a surrogate pair can't."""
    try:
        return isinstance(cursor, str) and len(cursor.encode()) <= _MAX_CURSOR_BYTES
    except UnicodeEncodeError:
        return False


def _too_long(limit: str) -> ServerFaultError:
    return ServerFaultError(
        f"its list of tools has more than {limit}", "let the server offer fewer"
    )
