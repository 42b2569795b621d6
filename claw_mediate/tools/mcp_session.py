"""An agent's connection to one MCP server: its session, and the messages in it
(docs/spec/mcp.md, "Tools over MCP").

A session is opened when it is first needed, kept, and shared by the agent's concurrent calls. The
handshake is tried first; a server that refuses it is asked in the stateless way. Nothing is sent
twice here: ``McpTransport`` repeats a call after 404.
"""

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.metadata import version
from typing import Any, Final

import httpx2
import msgspec

from claw_contract.history import McpRecord
from claw_contract.manifest import McpExecution
from claw_contract.transcript.text import as_line
from claw_mcp import protocol
from claw_mcp.protocol import Message, RpcError
from claw_mediate.agents.directory import Agent
from claw_mediate.http.client import ConnectionPool
from claw_mediate.http.headers import Headers
from claw_mediate.tools.mcp_listing import MAX_LIST_BYTES, MAX_PAGES, ToolListing
from claw_mediate.tools.mcp_wire import FAILURES, AnswerTooLargeError, McpWire, Reply

# For the handshake and the list of tools together; a call does not wait longer than its own time
OPEN_SECONDS = 60.0
_CUT_OFF_SECONDS = 0.01  # Before a call is cut off, it is known that it was not sent
_TOO_SLOW = "The service took too long to open a session."
_MAX_ID_BYTES = 256  # Of a server's request that is answered
_SHOWN_ID = 8  # Characters of a session's id in history and log
_CLIENT: Final = {"name": "clawdapus", "version": version("clawdapus")}
_META: Final = protocol.stateless_meta(_CLIENT)
_RAW_META: Final = msgspec.json.encode(_META)
_NOT_HANDSHAKE = frozenset(
    {
        protocol.SERVER_ERROR,
        protocol.UNSUPPORTED_VERSION,
        protocol.INVALID_PARAMS,
        protocol.HEADER_MISMATCH,
    }
)
"""Codes by which a server without the handshake refuses it, with status 400."""
_PERHAPS_REFUSALS = _NOT_HANDSHAKE - {protocol.UNSUPPORTED_VERSION}
"""Those that other servers give for a session that they refuse."""
_REDIRECT, _BAD_REQUEST = 300, 400


class SessionError(Exception):
    """A session that can't be opened: no call was sent. The text is one sentence for the model.

    ``words`` is what the server says of it, as it came: whoever shows it redacts it.
    """

    def __init__(self, message: str, status: int | None = None, words: bytes = b"") -> None:
        super().__init__(message)
        self.status = status
        self.words = words


@dataclass(frozen=True)
class Session:
    """One session of the protocol; in the stateless era, what is known of the server."""

    version: str
    id: str | None = None
    server: str = ""
    listing: ToolListing = field(default_factory=ToolListing, compare=False)

    @property
    def is_stateless(self) -> bool:
        return self.version == protocol.STATELESS_VERSION

    @property
    def meta(self) -> bytes:
        """The ``_meta`` of a request's parameters, as JSON; empty where none is needed."""
        return _RAW_META if self.is_stateless else b""

    @cached_property
    def record(self) -> McpRecord:
        shown = (
            self.id if self.id is None or len(self.id) <= _SHOWN_ID else f"{self.id[:_SHOWN_ID]}…"
        )
        return McpRecord(server=self.server, session=shown, protocol=self.version)

    def headers(self, method: str, name: str = "") -> Headers:
        """Return the headers of a message in this session."""
        headers = [(protocol.PROTOCOL_VERSION, self.version)]
        if self.id is not None:
            headers.append((protocol.SESSION_ID, self.id))
        if self.is_stateless:
            headers.append((protocol.METHOD, method))
            if name:
                headers.append((protocol.NAME, protocol.write_header_value(name)))
        return headers


class McpConnection:
    """One agent's connection to one server, with one credential."""

    def __init__(
        self, pool: ConnectionPool, url: str, credentials: Headers, versions: dict[str, str]
    ) -> None:
        """``versions`` has the last version of each server, by URL: all connections share it."""
        self.url = url
        self.credentials = credentials
        self.uses = 0
        self.last_used = 0.0
        self._wire = McpWire(pool, url, credentials)
        self._versions = versions
        self._ids = itertools.count(1)
        self._session: Session | None = None
        self._opening: asyncio.Task[Session] | None = None
        self._is_list_stale = False
        self._refusal: SessionError | None = None  # Of the handshake that is under way
        self._checked: tuple[ToolListing, Agent] | None = None
        self._reported: set[tuple[str, str]] = set()

    async def open(self, until: float) -> Session:
        """Return the session; open it, or read its list of tools again, where that is needed.

        Raise ``SessionError``, also shortly before ``until``, when the caller is cut off: its call
        was certainly not sent.
        """
        if self._session is not None and not self._is_list_stale:
            return self._session
        if self._opening is None:
            # A task of its own: the call that began it may run out of time, and the others still
            # get the session.
            self._opening = asyncio.ensure_future(self._prepare())
            self._opening.add_done_callback(self._end_opening)
        opening = self._opening
        await asyncio.wait(
            [opening], timeout=max(until - asyncio.get_running_loop().time() - _CUT_OFF_SECONDS, 0)
        )
        if not opening.done():
            raise SessionError(_TOO_SLOW)
        if opening.cancelled():
            raise SessionError("The proxy ends the session.")
        return opening.result()

    def drop(self, session: Session) -> None:
        """Forget a session that the server does not know any more; a newer one stays."""
        if self._session == session:
            self._session = None

    def find_changes(
        self, session: Session, agent: Agent, here: McpExecution
    ) -> Iterator[tuple[str, str]]:
        """Yield (name, difference) of each of the agent's tools of this server that
        the server has changed, once.
        """
        if (
            self._checked is not None
            and self._checked[0] is session.listing
            and self._checked[1] is agent
        ):
            return
        self._checked = session.listing, agent
        for tool in agent.granted:
            execution = tool.execution
            if isinstance(execution, McpExecution) and _server(execution) == _server(here):
                change = tool.name, session.listing.find_problem(tool) or ""
                if change[1] and change not in self._reported:
                    self._reported.add(change)
                    yield change

    def next_id(self) -> bytes:
        return b"%d" % next(self._ids)

    async def ask(
        self, session: Session, request_id: bytes, headers: Headers, body: bytes
    ) -> Reply:
        """Send one request and return what came back.

        Raise ``FAILURES`` and ``AnswerTooLargeError``.

        A server is told when nobody waits for the answer any more.
        """
        try:
            reply = await self._ask(session, request_id, headers, body)
        except asyncio.CancelledError:
            if not session.is_stateless:  # there, the end of the connection says it
                method = "notifications/cancelled"
                params = (
                    b'{"requestId":%b,"reason":"nobody waits for the answer any longer"}'
                    % request_id
                )
                self._wire.send_later(
                    "POST", session.headers(method), protocol.write_notification(method, params)
                )
            raise
        if _is_lost(session, reply):
            self.drop(session)
            self._end_session(session)
            self._versions.pop(self.url, None)
        return reply

    async def end(self) -> None:
        """End the session, and close every connection."""
        if self._opening is not None:
            self._opening.cancel()
        session, self._session = self._session, None
        if session is not None:
            self._end_session(session)
        await self._wire.close()

    def _end_session(self, session: Session) -> None:
        if session.id is not None:
            self._wire.send_later("DELETE", session.headers(""))

    def _end_opening(self, opening: asyncio.Task[Session]) -> None:
        self._opening = None
        if not opening.cancelled() and opening.exception() is None:
            self._session = opening.result()

    async def _prepare(self) -> Session:
        """Return a session with its list of tools: the present one, if it still works.

        Raise ``SessionError``.
        """
        session, self._session = self._session, None
        self._refusal = None
        self._is_list_stale = (
            False  # What the server says of changes while it lists is about the next list
        )
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                if session is not None:
                    with suppress(SessionError, AnswerTooLargeError, *FAILURES):
                        return await self._list_tools(session)
                    self._end_session(session)
                is_stateless = self._versions.get(self.url) == protocol.STATELESS_VERSION
                session = (
                    Session(protocol.STATELESS_VERSION)
                    if is_stateless
                    else await self._shake_hands()
                )
                try:
                    session = await self._list_tools(session)
                except SessionError:
                    if (
                        self._refusal is not None
                    ):  # It was no matter of the era, then: these are the words that count
                        raise self._refusal from None
                    raise
        except (SessionError, TimeoutError, AnswerTooLargeError, *FAILURES) as error:
            self._versions.pop(self.url, None)
            if session is not None:
                self._end_session(session)
            raise _session_error(error) from error
        self._versions[self.url] = session.version
        return session

    async def _shake_hands(self) -> Session:
        """Open a session, or find that the server needs none."""
        params = {
            "protocolVersion": protocol.HANDSHAKE_VERSIONS[0],
            "capabilities": {},
            "clientInfo": _CLIENT,
        }
        session, request_id = Session(protocol.HANDSHAKE_VERSIONS[0]), self.next_id()
        body = protocol.write_request(request_id, "initialize", msgspec.json.encode(params))
        reply = await self._ask(session, request_id, [("accept", protocol.ACCEPT)], body)
        if _refuses_handshake(reply):
            self._refusal = _find_refusal(reply)
            return Session(protocol.STATELESS_VERSION)
        result = _read_result(reply)
        chosen, session_id = result.get("protocolVersion"), reply.session_id
        if chosen == protocol.STATELESS_VERSION:
            return Session(protocol.STATELESS_VERSION)
        if chosen not in protocol.HANDSHAKE_VERSIONS:
            raise SessionError("The service speaks no version of MCP that the proxy knows.")
        if session_id is not None and not protocol.is_session_id(session_id):
            raise SessionError("The service opened a session without a valid id.")
        session = Session(chosen, session_id, _server_name(result.get("serverInfo")))
        method = "notifications/initialized"
        status, words = await self._wire.send(
            "POST", session.headers(method), protocol.write_notification(method)
        )
        if status >= _REDIRECT:
            raise SessionError(
                f"The service refused to open a session (status {status}).", status, words
            )
        return session

    async def _list_tools(self, session: Session) -> Session:
        """Return the session with the list of its tools, read page by page."""
        listing, server, size = ToolListing(), session.server, 0
        cursors: set[str] = set()
        params: dict[str, Any] = {"_meta": _META} if session.is_stateless else {}
        headers = [("accept", protocol.ACCEPT), *session.headers("tools/list")]
        for _ in range(MAX_PAGES):
            request_id = self.next_id()
            body = protocol.write_request(request_id, "tools/list", msgspec.json.encode(params))
            reply = await self._ask(session, request_id, headers, body)
            page = _read_result(reply)
            size += len(reply.body)
            listing.add_page(page)
            meta = page.get("_meta")
            if session.is_stateless and isinstance(meta, dict):
                server = server or _server_name(meta.get(protocol.SERVER_INFO_META))
            cursor = page.get("nextCursor")
            if not isinstance(cursor, str) or cursor in cursors or size > MAX_LIST_BYTES:
                break
            cursors.add(cursor)
            params["cursor"] = cursor
        return replace(session, server=server, listing=listing)

    async def _ask(
        self, session: Session, request_id: bytes, headers: Headers, body: bytes
    ) -> Reply:
        return await self._wire.ask(
            request_id, headers, body, lambda message: self._hear(session, message)
        )

    def _hear(self, session: Session, message: Message) -> None:
        """Take note of a message that is not the response."""
        if message.method == "notifications/tools/list_changed":
            self._is_list_stale = True
        elif (
            message.is_request
            and not session.is_stateless
            and len(bytes(message.id)) <= _MAX_ID_BYTES
        ):
            self._wire.send_later("POST", session.headers(""), _answer(message))


def _server(execution: McpExecution) -> tuple[str, str, str]:
    return execution.service, execution.base_url, execution.path


def _answer(request: Message) -> bytes:
    """Return the response to a server's request: nothing that it could ask for is
    declared as a capability.
    """
    request_id = bytes(request.id)
    match request.method:
        case "ping":
            return protocol.write_result(request_id, b"{}")
        case "roots/list":
            return protocol.write_result(request_id, b'{"roots":[]}')
        case _:
            error = RpcError(protocol.METHOD_NOT_FOUND, "this client has no such capability")
            return protocol.write_error(request_id, error)


def _refuses_handshake(reply: Reply) -> bool:
    """Return whether a server says that it has no handshake (docs/spec/mcp.md, "Which era")."""
    error = reply.message.rpc_error() if reply.message is not None else None
    if error is None:
        return False
    supported = error.data.get("supported") if isinstance(error.data, dict) else None
    if isinstance(supported, list):
        return protocol.STATELESS_VERSION in supported
    return error.code == protocol.METHOD_NOT_FOUND or (
        reply.status == _BAD_REQUEST and error.code in _NOT_HANDSHAKE
    )


def _find_refusal(reply: Reply) -> SessionError | None:
    """Return the refusal of a handshake; None where it only says that the server has none."""
    error = reply.message.rpc_error() if reply.message is not None else None
    if error is None or error.code not in _PERHAPS_REFUSALS:
        return None
    if isinstance(error.data, dict) and "supported" in error.data:
        return None

    message = f"The service refused to open a session (error {error.code})."
    words = error.message.encode(errors="replace")
    return SessionError(message, reply.status if reply.status >= _REDIRECT else None, words)


def _is_lost(session: Session, reply: Reply) -> bool:
    """Return whether the next call needs a new session.

    With 400, some servers refuse one that they do not know.
    """
    if reply.status != _BAD_REQUEST or not session.is_stateless:
        return reply.status == _BAD_REQUEST
    error = reply.message.rpc_error() if reply.message is not None else None
    return error is None or error.code != protocol.INVALID_PARAMS


def _read_result(reply: Reply) -> dict[str, Any]:
    """Return the result of a request that opens a session. Raise ``SessionError``."""
    if reply.status >= _REDIRECT:
        raise SessionError(
            f"The service answered with status {reply.status}.", reply.status, reply.body
        )
    if reply.message is None:
        raise SessionError("The service does not answer as an MCP server should.")
    if (error := reply.message.rpc_error()) is not None:
        words = error.message.encode(errors="replace")
        raise SessionError(
            f"The service refused to open a session (error {error.code}).", words=words
        )
    return protocol.read_object(reply.message.result)


def _server_name(info: Any) -> str:
    """Return a server's name and version on one line; "" if it gives none."""
    if not isinstance(info, dict):
        return ""
    return " ".join(filter(None, (as_line(info.get("name")), as_line(info.get("version")))))


def _session_error(error: Exception) -> SessionError:
    match error:
        case SessionError():
            return error
        case AnswerTooLargeError():
            return SessionError("The service's answer is too large.")
        case httpx2.InvalidURL() | httpx2.LocalProtocolError() | UnicodeError():
            return SessionError("The service can't be called as it is configured.")
        case httpx2.ConnectError() | httpx2.ConnectTimeout() | httpx2.UnsupportedProtocol():
            return SessionError("The service can't be reached.")
        case TimeoutError():
            return SessionError(_TOO_SLOW)
        case _:
            return SessionError("The service broke off its answer.")
