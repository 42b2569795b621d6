from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from claw_mediate.tools.executor import ToolExecutor
from tests.mcp.conftest import caller, server

__all__ = ["caller", "server"]  # fixtures


@pytest.fixture
async def executor(tmp_path: Path) -> AsyncIterator[ToolExecutor]:
    made = ToolExecutor(tmp_path)
    yield made
    await made.close()
