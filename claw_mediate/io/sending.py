"""One request to a provider: a whole response, or one defined failure that names no address."""

from __future__ import annotations

from dataclasses import dataclass

import httpx2

from claw_mediate.io.body import read_bounded
from claw_mediate.io.headers import Headers, no_cookies
from claw_mediate.provider import Provider

MAX_RESPONSE_BYTES = 16 * 1024 * 1024
"""A longer answer of a model is a fault of the provider."""
CONNECT_SECONDS = 10.0
MISCONFIGURED = "provider_misconfigured"
UNREACHABLE = "provider_unreachable"
BROKE_OFF = "provider_broke_off"
TOO_LARGE = "provider_response_too_large"


@dataclass(frozen=True, slots=True)
class Responded:
    """A whole response, whatever its status."""

    status: int
    content_type: str
    body: bytes
    retry_after: str = ""


@dataclass(frozen=True, slots=True)
class Unreachable:
    """No response of use. ``message`` names no address; ``status`` and ``retry_after`` are for the runner."""

    code: str
    message: str
    status: int = 502
    retry_after: str = ""


type Sent = Responded | Unreachable


class Sender:
    """Connections are pooled per agent, so that no agent reads what was meant for another."""

    def __init__(self) -> None:
        # SSL_CERT_FILE and SSL_CERT_DIR hold, for providers with a CA of their own.
        self._tls = httpx2.create_ssl_context()
        self._clients: dict[str, httpx2.AsyncClient] = {}

    async def send(self, agent_id: str, provider: Provider, target: str, headers: Headers, body: bytes) -> Sent:
        """POST to ``target``, path and query below the provider's base URL. The caller bounds the time."""
        try:
            # Raw path and query: what the runner wrote is not ours to normalise.
            base = httpx2.URL(provider.base_url)
            url = base.copy_with(raw_path=base.raw_path.rstrip(b"/") + target.encode("ascii", errors="ignore"))
            # A header may hold any bytes, which mitmproxy shows as surrogates.
            raw = [
                (name.encode(errors="surrogateescape"), value.encode(errors="surrogateescape"))
                for name, value in headers
            ]
            async with self._client(agent_id).stream("POST", url, headers=raw, content=body) as response:
                kept, size = await read_bounded(response, MAX_RESPONSE_BYTES, MAX_RESPONSE_BYTES)
        except (httpx2.InvalidURL, httpx2.LocalProtocolError, UnicodeError):
            return Unreachable(MISCONFIGURED, f"the provider {provider.name!r} can't be asked as configured")
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            return Unreachable(UNREACHABLE, f"the provider {provider.name!r} can't be reached")
        except httpx2.HTTPError:
            return Unreachable(BROKE_OFF, f"the provider {provider.name!r} broke off its response")
        if size > MAX_RESPONSE_BYTES:
            return Unreachable(TOO_LARGE, f"the response of {provider.name!r} is too large")
        content_type = response.headers.get("content-type", "application/json")
        return Responded(response.status_code, content_type, kept, str(response.headers.get("retry-after", "")))

    async def close(self) -> None:
        for client in self._clients.values():
            await client.aclose()
        self._clients.clear()

    def _client(self, agent_id: str) -> httpx2.AsyncClient:
        if agent_id not in self._clients:
            self._clients[agent_id] = httpx2.AsyncClient(
                trust_env=False,  # a pod-wide HTTPS_PROXY would lead back into this very proxy
                verify=self._tls,
                cookies=no_cookies(),
                timeout=httpx2.Timeout(None, connect=CONNECT_SECONDS),
                limits=httpx2.Limits(max_connections=None),
            )
        return self._clients[agent_id]
