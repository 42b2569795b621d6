"""A peer that tells which requests came over the same connection."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tests.peers import Peer


@dataclass
class CountingHost(Peer):
    """A peer that notes the connection of each request, by the port of its client."""

    ports: list[int] = field(default_factory=list)

    async def answer(self, request: Request) -> Response:
        assert request.client is not None
        self.ports.append(request.client.port)
        return JSONResponse({})

    def connections(self) -> list[int]:
        """Return the connection of each request, numbered in the order of their first use."""
        numbers = {port: number for number, port in enumerate(dict.fromkeys(self.ports))}
        return [numbers[port] for port in self.ports]


@contextmanager
def counting_host() -> Iterator[CountingHost]:
    host = CountingHost()
    host.start()
    yield host
    host.stop()
