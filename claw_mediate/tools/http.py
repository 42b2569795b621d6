"""Running managed calls over HTTP (spec/mediation.md section 4, "Executing over HTTP").

The host is the manifest's and no other: redirects are not followed, environment proxies are not used. Connections are
pooled per agent and service, so that no two agents share one. What a service says is data: bounded, and scrubbed of the
credentials that it was sent.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx2

from claw_contract.manifest import Auth, BasicAuth, BearerAuth, HeaderAuth, HttpExecution, NoAuth
from claw_contract.redaction.redactor import Redactor
from claw_contract.secret import Secret
from claw_mediate.agents.directory import Agent
from claw_mediate.core import tool_result
from claw_mediate.core.observer import (
    NO_OBSERVER,
    ExchangeObserver,
    RequestInfo,
    ResponseInfo,
    Subject,
    TurnObserver,
    mask_values,
)
from claw_mediate.core.tool_call import ToolRequest, build_http_request, round_of_key, write_arguments
from claw_mediate.core.types import Arguments, ToolCall, ToolResult
from claw_mediate.file_cache import MissingCredentialError, resolve_secret
from claw_mediate.http.client import ConnectionPool, tls_context
from claw_mediate.http.content_coding import read_bounded
from claw_mediate.http.headers import Headers, basic, bearer, in_ascii

MAX_BODY_BYTES = 64 * 1024 * 1024
"""A service that sends more is cut off: its answer is ``response_too_large``."""
_IDLE_SECONDS = 4.0
"""Connections are dropped before common servers drop them (5 s): a write on a connection that is just being closed has an
unknown outcome."""


@dataclass(frozen=True, slots=True)
class CallContext:
    """On whose behalf a call is made."""

    agent: Agent
    turn_id: str
    redactor: Redactor = field(default_factory=lambda: Redactor(()))
    """Of all secrets that are known: a service may say what another one told it."""
    onlooker: TurnObserver = NO_OBSERVER


class HttpToolExecutor:
    """The pod's services, as their granted callers reach them."""

    def __init__(self, secrets: Path) -> None:
        self._secrets = secrets
        self._tls = tls_context()
        self._connections: dict[tuple[str, str, str], ConnectionPool] = {}

    async def call(self, caller: CallContext, call: ToolCall, key: str, seconds: float) -> ToolResult:
        """One call, in at most ``seconds``. ``key`` is stable for that call of that turn. Raises nothing but cancellation."""
        started = time.monotonic()
        assert call.tool is not None
        allowed = seconds
        if (own := call.tool.annotations.timeout_ms) is not None:
            allowed = min(seconds, own / 1000)
        try:
            async with asyncio.timeout(allowed):
                answer = await self._run(caller, call, key)
        except TimeoutError:
            answer = tool_result.timeout(call, allowed)
        return replace(answer, latency_ms=round((time.monotonic() - started) * 1000))

    async def close(self) -> None:
        for connections in self._connections.values():
            await connections.close()
        self._connections.clear()

    async def _run(self, caller: CallContext, call: ToolCall, key: str) -> ToolResult:
        assert call.tool is not None
        assert isinstance(call.tool.execution, HttpExecution)
        assert isinstance(call.arguments, Arguments)
        request = build_http_request(call.tool, call.arguments, caller.agent.id)
        if isinstance(request, str):
            return _unmade(caller, key, tool_result.invalid_arguments(call, request))
        try:
            credentials, secrets = self._credentials(call.tool.execution.auth)
        except MissingCredentialError:
            answer = tool_result.request_failed(call, "The tool's credential is not available.", sent=False)
            return _unmade(caller, key, answer)
        headers = _identity(caller, call, key)
        if request.body is not None:
            headers.append(("content-type", "application/json"))
        caller = replace(caller, redactor=caller.redactor.with_secrets(secrets))
        base_url = call.tool.execution.base_url.rstrip("/")
        shown = [*mask_values(credentials), *headers]
        asked = RequestInfo(request.method, base_url + request.target, shown, request.body or b"")
        about = Subject("tool", round_of_key(key), call.canonical)
        with caller.onlooker.observe(about, asked, caller.redactor) as heard:
            answer = await self._send(caller, call, request, [*credentials, *headers], heard)
            heard.on_failure(answer.code or "")  # where it has not answered
        return answer

    async def _send(
        self, caller: CallContext, call: ToolCall, request: ToolRequest, headers: Headers, heard: ExchangeObserver
    ) -> ToolResult:
        assert call.tool is not None
        agent, redactor = caller.agent, caller.redactor
        limit = call.tool.annotations.max_result_bytes or agent.limits.result_bytes
        execution = call.tool.execution
        connections = self._of(agent.id, execution.service, execution.base_url)
        try:
            sent = in_ascii(headers)
            asked = connections.stream(request.method, execution.base_url, sent, request.body, below=request.target)
            async with asked as response:
                body, size = await read_bounded(response, limit + 4 + redactor.max_form_bytes, MAX_BODY_BYTES)
        except (httpx2.InvalidURL, httpx2.LocalProtocolError, UnicodeError):
            return tool_result.request_failed(call, "The service can't be called as it is configured.", sent=False)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.UnsupportedProtocol):
            return tool_result.request_failed(call, "The service can't be reached.", sent=False)
        except httpx2.HTTPError:
            return tool_result.request_failed(call, "The service broke off its answer.", sent=True)
        if size > MAX_BODY_BYTES:
            return tool_result.failure(
                call, tool_result.RESPONSE_TOO_LARGE, "The service's answer is too large.", ran=True
            )
        # Before the result is made: what is cut must not be cut through a credential, and what is JSON stays JSON.
        body = redactor.document(redactor.cut(body, limit) if size > limit else body)
        heard.on_response(ResponseInfo(response.status_code, response.headers.get("content-type", ""), body, size))
        return tool_result.read_http_response(call, response.status_code, body, size, limit)

    def _of(self, agent_id: str, service: str, base_url: str) -> ConnectionPool:
        key = (agent_id, service, base_url)
        if key not in self._connections:
            self._connections[key] = ConnectionPool(self._tls, idle=_IDLE_SECONDS)
        return self._connections[key]

    def _credentials(self, auth: Auth) -> tuple[Headers, list[Secret]]:
        match auth:
            case NoAuth():
                return [], []
            case BearerAuth(token=value):
                token = resolve_secret(self._secrets, value)
                return [bearer(token)], [token]
            case HeaderAuth(header=name, token=value):
                token = resolve_secret(self._secrets, value)
                return [(name, token.reveal())], [token]
            case BasicAuth(username=username, password=kept):
                password = resolve_secret(self._secrets, kept)
                name, header = basic(username, password)
                return [(name, header)], [password, Secret(header.removeprefix("Basic "))]


def _unmade(caller: CallContext, key: str, answer: ToolResult) -> ToolResult:
    """The answer to a call that is not made, which whoever looks on is told of."""
    about = Subject("tool", round_of_key(key), answer.call.canonical)
    caller.onlooker.report_not_made(about, write_arguments(answer.call), answer.code or "")
    return answer


def _identity(caller: CallContext, call: ToolCall, key: str) -> Headers:
    headers = [
        ("accept", "application/json"),
        ("user-agent", "clawdapus"),
        ("x-claw-id", caller.agent.id),
        ("x-claw-turn", caller.turn_id),
    ]
    if call.tool is not None and call.tool.effect != "read":
        headers.append(("idempotency-key", key))
    return headers
