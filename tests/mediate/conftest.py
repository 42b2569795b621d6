from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from claw_mediate.http.client import ConnectionPool, tls_context
from tests.mediate.http.http_peer import Serve, serving
from tests.peers import Service
from tests.turns.conftest import (
    brief_lock,
    claude,
    codex,
    desk,
    gpt,
    kept,
    pytest_generate_tests,
)

__all__ = ["brief_lock", "claude", "codex", "desk", "gpt", "kept", "pytest_generate_tests"]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    async with serving() as start:
        yield start


@pytest.fixture
async def connections() -> AsyncIterator[ConnectionPool]:
    made = ConnectionPool(tls_context(), idle=60, connect=10)
    yield made
    await made.close()


@pytest.fixture
def service() -> Iterator[Service]:
    peer = Service()
    peer.start()
    yield peer
    peer.stop()
