"""The pod of the trading desk, and the files of a proxy, for the verbs that read them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.audit.proxy_files import ProxyFiles, call
from tests.cli.running import DESK


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """Return a directory with the trading desk's files."""
    for part in ("descriptors", "agents", ".claw-discovered"):
        shutil.copytree(DESK / part, tmp_path / part)
    shutil.copy(DESK / "claw-pod.yml", tmp_path)
    return tmp_path


@pytest.fixture
def files(tmp_path: Path) -> ProxyFiles:
    """Return two turns of ``analyst`` and one of ``clerk``, which failed after a failed call."""
    home = ProxyFiles(tmp_path)
    home.turn(
        "turn_4f1c",
        call(ms=10),
        call("desk.trade", effect="write", ms=40),
        ts="2026-01-01T00:00:00Z",
    )
    failed = call("desk.trade", "timeout", effect="write", ms=90, status_code=504)
    home.turn("turn_4f2d", failed, ts="2026-01-01T00:00:01Z", error="provider_http_500")
    home.turn("turn_9aaa", agent="clerk", ts="2026-01-01T00:00:02Z")
    return home


@pytest.fixture
def history(files: ProxyFiles) -> str:
    return str(files.directory)
