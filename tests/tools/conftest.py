from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.mcp.conftest import server
from tests.tools.hosting import PACKAGE, install

__all__ = ["server"]


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a third party's package, really installed."""
    project = shutil.copytree(
        PACKAGE, tmp_path_factory.mktemp("project") / "made"
    )  # setuptools builds in it
    return install(project, tmp_path_factory.mktemp("packages"))
