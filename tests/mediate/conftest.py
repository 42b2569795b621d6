from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from claw_mediate.tools.executor import ToolExecutor
from tests.mediate.desk import Desk
from tests.peers import Service
from tests.wires import Wire, anthropic, openai, openai_legacy

WIRES: dict[str, Wire] = {"openai": openai, "anthropic": anthropic, "legacy": openai_legacy}


@pytest.fixture(params=["openai-json", "openai-stream", "anthropic-json", "anthropic-stream", "legacy-json", "legacy-stream"])
async def desk(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Desk]:
    """Yield a desk for each dialect, streaming and not: one test body must draw the same picture in all of them."""
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


@asynccontextmanager
async def opened(desk: Desk) -> AsyncIterator[Desk]:
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
