from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.mcp.scripted_server import ScriptedServer
from tests.mediate.tools.mcp_calling import Caller, calling


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    scripted = ScriptedServer().start()
    yield scripted
    scripted.stop()


@pytest.fixture
async def caller(server: ScriptedServer, tmp_path: Path) -> AsyncIterator[Caller]:
    async with calling(server, tmp_path) as made:
        yield made
