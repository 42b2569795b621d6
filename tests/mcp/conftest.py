from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.mcp.discovering import web
from tests.mcp.http_host import Host
from tests.mcp.scripted_server import ScriptedServer
from tests.mcp.wrapped import RunningWrapper, wrapper
from tests.mediate.tools.mcp_calling import Caller, calling

__all__ = ["web"]


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    scripted = ScriptedServer().start()
    yield scripted
    scripted.stop()


@pytest.fixture
async def caller(server: ScriptedServer, tmp_path: Path) -> AsyncIterator[Caller]:
    async with calling(server, tmp_path) as made:
        yield made


@pytest.fixture
async def host() -> AsyncIterator[Host]:
    host = Host(max_body=1000)
    yield host
    await host.server.close()


@pytest.fixture(scope="module")
def wrapped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningWrapper]:
    with wrapper(
        tmp_path_factory.mktemp("wrapper"),
        CLAW_MCP_ALLOWED_HOSTS="web, web:8080",
        CLAW_MCP_MAX_BODY="100000",
        SERVICE_TOKEN="planted-credential",
    ) as running:
        yield running
