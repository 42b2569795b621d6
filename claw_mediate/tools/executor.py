"""Execution of managed calls (docs/spec/mediation.md section 4).

Here are the time limit and the credentials of a call; a transport makes it.
"""

import asyncio
import time
from pathlib import Path

from msgspec.structs import replace

from claw_contract.manifest import (
    Auth,
    BasicAuth,
    BearerAuth,
    HeaderAuth,
    HttpExecution,
    McpExecution,
    NoAuth,
)
from claw_contract.secret import Secret
from claw_mediate.agents.directory import Agent
from claw_mediate.core import tool_result
from claw_mediate.core.observer import TurnObserver
from claw_mediate.core.types import ToolCall, ToolResult
from claw_mediate.file_cache import MissingCredentialError, resolve_secret
from claw_mediate.http.headers import Headers, basic, bearer
from claw_mediate.telemetry.event_log import EventLog
from claw_mediate.tools.http import HttpTransport
from claw_mediate.tools.managed_call import ManagedCall, Transport, report_not_made
from claw_mediate.tools.mcp import McpTransport


class ToolExecutor:
    """Client of the pod's services."""

    def __init__(self, secrets: Path, log: EventLog | None = None) -> None:
        self._secrets = secrets
        http = HttpTransport()
        self._mcp = McpTransport(http.tls, log)
        self._transports: dict[type, Transport] = {HttpExecution: http, McpExecution: self._mcp}

    async def call(
        self, agent: Agent, observer: TurnObserver, call: ToolCall, key: str, seconds: float
    ) -> ToolResult:
        """Execute one call in at most ``seconds``; raise nothing but cancellation.

        ``key`` identifies the call within its turn and is the same when the turn is repeated.
        """
        started = time.monotonic()
        assert call.tool is not None
        limit = seconds
        own_limit_ms = call.tool.annotations.timeout_ms
        if own_limit_ms is not None:
            limit = min(seconds, own_limit_ms / 1000)

        try:
            async with asyncio.timeout(limit):
                until = asyncio.get_running_loop().time() + limit
                result = await self._execute(agent, observer, call, key, until)
        except TimeoutError:
            result = tool_result.timeout(call, limit)

        return replace(result, latency_ms=round((time.monotonic() - started) * 1000))

    def release(self, agent_id: str) -> None:
        """End the sessions of an agent whose files have changed, each once no call uses it."""
        self._mcp.release(agent_id)

    async def close(self) -> None:
        for transport in self._transports.values():
            await transport.close()

    async def _execute(
        self, agent: Agent, observer: TurnObserver, call: ToolCall, key: str, until: float
    ) -> ToolResult:
        assert call.tool is not None
        try:
            credentials, secrets = self._credentials(call.tool.execution.auth)
        except MissingCredentialError:
            result = tool_result.request_failed(
                call, "The tool's credential is not available.", sent=False
            )
            return report_not_made(observer, key, result)

        redactor = observer.redactor.with_secrets(secrets)
        managed = ManagedCall(agent, observer, redactor, call, key, credentials, until)
        return await self._transports[type(call.tool.execution)].run(managed)

    def _credentials(self, auth: Auth) -> tuple[Headers, list[Secret]]:
        """Return (the headers, the secrets in them). Raise ``MissingCredentialError``."""
        match auth:
            case NoAuth():
                return [], []
            case BearerAuth(token=value):
                token = resolve_secret(self._secrets, value)
                return [bearer(token)], [token]
            case HeaderAuth(header=name, token=value):
                token = resolve_secret(self._secrets, value)
                return [(name, token.reveal())], [token]
            case BasicAuth(username=username, password=value):
                password = resolve_secret(self._secrets, value)
                name, header = basic(username, password)
                return [(name, header)], [password, Secret(header.removeprefix("Basic "))]
