from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mcp.scripted_server import ScriptedServer
from tests.tools.hosting import PACKAGE, install


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a third party's package, really installed."""
    project = shutil.copytree(
        PACKAGE, tmp_path_factory.mktemp("project") / "made"
    )  # setuptools builds in it
    return install(project, tmp_path_factory.mktemp("packages"))


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    """An MCP server at a URL, at the level of bytes."""
    scripted = ScriptedServer().start()
    yield scripted
    scripted.stop()
