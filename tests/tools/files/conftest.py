"""Fixtures of the file tools."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from claw_tools.files import workspace
from claw_tools.files.openat2 import open_by_walk
from tests.tools.files.guarded_workspace import GuardedWorkspace, opened


@pytest.fixture(params=["openat2", "walk"])
def scene(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[GuardedWorkspace]:
    """Return a guarded workspace, once with the kernel's ``openat2``, and once as where there is none."""
    if request.param == "walk":
        monkeypatch.setattr(workspace, "find_opener", lambda _: open_by_walk)
    with opened(tmp_path) as made:
        yield made


@pytest.fixture
def kernel_scene(tmp_path: Path) -> Iterator[GuardedWorkspace]:
    """Return a guarded workspace with ``openat2``, for what does not depend on it."""
    with opened(tmp_path) as made:
        yield made
