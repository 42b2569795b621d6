"""HTTP client for providers: one request, one whole response or one defined failure that names no address."""

from __future__ import annotations

from dataclasses import dataclass

import httpx2

from claw_mediate.core.model_policy import Provider
from claw_mediate.http.client import ConnectionPool, tls_context
from claw_mediate.http.content_coding import read_bounded
from claw_mediate.http.headers import Headers, raw_headers

MAX_RESPONSE_BYTES = 16 * 1024 * 1024  # A longer response is a fault of the provider
CONNECT_SECONDS = 10.0
_IDLE_SECONDS = 4.0  # Less than the 5 s after which common servers close: a request sent at that moment is lost
MISCONFIGURED = "provider_misconfigured"
UNREACHABLE = "provider_unreachable"
BROKE_OFF = "provider_broke_off"
TOO_LARGE = "provider_response_too_large"


@dataclass(frozen=True, slots=True)
class ProviderResponse:
    """A whole response of any status."""

    status: int
    content_type: str
    body: bytes
    retry_after: str = ""


@dataclass(frozen=True, slots=True)
class TransportFailure:
    """No usable response. ``message`` names no address; ``status`` and ``retry_after`` are for the runner."""

    code: str
    message: str
    status: int = 502
    retry_after: str = ""


type ProviderResult = ProviderResponse | TransportFailure


class ProviderClient:
    """Client with a connection pool for each agent, so that no agent can read another's response."""

    def __init__(self) -> None:
        self._tls = tls_context()
        self._pools: dict[str, ConnectionPool] = {}

    async def send(self, agent_id: str, provider: Provider, path: str, headers: Headers, body: bytes) -> ProviderResult:
        """POST to ``path`` (with query) below the provider's base URL. The caller bounds the time."""
        pool = self._pool(agent_id)
        try:
            async with pool.stream("POST", provider.base_url, raw_headers(headers), body, path=path) as response:
                content, size = await read_bounded(response, MAX_RESPONSE_BYTES, MAX_RESPONSE_BYTES)
        except (httpx2.InvalidURL, httpx2.LocalProtocolError, UnicodeError):
            return TransportFailure(MISCONFIGURED, f"the configuration of the provider {provider.name!r} is not usable")
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            return TransportFailure(UNREACHABLE, f"the provider {provider.name!r} can't be reached")
        except httpx2.HTTPError:
            return TransportFailure(BROKE_OFF, f"the provider {provider.name!r} broke off its response")
        if size > MAX_RESPONSE_BYTES:
            return TransportFailure(TOO_LARGE, f"the response of {provider.name!r} is too large")
        content_type = response.headers.get("content-type", "application/json")
        return ProviderResponse(response.status_code, content_type, content, response.headers.get("retry-after", ""))

    async def close(self) -> None:
        for pool in self._pools.values():
            await pool.close()
        self._pools.clear()

    def _pool(self, agent_id: str) -> ConnectionPool:
        if agent_id not in self._pools:
            self._pools[agent_id] = ConnectionPool(self._tls, idle=_IDLE_SECONDS, connect=CONNECT_SECONDS)
        return self._pools[agent_id]
