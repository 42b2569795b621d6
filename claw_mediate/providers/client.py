"""One request to a provider: a whole response, or one defined failure that names no address."""

from __future__ import annotations

from dataclasses import dataclass

import httpx2

from claw_mediate.core.model_policy import Provider
from claw_mediate.http.client import ConnectionPool, tls_context
from claw_mediate.http.content_coding import read_bounded
from claw_mediate.http.headers import Headers, as_read

MAX_RESPONSE_BYTES = 16 * 1024 * 1024
"""A longer answer of a model is a fault of the provider."""
CONNECT_SECONDS = 10.0
_IDLE_SECONDS = 4.0
"""Less than the 5 after which common servers close: who asks at that moment is not heard."""
MISCONFIGURED = "provider_misconfigured"
UNREACHABLE = "provider_unreachable"
BROKE_OFF = "provider_broke_off"
TOO_LARGE = "provider_response_too_large"


@dataclass(frozen=True, slots=True)
class ProviderResponse:
    """A whole response, whatever its status."""

    status: int
    content_type: str
    body: bytes
    retry_after: str = ""


@dataclass(frozen=True, slots=True)
class TransportFailure:
    """No response of use. ``message`` names no address; ``status`` and ``retry_after`` are for the runner."""

    code: str
    message: str
    status: int = 502
    retry_after: str = ""


type ProviderResult = ProviderResponse | TransportFailure


class ProviderClient:
    """Connections are pooled per agent, so that no agent reads what was meant for another."""

    def __init__(self) -> None:
        self._tls = tls_context()
        self._connections: dict[str, ConnectionPool] = {}

    async def send(
        self, agent_id: str, provider: Provider, target: str, headers: Headers, body: bytes
    ) -> ProviderResult:
        """POST to ``target``, path and query below the provider's base URL. The caller bounds the time."""
        connections = self._of(agent_id)
        try:
            asked = connections.stream("POST", provider.base_url, as_read(headers), body, below=target)
            async with asked as response:
                kept, size = await read_bounded(response, MAX_RESPONSE_BYTES, MAX_RESPONSE_BYTES)
        except (httpx2.InvalidURL, httpx2.LocalProtocolError, UnicodeError):
            return TransportFailure(MISCONFIGURED, f"the provider {provider.name!r} can't be asked as configured")
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            return TransportFailure(UNREACHABLE, f"the provider {provider.name!r} can't be reached")
        except httpx2.HTTPError:
            return TransportFailure(BROKE_OFF, f"the provider {provider.name!r} broke off its response")
        if size > MAX_RESPONSE_BYTES:
            return TransportFailure(TOO_LARGE, f"the response of {provider.name!r} is too large")
        content_type = response.headers.get("content-type", "application/json")
        return ProviderResponse(response.status_code, content_type, kept, str(response.headers.get("retry-after", "")))

    async def close(self) -> None:
        for connections in self._connections.values():
            await connections.close()
        self._connections.clear()

    def _of(self, agent_id: str) -> ConnectionPool:
        if agent_id not in self._connections:
            self._connections[agent_id] = ConnectionPool(self._tls, idle=_IDLE_SECONDS, connect=CONNECT_SECONDS)
        return self._connections[agent_id]
