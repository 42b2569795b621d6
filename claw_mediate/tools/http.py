"""Execution of managed calls over HTTP (docs/spec/mediation.md section 4, "Executing over HTTP").

Only the manifest's host is contacted: no redirects, no proxies of the environment. Connections are pooled by agent and service,
so that agents share none. A service's answer is data: bounded, and scrubbed of the credentials that the service received.
"""

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
from claw_mediate.http.client import ConnectionPools
from claw_mediate.http.content_coding import read_bounded
from claw_mediate.http.headers import Headers, ascii_headers, basic, bearer

MAX_BODY_BYTES = 64 * 1024 * 1024  # Reading stops at this size; the result is then ``response_too_large``
_IDLE_SECONDS = 4.0
"""Less than the 5 s after which common servers close: the outcome of a request sent at that moment is unknown."""


@dataclass(frozen=True, slots=True)
class CallContext:
    """The agent and turn that a call belongs to."""

    agent: Agent
    turn_id: str
    redactor: Redactor = field(default_factory=lambda: Redactor(()))
    """Knows all secrets: a service may repeat what another one said."""
    observer: TurnObserver = NO_OBSERVER


class HttpToolExecutor:
    """Client of the pod's services."""

    def __init__(self, secrets: Path) -> None:
        self._secrets = secrets
        self._pools = ConnectionPools[tuple[str, str, str]](idle=_IDLE_SECONDS)  # By agent, service and base URL
        assert self._pools.tls  # created at start, and not in the first call

    async def call(self, context: CallContext, call: ToolCall, key: str, seconds: float) -> ToolResult:
        """Execute one call in at most ``seconds``; raise nothing but cancellation.

        ``key`` identifies the call within its turn and is the same when the turn is repeated.
        """
        started = time.monotonic()
        assert call.tool is not None
        limit = seconds
        if (own := call.tool.annotations.timeout_ms) is not None:
            limit = min(seconds, own / 1000)
        try:
            async with asyncio.timeout(limit):
                result = await self._execute(context, call, key)
        except TimeoutError:
            result = tool_result.timeout(call, limit)
        return replace(result, latency_ms=round((time.monotonic() - started) * 1000))

    async def close(self) -> None:
        await self._pools.close()

    async def _execute(self, context: CallContext, call: ToolCall, key: str) -> ToolResult:
        assert call.tool is not None
        assert isinstance(call.tool.execution, HttpExecution)
        assert isinstance(call.arguments, Arguments)
        request = build_http_request(call.tool, call.arguments, context.agent.id)
        if isinstance(request, str):
            return _not_sent(context, key, tool_result.invalid_arguments(call, request))
        try:
            credentials, secrets = self._credentials(call.tool.execution.auth)
        except MissingCredentialError:
            result = tool_result.request_failed(call, "The tool's credential is not available.", sent=False)
            return _not_sent(context, key, result)
        headers = _context_headers(context, call, key)
        if request.body is not None:
            headers.append(("content-type", "application/json"))
        context = replace(context, redactor=context.redactor.with_secrets(secrets))
        base_url = call.tool.execution.base_url.rstrip("/")
        shown = [*mask_values(credentials), *headers]
        info = RequestInfo(request.method, base_url + request.target, shown, request.body or b"")
        subject = Subject("tool", round_of_key(key), call.canonical)
        with context.observer.observe(subject, info, context.redactor) as exchange:
            result = await self._send(context, call, request, [*credentials, *headers], exchange)
            exchange.on_failure(result.code or "")  # ignored after a response
        return result

    async def _send(
        self, context: CallContext, call: ToolCall, request: ToolRequest, headers: Headers, exchange: ExchangeObserver
    ) -> ToolResult:
        assert call.tool is not None
        agent, redactor, execution = context.agent, context.redactor, call.tool.execution
        limit = call.tool.annotations.max_result_bytes or agent.limits.result_bytes
        pool = self._pools[agent.id, execution.service, execution.base_url]
        try:
            raw, url = ascii_headers(headers), execution.base_url
            async with pool.stream(request.method, url, raw, request.body, path=request.target) as response:
                body, size = await read_bounded(response, limit + 4 + redactor.max_form_bytes, MAX_BODY_BYTES)
        except (httpx2.InvalidURL, httpx2.LocalProtocolError, UnicodeError):
            return tool_result.request_failed(call, "The service can't be called as it is configured.", sent=False)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.UnsupportedProtocol):
            return tool_result.request_failed(call, "The service can't be reached.", sent=False)
        except httpx2.HTTPError:
            return tool_result.request_failed(call, "The service broke off its answer.", sent=True)
        if size > MAX_BODY_BYTES:
            return tool_result.failure(call, tool_result.RESPONSE_TOO_LARGE, "The service's answer is too large.", ran=True)
        # Before the result is built: cutting must not split a credential, and JSON must stay JSON.
        body = redactor.document(redactor.cut(body, limit) if size > limit else body)
        exchange.on_response(ResponseInfo(response.status_code, response.headers.get("content-type", ""), body, size))
        return tool_result.read_http_response(call, response.status_code, body, size, limit)

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


def _not_sent(context: CallContext, key: str, result: ToolResult) -> ToolResult:
    """Report to the observer a call that is not sent; return its result."""
    subject = Subject("tool", round_of_key(key), result.call.canonical)
    context.observer.report_not_made(subject, write_arguments(result.call), result.code or "")
    return result


def _context_headers(context: CallContext, call: ToolCall, key: str) -> Headers:
    headers = [
        ("accept", "application/json"),
        ("user-agent", "clawdapus"),
        ("x-claw-id", context.agent.id),
        ("x-claw-turn", context.turn_id),
    ]
    if call.tool is not None and call.tool.effect != "read":
        headers.append(("idempotency-key", key))
    return headers
