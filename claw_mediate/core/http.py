"""What comes in at the door and what goes out: neutral of mitmproxy, and of the event loop."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from claw_mediate.core.api_paths import normalize_path
from claw_mediate.core.error_bodies import build_error_body
from claw_mediate.core.observer import RequestObserver

type HeaderList = list[tuple[str, str]]
GONE = 499
"""The status in history of a request whose runner left (nginx's code)."""


@dataclass(frozen=True, slots=True)
class Request:
    """A runner's request. ``host`` is None at the base-URL entrance, else the governed destination host."""

    method: str
    path: str
    """With its query."""
    headers: HeaderList
    body: bytes
    host: str | None = None
    watch: RequestObserver | None = field(default=None, compare=False, repr=False)
    """Who looks on at what becomes of it."""

    @property
    def bare_path(self) -> str:
        return self.path.partition("?")[0]

    @property
    def meant_path(self) -> str:
        """What a lenient provider would make of the path."""
        return normalize_path(self.path)

    def header(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name]


@dataclass(frozen=True, slots=True)
class RunnerResponse:
    """The answer to a request: chunk by chunk, as they come."""

    status: int
    headers: HeaderList
    chunks: AsyncIterator[bytes]
    streaming: bool = False
    handed: Callable[[], Awaitable[None]] | None = None
    """To be told when the whole answer went to the runner's connection."""


@dataclass(frozen=True, slots=True)
class Forward:
    """Not mediated: the host sends it on to ``target`` below ``base_url``, with ``credential`` in place of the runner's.

    ``body`` None: as the runner sent it. ``build_error_body``: what the runner is told when the provider can't be reached.
    """

    base_url: str
    target: str
    credential: HeaderList
    write_refusal: Callable[[], bytes]
    body: bytes | None
    dropped: tuple[str, ...]
    """Names of headers that hold the agent's credential where none belongs."""
    ticket: object
    """The mediator's own note of it, which the host hands back with what became of it."""


def respond(status: int, body: bytes, content_type: str = "application/json", retry_after: str = "") -> RunnerResponse:
    """A whole answer."""
    later = [("retry-after", retry_after)] if retry_after else []
    return RunnerResponse(status, [("content-type", content_type), *later], _once(body))


def refuse(path: str, status: int, code: str, message: str, more: Mapping[str, object] | None = None) -> RunnerResponse:
    """A refusal in the shape of the path's dialect."""
    return respond(status, build_error_body(path, status, code, message, more))


STOPPING = ("shutting_down", "the proxy is being stopped; ask again, and the turn goes on where it was")
"""Code and message."""
RETRY_AFTER = "5"
"""Seconds in which a proxy that is started anew is there."""


def refuse_stopping(path: str) -> RunnerResponse:
    """What a runner is told by a proxy that ends."""
    return respond(503, build_error_body(path, 503, *STOPPING), retry_after=RETRY_AFTER)


def respond_json(status: int, document: object) -> RunnerResponse:
    """A small JSON document of our own."""
    return respond(status, json.dumps(document).encode())


async def _once(body: bytes) -> AsyncIterator[bytes]:
    yield body
