from __future__ import annotations

from pathlib import Path

import pytest

from tests.mcp.discovering import Desk


@pytest.fixture
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.chdir(tmp_path)
    return Desk(Path())
