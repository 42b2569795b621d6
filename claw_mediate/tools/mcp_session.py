"""An agent's connection to one MCP server: its session, and the messages in it.

docs/spec/mcp.md "Tools over MCP". A session is opened when it is first needed, kept, and shared by
the agent's concurrent calls. What an answer of the server means is decided by
``claw_mcp.client_protocol``. Nothing is sent twice here: ``McpTransport`` repeats a call after 404.
"""

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from http import HTTPStatus
from importlib.metadata import version
from typing import Any, Final

import httpx2
import msgspec

from claw_contract.history import McpRecord
from claw_contract.manifest import McpExecution
from claw_contract.transcript.text import as_line
from claw_mcp import protocol
from claw_mcp.client_protocol import (
    TOOLS_CHANGED,
    AskServer,
    ClientProtocol,
    NotifyServer,
    ServerAnswer,
    ServerFaultError,
    SessionIdError,
    UnknownVersionError,
    converse,
    write_cancelled,
)
from claw_mcp.protocol import RpcError, RpcMessage
from claw_mediate.agents.directory import Agent
from claw_mediate.http.client import ConnectionPool
from claw_mediate.http.headers import Headers
from claw_mediate.tools.mcp_listing import ToolListing
from claw_mediate.tools.mcp_wire import FAILURES, AnswerTooLargeError, McpWire, Reply

# For the handshake and the list of tools together; a call does not wait longer than its own time
OPEN_SECONDS = 60.0

# A call gives up this long before it is cut off: then it is known that it was not sent
_CUT_OFF_SECONDS = 0.01

_TOO_SLOW = "The service took too long to open a session."
_NOT_MCP = "The service does not answer as an MCP server should."
_SHOWN_ID = 8  # Characters of a session's id in history and log
_CLIENT: Final = {"name": "clawdapus", "version": version("clawdapus")}
_META: Final = protocol.stateless_meta(_CLIENT)
_RAW_META: Final = msgspec.json.encode(_META)


class SessionError(Exception):
    """A session that can't be opened: no call was sent. The text is one sentence for the model.

    ``status``: the HTTP status of a refusal. ``words``: what the server says of it, as it came:
    whoever shows it redacts it.
    """

    def __init__(self, message: str, status: int | None = None, words: bytes = b"") -> None:
        super().__init__(message)
        self.status = status
        self.words = words


@dataclass(frozen=True, eq=False)
class McpSession:
    """A session that calls can be made in, with the server's tools.

    When the list of tools is read again, the same ``protocol`` has another ``McpSession``.
    """

    protocol: ClientProtocol
    listing: ToolListing

    @property
    def id(self) -> str | None:
        return self.protocol.session_id

    @property
    def is_stateless(self) -> bool:
        return self.protocol.is_stateless

    @property
    def meta(self) -> bytes:
        """The ``_meta`` of a request's parameters, as JSON; empty if none is needed."""
        return _RAW_META if self.is_stateless else b""

    @cached_property
    def server(self) -> str:
        """The server's name and version on one line; "" if it gives none."""
        info = self.protocol.server
        if not isinstance(info, dict):
            return ""
        parts = (as_line(info.get("name")), as_line(info.get("version")))
        return " ".join(part for part in parts if part)

    @cached_property
    def record(self) -> McpRecord:
        shown_id = self.id
        if shown_id is not None and len(shown_id) > _SHOWN_ID:
            shown_id = f"{shown_id[:_SHOWN_ID]}…"
        return McpRecord(server=self.server, session=shown_id, protocol=self.protocol.version)

    def headers(self, method: str, name: str = "") -> Headers:
        """Return the headers of a request in this session; ``name``: of the tool that it calls."""
        return self.protocol.headers(method, name)


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
        self._session: McpSession | None = None
        self._opening: asyncio.Task[McpSession] | None = None
        self._is_list_stale = False
        self._checked: tuple[ToolListing, Agent] | None = None  # Whose changes were last looked for
        self._reported: set[tuple[str, str]] = set()  # Changes: the tool's name, and the difference

    async def open(self, until: float) -> McpSession:
        """Return the session; open it, or read its list of tools again, if that is needed.

        Raise ``SessionError``, which says that the call was certainly not sent. It is also raised
        shortly before ``until`` (the loop's time), because the caller is cut off then.
        """
        if self._session is not None and not self._is_list_stale:
            return self._session

        if self._opening is None:
            # A task of its own: the call that began it may run out of time, and the others still
            # get the session.
            self._opening = asyncio.ensure_future(self._prepare())
            self._opening.add_done_callback(self._end_opening)
        opening = self._opening

        seconds_left = until - asyncio.get_running_loop().time()
        await asyncio.wait([opening], timeout=max(seconds_left - _CUT_OFF_SECONDS, 0))
        if not opening.done():
            raise SessionError(_TOO_SLOW)
        if opening.cancelled():
            raise SessionError("The proxy ends the session.")
        return opening.result()

    def drop(self, session: McpSession) -> None:
        """Forget a session that the server does not know any more; a newer one stays."""
        if self._session is not None and self._session.protocol is session.protocol:
            self._session = None

    def find_changes(
        self, session: McpSession, agent: Agent, called: McpExecution
    ) -> Iterator[tuple[str, str]]:
        """Yield (name, difference), once, for each of the agent's tools that the server changed.

        ``called``: the execution of any tool of this server.
        """
        if self._checked is not None:
            listing, checked_agent = self._checked
            if listing is session.listing and checked_agent is agent:
                return
        self._checked = session.listing, agent

        for tool in agent.granted:
            execution = tool.execution
            is_of_server = isinstance(execution, McpExecution) and (
                _server(execution) == _server(called)
            )
            if not is_of_server:
                continue

            drift = session.listing.find_drift(tool)
            if drift is None:
                continue

            change = tool.name, drift.reason
            if change not in self._reported:
                self._reported.add(change)
                yield change

    def next_id(self) -> bytes:
        """Return the id of the next request, as JSON."""
        return b"%d" % next(self._ids)

    async def ask(
        self, session: McpSession, request_id: bytes, headers: Headers, body: bytes
    ) -> Reply:
        """Send one request and return what came back. If cancelled, tell the server.

        Raise ``FAILURES`` and ``AnswerTooLargeError``.
        """
        try:
            reply = await self._ask(session.protocol, request_id, headers, body)
        except asyncio.CancelledError:
            if not session.is_stateless:  # there, the end of the connection says it
                self._wire.send_later("POST", session.headers(""), write_cancelled(request_id))
            raise

        error = reply.message.rpc_error() if reply.message is not None else None
        if session.protocol.is_doubtful(reply.status, error):
            self.drop(session)
            self._end_session(session.protocol)
            self._versions.pop(self.url, None)
        return reply

    async def end(self) -> None:
        """End the session, and close every connection."""
        if self._opening is not None:
            self._opening.cancel()
        session = self._session
        self._session = None
        if session is not None:
            self._end_session(session.protocol)
        await self._wire.close()

    def _end_session(self, session: ClientProtocol) -> None:
        if session.session_id is not None:
            self._wire.send_later("DELETE", session.headers())

    def _end_opening(self, opening: asyncio.Task[McpSession]) -> None:
        self._opening = None
        if not opening.cancelled() and opening.exception() is None:
            self._session = opening.result()

    async def _prepare(self) -> McpSession:
        """Return a session with its list of tools: the present one, if it still works.

        Raise ``SessionError``.
        """
        present = self._session
        self._session = None
        # What the server says of changes while it lists is about the next list.
        self._is_list_stale = False

        session = self._new_protocol() if present is None else present.protocol
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                if present is not None:
                    # The list tells whether it still works. If not, a new one takes its place.
                    with suppress(SessionError, RpcError, AnswerTooLargeError, *FAILURES):
                        return await self._list_tools(session)
                    self._end_session(session)
                    session = self._new_protocol()

                return await self._open_session(session)
        except _OPEN_FAILURES as error:
            self._versions.pop(self.url, None)
            self._end_session(session)
            raise _session_error(error) from error

    def _new_protocol(self) -> ClientProtocol:
        """Return a session that is not open yet: without handshake if the server had none."""
        is_stateless = self._versions.get(self.url) == protocol.STATELESS_VERSION
        return ClientProtocol(protocol.STATELESS_VERSION if is_stateless else "")

    async def _open_session(self, session: ClientProtocol) -> McpSession:
        """Do the handshake, if there is one, and list the tools. Raise ``_OPEN_FAILURES``."""
        if not session.is_stateless:
            await converse(session.open(_CLIENT), partial(self._exchange, session))

        try:
            opened = await self._list_tools(session)
        except (SessionError, RpcError):
            # The handshake was refused, and the stateless way fails too: the server never meant
            # that it is of that era, so what it said first counts.
            if session.refusal is not None:
                raise session.refusal from None
            raise

        self._versions[self.url] = session.version
        return opened

    async def _list_tools(self, session: ClientProtocol) -> McpSession:
        """Return the session with its tools, also of a list that can't be read to its end.

        Raise ``_OPEN_FAILURES``.
        """
        entries: list[Any] = []
        fault = ""
        try:
            await converse(session.list_tools(entries), partial(self._exchange, session))
        except ServerFaultError as error:
            fault = error.problem
        return McpSession(session, ToolListing(entries, fault))

    async def _exchange(
        self, session: ClientProtocol, message: AskServer | NotifyServer
    ) -> ServerAnswer:
        """Send a message that opens a session and return its answer. Raise ``_OPEN_FAILURES``."""
        if isinstance(message, NotifyServer):
            return await self._notify(session, message.method)

        params = message.params
        if session.is_stateless:
            params = {**params, "_meta": _META}
        request_id = self.next_id()
        body = protocol.write_request(request_id, message.method, msgspec.json.encode(params))
        headers = [("accept", protocol.ACCEPT), *session.headers(message.method)]
        return _read_answer(await self._ask(session, request_id, headers, body))

    async def _notify(self, session: ClientProtocol, method: str) -> ServerAnswer:
        body = protocol.write_notification(method)
        status, words = await self._wire.send("POST", session.headers(method), body)
        if status >= HTTPStatus.MULTIPLE_CHOICES:
            message = f"The service refused to open a session (status {status})."
            raise SessionError(message, status, words)
        return ServerAnswer()

    async def _ask(
        self, session: ClientProtocol, request_id: bytes, headers: Headers, body: bytes
    ) -> Reply:
        return await self._wire.ask(request_id, headers, body, partial(self._hear, session))

    def _hear(self, session: ClientProtocol, message: RpcMessage) -> None:
        """Take note of a message that is not the response."""
        if message.method == TOOLS_CHANGED:
            self._is_list_stale = True
        elif message.is_request:
            answer = session.answer(message)
            if answer is not None:
                self._wire.send_later("POST", session.headers(), answer)


_OPEN_FAILURES = (
    SessionError,
    RpcError,
    ServerFaultError,
    AnswerTooLargeError,
    TimeoutError,
    *FAILURES,
)
"""The errors of a session that can't be opened. ``_session_error`` has the words for each."""


def _server(execution: McpExecution) -> tuple[str, str, str]:
    return execution.service, execution.base_url, execution.path


def _read_answer(reply: Reply) -> ServerAnswer:
    """Return the answer in a reply to a request that opens a session.

    Raise ``RpcError`` and ``SessionError``.
    """
    message = reply.message
    error = message.rpc_error(reply.status) if message is not None else None
    if error is not None:
        raise error

    if reply.status >= HTTPStatus.MULTIPLE_CHOICES:
        text = f"The service answered with status {reply.status}."
        raise SessionError(text, reply.status, reply.body)
    if message is None:
        raise SessionError(_NOT_MCP)
    return ServerAnswer(bytes(message.result), reply.session_id)


def _session_error(error: Exception) -> SessionError:
    """Return the error for the model and the log. The server's own words are apart in it."""
    match error:
        case SessionError():
            return error
        case RpcError():
            return _refusal_error(error)
        case UnknownVersionError():
            return SessionError("The service speaks no version of MCP that the proxy knows.")
        case SessionIdError():
            return SessionError("The service opened a session without a valid id.")
        case ServerFaultError():
            return SessionError(_NOT_MCP)
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


def _refusal_error(error: RpcError) -> SessionError:
    has_status = error.status is not None and error.status >= HTTPStatus.MULTIPLE_CHOICES
    return SessionError(
        f"The service refused to open a session (error {error.code}).",
        error.status if has_status else None,
        error.message.encode(errors="replace"),
    )
