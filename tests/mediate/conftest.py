from __future__ import annotations

import itertools
import os
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from claw_mediate.http.client import ConnectionPool, tls_context
from claw_mediate.tools.executor import ToolExecutor
from tests.mediate.desk import Desk
from tests.mediate.http.http_peer import Serve, serving
from tests.mediate.kept import KeptDesk
from tests.peers import Service
from tests.wires import Wire, anthropic, openai, openai_legacy, responses

WIRES: dict[str, Wire] = {
    "openai": openai,
    "anthropic": anthropic,
    "legacy": openai_legacy,
    "responses": responses,
}


HALVES = list(itertools.combinations(WIRES, len(WIRES) // 2))
EVERY_FORM = bool(os.environ.get("CLAW_SEARCH"))
"""``make soak`` runs each transcript in both forms of each dialect."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a transcript in each dialect; the name of the test decides which half of
    them stream, unless each does both.
    """
    if "desk" not in metafunc.fixturenames:
        return
    wires = mark.args if (mark := metafunc.definition.get_closest_marker("wires")) else tuple(WIRES)
    if EVERY_FORM or metafunc.definition.get_closest_marker("both_forms"):
        ways = [f"{wire}-{form}" for wire in wires for form in ("json", "stream")]
    else:
        streaming = HALVES[zlib.crc32(metafunc.function.__name__.encode()) % len(HALVES)]
        ways = [f"{wire}-{'stream' if wire in streaming else 'json'}" for wire in wires]
    metafunc.parametrize("desk", ways, indirect=True)


@pytest.fixture
async def desk(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Desk]:
    """Yield a desk for each dialect, of which one half streams: a test body must
    draw the same picture in all of them.
    """
    dialect, way = request.param.split("-")
    async with opened(Desk(tmp_path, WIRES[dialect], stream=way == "stream")) as made:
        yield made


@pytest.fixture(params=["json", "stream"])
async def claude(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Desk]:
    """Yield a desk for features that only Anthropic's protocol has."""
    async with opened(Desk(tmp_path, anthropic, stream=request.param == "stream")) as made:
        yield made


@pytest.fixture(params=["json", "stream"])
async def gpt(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Desk]:
    """Yield a desk for features that only OpenAI's protocol has."""
    async with opened(Desk(tmp_path, openai, stream=request.param == "stream")) as made:
        yield made


@pytest.fixture(params=["json", "stream"])
async def codex(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Desk]:
    """Yield a desk for features that only OpenAI's Responses protocol has."""
    async with opened(Desk(tmp_path, responses, stream=request.param == "stream")) as made:
        yield made


@pytest.fixture
async def kept(tmp_path: Path) -> AsyncIterator[KeptDesk]:
    """Yield a desk whose agent owns a conversation that the provider keeps."""
    async with opened(KeptDesk(tmp_path)) as desk:
        await desk.owns()
        yield desk


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
def brief_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the state's writers wait for another process's lock for a twentieth of a
    second, and not for a whole one.
    """
    monkeypatch.setattr("claw_state.sqlite.connection._LOCK_SECONDS", 0.05)


@asynccontextmanager
async def opened[D: Desk](desk: D) -> AsyncIterator[D]:
    yield desk
    await desk.close()


@pytest.fixture
def service() -> Iterator[Service]:
    peer = Service()
    peer.start()
    yield peer
    peer.stop()


@pytest.fixture
async def pod(tmp_path: Path) -> AsyncIterator[ToolExecutor]:
    services = ToolExecutor(tmp_path)
    yield services
    await services.close()
