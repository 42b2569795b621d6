from __future__ import annotations

from pathlib import Path

import pytest

from tests.audit.proxy_files import ProxyFiles, call


@pytest.fixture
def files(tmp_path: Path) -> ProxyFiles:
    """Return the files of a proxy that has written nothing yet."""
    return ProxyFiles(tmp_path)


@pytest.fixture
def files_of_a_turn(tmp_path: Path) -> ProxyFiles:
    """Return the files of a proxy that has written one turn, ``t1``."""
    files = ProxyFiles(tmp_path)
    files.turn("t1", call())
    return files
