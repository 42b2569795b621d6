"""The client for feeds and memory services, bounded in time and bytes.

Each agent has connections of its own. The client follows no redirect and uses no proxy of the
environment. A failure is one word and never an address: it reaches prompts and the log.
"""

import asyncio
import time
from dataclasses import dataclass, replace
from http import HTTPStatus

import httpx2

from claw_mediate.agents.directory import Agent
from claw_mediate.http.bounded_body import read_bounded
from claw_mediate.http.client import ConnectionPools
from claw_mediate.http.headers import Headers, ascii_headers

_SUCCESSES = range(HTTPStatus.OK, HTTPStatus.MULTIPLE_CHOICES)
_IDLE_SECONDS = 4.0  # Less than the 5 s after which common servers close


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """One request. Reading stops after ``max_bytes`` of the response."""

    method: str
    url: str
    headers: Headers
    body: bytes | None
    max_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class FetchResult:
    """A response of any status, or a failure in one word.

    ``is_cut``: there was more than ``body``.
    """

    latency_ms: int
    status: int | None = None
    body: bytes = b""
    is_cut: bool = False
    failure: str | None = None

    @property
    def problem(self) -> str | None:
        """The failure, or ``http_STATUS`` of a response that is no success; None for a success."""
        if self.failure:
            return self.failure
        is_success = self.status is not None and self.status in _SUCCESSES
        return None if is_success else f"http_{self.status}"


class ContextClient:
    """The HTTP client of all feeds and memories."""

    def __init__(self) -> None:
        self._pools = ConnectionPools[str](idle=_IDLE_SECONDS)

    async def fetch(self, agent_id: str, request: FetchRequest) -> FetchResult:
        """Send one request, bounded by its seconds; raise nothing but cancellation."""
        started = time.monotonic()
        result = await self._fetch(agent_id, request)
        return replace(result, latency_ms=round((time.monotonic() - started) * 1000))

    async def _fetch(self, agent_id: str, request: FetchRequest) -> FetchResult:
        try:
            headers = ascii_headers(request.headers)
            async with (
                asyncio.timeout(request.seconds),
                self._pools[agent_id].stream(
                    request.method, request.url, headers, request.body
                ) as response,
            ):
                body, size = await read_bounded(response, request.max_bytes, request.max_bytes)
            return FetchResult(0, response.status_code, body, is_cut=size > request.max_bytes)
        except TimeoutError:
            return FetchResult(0, failure="timed_out")
        except (
            httpx2.InvalidURL,
            httpx2.LocalProtocolError,
            httpx2.UnsupportedProtocol,
            UnicodeError,
        ):
            return FetchResult(0, failure="misconfigured")
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            return FetchResult(0, failure="unreachable")
        except httpx2.HTTPError:
            return FetchResult(0, failure="broke_off")

    async def close(self) -> None:
        await self._pools.close()


def identity_headers(agent: Agent) -> Headers:
    """Return headers that name agent and pod.

    The pod's name is free text; it is left out if no header can hold it.
    """
    headers = [("user-agent", "clawdapus"), ("x-claw-id", agent.id)]
    pod = agent.metadata.pod
    if pod.isascii() and pod.isprintable():
        headers.append(("x-claw-pod", pod))
    return headers
