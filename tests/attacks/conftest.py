from __future__ import annotations

from pathlib import Path

import pytest

from tests.failures.clocked_pod import ClockedPod
from tests.wires import anthropic, openai


@pytest.fixture(params=[openai, anthropic], ids=["openai", "anthropic"])
def pod(request: pytest.FixtureRequest, tmp_path: Path) -> ClockedPod:
    """Return a pod of one agent for each dialect; its answers stream."""
    return ClockedPod(tmp_path, request.param, stream=True)
