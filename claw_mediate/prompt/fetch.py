"""Asking the pod's services for context: bounded in time and bytes, on connections of each agent's own.

Redirects are not followed and environment proxies are not used, as with managed calls. What goes wrong is a word, and never
an address: it ends in prompts and in the log.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from dataclasses import dataclass
from functools import cached_property

import httpx2

from claw_mediate.agents.directory import Agent
from claw_mediate.http.client import ConnectionPool, tls_context
from claw_mediate.http.content_coding import read_bounded
from claw_mediate.http.headers import Headers, ascii_headers

_IDLE_SECONDS = 4.0
"""As with managed calls: connections are dropped before common servers drop them."""


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """One request. ``keep``: the bytes of the answer that are wanted; nothing behind them is read."""

    method: str
    url: str
    headers: Headers
    body: bytes | None
    keep: int
    seconds: float


@dataclass(frozen=True, slots=True)
class FetchResponse:
    """An answer, of whatever status. ``more``: it goes on behind what was kept."""

    status: int
    body: bytes
    more: bool
    latency_ms: int

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300  # noqa: PLR2004 - HTTP's successes


@dataclass(frozen=True, slots=True)
class FetchFailure:
    """No answer, and why, in a word."""

    reason: str
    latency_ms: int

    @property
    def timed_out(self) -> bool:
        return self.reason == "timed_out"


class ContextClient:
    """The client of all feeds and memories."""

    def __init__(self) -> None:
        self._connections: dict[str, ConnectionPool] = {}

    async def ask(self, agent_id: str, ask: FetchRequest) -> FetchResponse | FetchFailure:
        """One request, in at most its seconds. Raises nothing but cancellation."""
        started = time.monotonic()

        def took() -> int:
            return round((time.monotonic() - started) * 1000)

        try:
            async with (
                asyncio.timeout(ask.seconds),
                self._of(agent_id).stream(ask.method, ask.url, ascii_headers(ask.headers), ask.body) as response,
            ):
                body, size = await read_bounded(response, ask.keep, ask.keep)
            return FetchResponse(response.status_code, body, size > ask.keep, took())
        except TimeoutError:
            return FetchFailure("timed_out", took())
        except (httpx2.InvalidURL, httpx2.LocalProtocolError, httpx2.UnsupportedProtocol, UnicodeError):
            return FetchFailure("misconfigured", took())
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            return FetchFailure("unreachable", took())
        except httpx2.HTTPError:
            return FetchFailure("broke_off", took())

    async def close(self) -> None:
        for connections in self._connections.values():
            await connections.close()
        self._connections.clear()

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        """Made when the first agent has context, since that takes a while. SSL_CERT_FILE and SSL_CERT_DIR hold."""
        return tls_context()

    def _of(self, agent_id: str) -> ConnectionPool:
        if agent_id not in self._connections:
            self._connections[agent_id] = ConnectionPool(self._tls, idle=_IDLE_SECONDS)
        return self._connections[agent_id]


def identity_headers(agent: Agent) -> Headers:
    """Who asks. A pod's name is the operator's, and may be no header: then it is not said."""
    pod = agent.metadata.pod
    said = [("x-claw-pod", pod)] if pod.isascii() and pod.isprintable() else []
    return [("user-agent", "clawdapus"), ("x-claw-id", agent.id), *said]
