"""Execution of managed calls over MCP (docs/spec/mcp.md, "Tools over MCP").

A call is one ``tools/call``. It is repeated in a new session after 404 in a session that was known,
because the server did not process it then; nothing else is sent twice. Agents share no session and
no connection.
"""

import asyncio
import ssl
from http import HTTPStatus
from typing import NamedTuple

from msgspec.structs import replace

from claw_contract.base import JsonObject
from claw_contract.manifest import CLAW_ID, Auth, McpExecution
from claw_mcp import protocol
from claw_mediate.core import tool_result
from claw_mediate.core.mcp_result import read_call_result
from claw_mediate.core.observer import RequestInfo, ResponseInfo, mask_values
from claw_mediate.core.tool_call import build_mcp_params
from claw_mediate.core.types import ToolResult
from claw_mediate.http.client import ConnectionPool
from claw_mediate.http.headers import Headers
from claw_mediate.http.large_bodies import compute
from claw_mediate.telemetry.event_log import EventLog
from claw_mediate.tools.managed_call import IDLE_SECONDS, ManagedCall, too_large
from claw_mediate.tools.mcp_session import McpConnection, McpSession, SessionError
from claw_mediate.tools.mcp_wire import FAILURES, AnswerTooLargeError, Reply

SESSION_IDLE_SECONDS = 600.0  # Until an unused session is ended; servers keep one for 30 minutes
_CLOSE_SECONDS = 0.4  # For the ends of all sessions when the proxy stops
_MAX_WORDS = 4096  # Bytes of what a server says when it refuses a session
_MAX_LOGGED_WORDS = 500  # Bytes of the same in an event


class _Key(NamedTuple):
    """The owner and the server of a connection.

    The credential itself is compared when it is used: its file may change.
    """

    agent_id: str
    service: str
    url: str
    auth: Auth


class McpTransport:
    """The connections of all agents to MCP servers."""

    def __init__(self, tls: ssl.SSLContext, log: EventLog | None) -> None:
        self._tls = tls
        self._log = log
        self._connections: dict[_Key, McpConnection] = {}
        self._versions: dict[str, str] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._sweep_timer: asyncio.TimerHandle | None = None

    async def run(self, managed: ManagedCall) -> ToolResult:
        """Make the call and return its result."""
        key = self._key(managed)
        connection = self._connection(key, managed.credentials)

        connection.uses += 1
        try:
            return await self._run(managed, connection)
        finally:
            connection.uses -= 1
            connection.last_used = asyncio.get_running_loop().time()
            was_released = self._connections.get(key) is not connection
            if was_released and connection.uses == 0:
                self._end(connection)

    def release(self, agent_id: str) -> None:
        """End the sessions of an agent, each once no call uses it."""
        own_keys = [key for key in self._connections if key.agent_id == agent_id]
        for key in own_keys:
            self._release(key)

    async def close(self) -> None:
        """End every session."""
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        for key in list(self._connections):
            self._end(self._connections.pop(key))

        if self._ending:
            _, late = await asyncio.wait(self._ending, timeout=_CLOSE_SECONDS)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)

    async def _run(self, managed: ManagedCall, connection: McpConnection) -> ToolResult:
        """Make the call, and once more in a new session if the server does not know this one."""
        for may_repeat in (True, False):
            try:
                session = await connection.open(managed.until)
            except SessionError as error:
                return managed.refuse(self._not_opened(managed, error))

            problem = self._find_problem(managed, connection, session)
            if problem is not None:
                return managed.refuse(problem)

            status, result = await self._call(managed, connection, session)
            if not session.protocol.is_unknown(status) or not may_repeat:
                break
            connection.drop(session)

        return replace(result, mcp=session.record)

    async def _call(
        self, managed: ManagedCall, connection: McpConnection, session: McpSession
    ) -> tuple[int | None, ToolResult]:
        """Make one request. Return (its HTTP status, None if there was no reply; the result)."""
        tool = managed.tool
        assert isinstance(tool.execution, McpExecution)
        request_id = connection.next_id()
        params = build_mcp_params(tool, managed.arguments, managed.agent.id, session.meta)
        body = protocol.write_request(request_id, "tools/call", params)

        headers = session.headers("tools/call", tool.execution.tool_name)
        if session.is_stateless:
            headers += protocol.param_headers(tool.input_schema, _plain_arguments(managed))
        headers += managed.own_headers(protocol.ACCEPT)

        def describe() -> RequestInfo:
            shown_headers = _shown_headers(connection, session, headers)
            return RequestInfo("POST", connection.url, shown_headers, body, session.server)

        observer = managed.observer
        with observer.observe(managed.subject, describe, managed.redactor) as exchange:
            try:
                reply = await connection.ask(session, request_id, headers, body)
            except AnswerTooLargeError:
                result = too_large(managed.call)
            except FAILURES as error:
                result = managed.fail(error)
            else:
                exchange.on_response(ResponseInfo(reply.status, reply.content_type, reply.body))
                result = await compute(len(reply.body), lambda: _read_reply(managed, reply))
                return reply.status, result

            exchange.on_failure(result.code or "")
            return None, result

    def _find_problem(
        self, managed: ManagedCall, connection: McpConnection, session: McpSession
    ) -> ToolResult | None:
        """Return the result of a call whose tool is not as it was granted; None for any other.

        Log each such tool of the agent, once a session.
        """
        execution = managed.tool.execution
        assert isinstance(execution, McpExecution)
        for name, reason in connection.find_changes(session, managed.agent, execution):
            if self._log is not None:
                self._log.event(
                    "intervention",
                    managed.agent,
                    intervention=f"managed_tool_quarantined:{name}",
                    tool=name,
                    reason=reason,
                )

        drift = session.listing.find_drift(managed.tool)
        if drift is None:
            return None
        return tool_result.request_failed(managed.call, drift.message, sent=False)

    def _not_opened(self, managed: ManagedCall, error: SessionError) -> ToolResult:
        """Return the result of a call that was not sent, because there is no session.

        Log what the server says of that.
        """
        redactor = managed.redactor
        limit = min(managed.max_bytes, _MAX_WORDS)
        words = redactor.document(redactor.cut(error.words, limit)).strip()
        if words:
            self._log_refusal(managed, error, words)

        details, _ = tool_result.read_body(words, len(words), limit)
        if error.status is None:
            return tool_result.failure(
                managed.call, tool_result.REQUEST_FAILED, str(error), details=details
            )
        if error.status < HTTPStatus.BAD_REQUEST:
            return tool_result.redirect_refused(managed.call, error.status, ran=False)
        return tool_result.failure(
            managed.call,
            f"http_{error.status}",
            str(error),
            details=details,
            status_code=error.status,
        )

    def _log_refusal(self, managed: ManagedCall, error: SessionError, words: bytes) -> None:
        """Log that a server refuses a session; ``words``: what it says, redacted."""
        if self._log is None:
            return
        execution = managed.tool.execution
        assert isinstance(execution, McpExecution)
        said = tool_result.utf8_prefix(words, _MAX_LOGGED_WORDS)
        self._log.event(
            "intervention",
            managed.agent,
            intervention=f"mcp_session_refused:{execution.service}",
            reason=f"{error}: {said}",
        )

    def _connection(self, key: _Key, credentials: Headers) -> McpConnection:
        """Return the connection of a key, with these credentials; make it if there is none."""
        connection = self._connections.get(key)
        if connection is not None and connection.credentials != credentials:
            self._release(key)
            connection = None

        if connection is None:
            pool = ConnectionPool(self._tls, idle=IDLE_SECONDS)
            connection = McpConnection(pool, key.url, credentials, self._versions)
            self._connections[key] = connection

        if self._sweep_timer is None:
            loop = asyncio.get_running_loop()
            self._sweep_timer = loop.call_later(SESSION_IDLE_SECONDS, self._sweep)
        return connection

    def _release(self, key: _Key) -> None:
        """Use a connection for no further call, and end it once no call uses it."""
        connection = self._connections.pop(key)
        if connection.uses == 0:
            self._end(connection)

    def _end(self, connection: McpConnection) -> None:
        task = asyncio.ensure_future(connection.end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _sweep(self) -> None:
        """End the sessions that were not used for a while."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._sweep_timer = None

        for key, connection in list(self._connections.items()):
            if connection.uses == 0 and now - connection.last_used >= SESSION_IDLE_SECONDS:
                self._release(key)

        if self._connections:
            oldest = min(connection.last_used for connection in self._connections.values())
            wait = max(SESSION_IDLE_SECONDS / 4, oldest + SESSION_IDLE_SECONDS - now)
            self._sweep_timer = loop.call_later(wait, self._sweep)

    @staticmethod
    def _key(managed: ManagedCall) -> _Key:
        execution = managed.tool.execution
        assert isinstance(execution, McpExecution)
        url = execution.base_url.rstrip("/") + execution.path
        return _Key(managed.agent.id, execution.service, url, execution.auth)


def _shown_headers(connection: McpConnection, session: McpSession, headers: Headers) -> Headers:
    """Return the headers for an observer: without the credential and the session's whole id."""
    shown = [*mask_values(connection.credentials), ("content-type", protocol.JSON_TYPE), *headers]
    shown_id = session.record.session or ""
    return [(name, shown_id if name == protocol.SESSION_ID else value) for name, value in shown]


def _plain_arguments(managed: ManagedCall) -> JsonObject:
    return {**managed.arguments.values, CLAW_ID: managed.agent.id}


def _read_reply(managed: ManagedCall, reply: Reply) -> ToolResult:
    """Return the result in a reply: a result of MCP, else its status, else a failure."""
    call = managed.call
    redactor = managed.redactor
    limit = managed.max_bytes

    if reply.message is not None:
        result = read_call_result(call, reply.message, redactor, limit)
        if result is not None:
            return result

    if reply.status >= HTTPStatus.MULTIPLE_CHOICES:
        size = len(reply.body)
        body = redactor.cut(reply.body, limit) if size > limit else reply.body
        return tool_result.read_http_response(
            call, reply.status, redactor.document(body), size, limit
        )
    return tool_result.request_failed(
        call, "The service's answer is no result of a tool.", sent=True
    )
