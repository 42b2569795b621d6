"""Execution of managed calls over HTTP (docs/spec/mediation.md section 4, "Executing over HTTP").

Only the manifest's host is contacted: no redirects, no proxies of the environment. Connections are
pooled by agent and service, so that agents share none.
"""

import httpx2

from claw_contract.manifest import HttpExecution
from claw_mediate.core import tool_result
from claw_mediate.core.observer import ExchangeObserver, RequestInfo, ResponseInfo, mask_values
from claw_mediate.core.tool_call import ToolRequest, build_http_request
from claw_mediate.core.types import ToolResult
from claw_mediate.http.bounded_body import read_bounded
from claw_mediate.http.client import ConnectionPools
from claw_mediate.http.headers import Headers, ascii_headers
from claw_mediate.tools.managed_call import IDLE_SECONDS, MAX_BODY_BYTES, ManagedCall, too_large


class HttpTransport:
    """One request for each call."""

    def __init__(self) -> None:
        # By agent, service and base URL
        self._pools = ConnectionPools[tuple[str, str, str]](idle=IDLE_SECONDS)
        self.tls = self._pools.tls

    async def run(self, managed: ManagedCall) -> ToolResult:
        """Make the call and return its result."""
        execution = managed.tool.execution
        assert isinstance(execution, HttpExecution)
        request = build_http_request(managed.tool, managed.arguments, managed.agent.id)
        if isinstance(request, str):
            return managed.refuse(tool_result.invalid_arguments(managed.call, request))

        headers = managed.own_headers("application/json")
        if request.body is not None:
            headers.append(("content-type", "application/json"))

        def describe() -> RequestInfo:
            url = execution.base_url.rstrip("/") + request.target
            shown_headers = [*mask_values(managed.credentials), *headers]
            return RequestInfo(request.method, url, shown_headers, request.body or b"")

        observer = managed.observer
        with observer.observe(managed.subject, describe, managed.redactor) as exchange:
            result = await self._send(managed, request, [*managed.credentials, *headers], exchange)
            exchange.on_failure(result.code or "")  # ignored after a response
        return result

    async def close(self) -> None:
        await self._pools.close()

    async def _send(
        self,
        managed: ManagedCall,
        request: ToolRequest,
        headers: Headers,
        exchange: ExchangeObserver,
    ) -> ToolResult:
        """Send the request once and return the result of its response, or of its failure."""
        execution = managed.tool.execution
        redactor = managed.redactor
        limit = managed.max_bytes
        url = execution.base_url
        pool = self._pools[managed.agent.id, execution.service, url]

        # More than is shown: a character, or a secret, may be divided by the limit.
        max_kept = limit + 4 + redactor.max_form_bytes
        try:
            raw = ascii_headers(headers)
            async with pool.stream(
                request.method, url, raw, request.body, path=request.target
            ) as response:
                body, size = await read_bounded(response, max_kept, MAX_BODY_BYTES)
        except (httpx2.HTTPError, httpx2.InvalidURL, UnicodeError) as error:
            return managed.fail(error)
        if size > MAX_BODY_BYTES:
            return too_large(managed.call)

        # Redact before the result is built: cutting must not split a credential, and JSON must stay
        # JSON.
        if size > limit:
            body = redactor.cut(body, limit)
        body = redactor.document(body)

        status = response.status_code
        content_type = response.headers.get("content-type", "")
        exchange.on_response(ResponseInfo(status, content_type, body, size))
        return tool_result.read_http_response(managed.call, status, body, size, limit)
