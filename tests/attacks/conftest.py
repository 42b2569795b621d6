from __future__ import annotations

from pathlib import Path

import pytest

from tests.failures.stage import Stage
from tests.wires import anthropic, openai


@pytest.fixture(params=[openai, anthropic], ids=["openai", "anthropic"])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Stage:
    """Return a pod of one agent for each dialect; its answers stream."""
    return Stage(tmp_path, request.param, stream=True)
