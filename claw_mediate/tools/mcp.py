"""Execution of managed calls over MCP (docs/spec/mcp.md, "Tools over MCP").

A call is one ``tools/call``. It is repeated in a new session after 404 in a session that was known,
because the server did not process it then; nothing else is sent twice. Agents share no session and
no connection.
"""

import asyncio
import ssl
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
from claw_mediate.tools.mcp_session import McpConnection, Session, SessionError
from claw_mediate.tools.mcp_wire import FAILURES, AnswerTooLargeError, Reply

SESSION_IDLE_SECONDS = (
    600.0  # An unused session is ended after this time; servers keep one for 30 minutes
)
_CLOSE_SECONDS = 0.4  # For the ends of all sessions when the proxy stops
_MAX_WORDS = 4096  # Bytes of what a server says when it refuses a session
_MAX_LOGGED_WORDS = 500
_NOT_FOUND, _REDIRECT, _FIRST_ERROR = 404, 300, 400


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
            if connection.uses == 0 and self._connections.get(key) is not connection:
                self._end(connection)  # it was released while it was used

    def release(self, agent_id: str) -> None:
        """End the sessions of an agent, each once no call uses it."""
        for key in [key for key in self._connections if key.agent_id == agent_id]:
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
        """Make the call, and once more after 404 in a session that was known."""
        for may_repeat in (True, False):
            try:
                session = await connection.open(managed.until)
            except SessionError as error:
                return managed.refuse(self._not_opened(managed, error))
            if (problem := self._find_problem(managed, connection, session)) is not None:
                return managed.refuse(problem)
            status, result = await self._call(managed, connection, session)
            if status != _NOT_FOUND or session.id is None or not may_repeat:
                break
            connection.drop(session)
        return replace(result, mcp=session.record)

    async def _call(
        self, managed: ManagedCall, connection: McpConnection, session: Session
    ) -> tuple[int | None, ToolResult]:
        """Return the status and the result of one request."""
        tool = managed.tool
        assert isinstance(tool.execution, McpExecution)
        request_id = connection.next_id()
        params = build_mcp_params(tool, managed.arguments, managed.context.agent.id, session.meta)
        body = protocol.write_request(request_id, "tools/call", params)
        headers = session.headers("tools/call", tool.execution.tool_name)
        if session.is_stateless:
            headers += protocol.param_headers(tool.input_schema, _plain_arguments(managed))
        headers += managed.own_headers(protocol.ACCEPT)

        def describe() -> RequestInfo:
            return RequestInfo(
                "POST",
                connection.url,
                _shown_headers(connection, session, headers),
                body,
                session.server,
            )

        with managed.context.observer.observe(
            managed.subject, describe, managed.context.redactor
        ) as exchange:
            try:
                reply = await connection.ask(session, request_id, headers, body)
            except (AnswerTooLargeError, *FAILURES) as error:
                result = (
                    too_large(managed.call)
                    if isinstance(error, AnswerTooLargeError)
                    else managed.fail(error)
                )
                exchange.on_failure(result.code or "")
                return None, result
            exchange.on_response(ResponseInfo(reply.status, reply.content_type, reply.body))
            return reply.status, await compute(len(reply.body), lambda: _read_reply(managed, reply))

    def _find_problem(
        self, managed: ManagedCall, connection: McpConnection, session: Session
    ) -> ToolResult | None:
        """Return the result of a call whose tool the server has changed; log each
        such tool of the agent once a session.
        """
        execution = managed.tool.execution
        assert isinstance(execution, McpExecution)
        for name, reason in connection.find_changes(session, managed.context.agent, execution):
            if self._log is not None:
                intervention = f"managed_tool_quarantined:{name}"
                self._log.event(
                    "intervention",
                    managed.context.agent,
                    intervention=intervention,
                    tool=name,
                    reason=reason,
                )
        if session.listing.find_problem(managed.tool) is None:
            return None
        message = (
            "The service has changed this tool since it was granted, so that it is not "
            "called. Use another tool."
        )
        return tool_result.request_failed(managed.call, message, sent=False)

    def _not_opened(self, managed: ManagedCall, error: SessionError) -> ToolResult:
        """Return the result of a call that was not sent, because its session could
        not be opened; log the server's words.
        """
        redactor = managed.context.redactor
        limit = min(managed.max_bytes, _MAX_WORDS)
        words = redactor.document(redactor.cut(error.words, limit)).strip()
        if words and self._log is not None:
            execution = managed.tool.execution
            assert isinstance(execution, McpExecution)
            said = tool_result.utf8_prefix(words, _MAX_LOGGED_WORDS)
            intervention = f"mcp_session_refused:{execution.service}"
            self._log.event(
                "intervention",
                managed.context.agent,
                intervention=intervention,
                reason=f"{error}: {said}",
            )

        details, _ = tool_result.read_body(words, len(words), limit)
        if error.status is None:
            return tool_result.failure(
                managed.call, tool_result.REQUEST_FAILED, str(error), details=details
            )
        if error.status < _FIRST_ERROR:
            return tool_result.redirect_refused(managed.call, error.status, ran=False)
        code = f"http_{error.status}"
        return tool_result.failure(
            managed.call, code, str(error), details=details, status_code=error.status
        )

    def _connection(self, key: _Key, credentials: Headers) -> McpConnection:
        connection = self._connections.get(key)
        if connection is not None and connection.credentials != credentials:
            self._release(key)
            connection = None
        if connection is None:
            pool = ConnectionPool(self._tls, idle=IDLE_SECONDS)
            connection = self._connections[key] = McpConnection(
                pool, key.url, credentials, self._versions
            )
        if self._sweep_timer is None:
            self._sweep_timer = asyncio.get_running_loop().call_later(
                SESSION_IDLE_SECONDS, self._sweep
            )
        return connection

    def _release(self, key: _Key) -> None:
        connection = self._connections.pop(key)
        if connection.uses == 0:
            self._end(connection)

    def _end(self, connection: McpConnection) -> None:
        task = asyncio.ensure_future(connection.end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _sweep(self) -> None:
        """End the sessions that were not used for a while."""
        now = asyncio.get_running_loop().time()
        self._sweep_timer = None
        for key, connection in list(self._connections.items()):
            if connection.uses == 0 and now - connection.last_used >= SESSION_IDLE_SECONDS:
                self._release(key)
        if self._connections:
            oldest = min(connection.last_used for connection in self._connections.values())
            wait = max(SESSION_IDLE_SECONDS / 4, oldest + SESSION_IDLE_SECONDS - now)
            self._sweep_timer = asyncio.get_running_loop().call_later(wait, self._sweep)

    @staticmethod
    def _key(managed: ManagedCall) -> _Key:
        execution = managed.tool.execution
        assert isinstance(execution, McpExecution)
        url = execution.base_url.rstrip("/") + execution.path
        return _Key(managed.context.agent.id, execution.service, url, execution.auth)


def _shown_headers(connection: McpConnection, session: Session, headers: Headers) -> Headers:
    """Return the headers as an observer sees them: without the credential and the
    whole id of the session.
    """
    shown = [*mask_values(connection.credentials), ("content-type", protocol.JSON_TYPE), *headers]
    return [
        (name, session.record.session or "" if name == protocol.SESSION_ID else value)
        for name, value in shown
    ]


def _plain_arguments(managed: ManagedCall) -> JsonObject:
    return {**managed.arguments.values, CLAW_ID: managed.context.agent.id}


def _read_reply(managed: ManagedCall, reply: Reply) -> ToolResult:
    call, redactor, limit = managed.call, managed.context.redactor, managed.max_bytes
    result = (
        read_call_result(call, reply.message, redactor, limit)
        if reply.message is not None
        else None
    )
    if result is not None:
        return result
    if reply.status >= _REDIRECT:
        size = len(reply.body)
        body = redactor.document(redactor.cut(reply.body, limit) if size > limit else reply.body)
        return tool_result.read_http_response(call, reply.status, body, size, limit)
    return tool_result.request_failed(
        call, "The service's answer is no result of a tool.", sent=True
    )
