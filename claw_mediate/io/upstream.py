"""Asking a provider: one complete response, or one defined failure (spec/mediation.md section 4, "The model's side").

Key pool: 401 and 402 kill that key, 429 rests it, and the next one is tried at once. Where the turn has already cost
something (``again``), a retryable failure is tried twice more within the time that is left, because runners repeat a whole
turn for less.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

import httpx2

from claw_mediate.io.body import read_bounded
from claw_mediate.io.headers import Headers, no_cookies, provider_auth
from claw_mediate.io.providers import THROTTLED, Key, Provider, Registry, rest_seconds

MAX_RESPONSE_BYTES = 16 * 1024 * 1024
"""A longer answer of a model is a fault of the provider."""
CONNECT_SECONDS = 10.0
NO_KEY = "no_provider_key"
MISCONFIGURED = "provider_misconfigured"
_RETRIES = 2
_BACKOFF_SECONDS = 0.25
_LONGEST_RETRY_AFTER = 5.0
_SERVER_ERROR = 500


@dataclass(frozen=True, slots=True)
class Responded:
    """A whole response, whatever its status."""

    status: int
    content_type: str
    body: bytes
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class Unreachable:
    """No whole response. ``message`` names no address."""

    code: str
    message: str


type ModelAnswer = Responded | Unreachable


class Upstream:
    """The providers. Connections are pooled per agent, so that no agent reads what was meant for another."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._tls = (
            httpx2.create_ssl_context()
        )  # SSL_CERT_FILE and SSL_CERT_DIR hold, for providers with a CA of their own
        self._clients: dict[str, httpx2.AsyncClient] = {}

    async def post(
        self, agent_id: str, provider: Provider, target: str, headers: Headers, body: bytes, *, again: bool
    ) -> ModelAnswer:
        """POST to the provider; the caller bounds the time. ``target``: path and query below the provider's base URL."""
        client = self._client(agent_id)
        answer: ModelAnswer | None = None
        for attempt in range(_RETRIES + 1):
            before, answer = answer, await self._with_a_key(client, provider, target, headers, body)
            if before is not None and isinstance(answer, Unreachable) and answer.code == NO_KEY:
                return before  # every key rests by now: what the provider said is the better answer
            pause = _pause(answer, attempt)
            if not again or pause is None or attempt == _RETRIES:
                break
            await asyncio.sleep(pause)
        assert answer is not None
        return answer

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

    async def _with_a_key(
        self, client: httpx2.AsyncClient, provider: Provider, target: str, headers: Headers, body: bytes
    ) -> ModelAnswer:
        keys: list[Key | None] = [*self._registry.states.ready(provider, time.monotonic())]
        if provider.auth == "none":
            keys = [None]
        answer: ModelAnswer = Unreachable(NO_KEY, f"no key of the provider {provider.name!r} is usable now")
        for key in keys:
            answer = await self._send(
                client, provider, target, [*headers, *provider_auth(provider, key.secret if key else None)], body
            )
            if key is None or not isinstance(answer, Responded):
                break
            if not self._registry.spend(provider, key, answer.status, answer.retry_after):
                break
        return answer

    async def _send(
        self, client: httpx2.AsyncClient, provider: Provider, target: str, headers: Headers, body: bytes
    ) -> ModelAnswer:
        try:
            # Raw path and query: what the runner wrote is not ours to normalise.
            base = httpx2.URL(provider.base_url)
            url = base.copy_with(raw_path=base.raw_path.rstrip(b"/") + target.encode("ascii", errors="ignore"))
            # A header may hold any bytes, which mitmproxy shows as surrogates.
            raw = [
                (name.encode(errors="surrogateescape"), value.encode(errors="surrogateescape"))
                for name, value in headers
            ]
            async with client.stream("POST", url, headers=raw, content=body) as response:
                kept, size = await read_bounded(response, MAX_RESPONSE_BYTES, MAX_RESPONSE_BYTES)
        except (httpx2.InvalidURL, httpx2.LocalProtocolError, UnicodeError):
            return Unreachable(MISCONFIGURED, f"the provider {provider.name!r} can't be asked as configured")
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            return Unreachable("provider_unreachable", f"the provider {provider.name!r} can't be reached")
        except httpx2.HTTPError:
            return Unreachable("provider_broke_off", f"the provider {provider.name!r} broke off its response")
        if size > MAX_RESPONSE_BYTES:
            return Unreachable("provider_response_too_large", f"the response of {provider.name!r} is too large")
        content_type = response.headers.get("content-type", "application/json")
        return Responded(
            response.status_code, content_type, kept, rest_seconds(str(response.headers.get("retry-after", "")))
        )


def _pause(answer: ModelAnswer, attempt: int) -> float | None:
    """Seconds to wait before asking again; None when asking again is of no use."""
    if isinstance(answer, Unreachable):
        return None if answer.code in (NO_KEY, MISCONFIGURED) else _BACKOFF_SECONDS * 4.0**attempt
    if answer.status == THROTTLED and answer.retry_after is not None:
        return answer.retry_after if answer.retry_after <= _LONGEST_RETRY_AFTER else None
    if answer.status >= _SERVER_ERROR or answer.status == THROTTLED:
        return _BACKOFF_SECONDS * 4.0**attempt
    return None
