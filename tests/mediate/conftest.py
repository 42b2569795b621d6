from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.mediate.desk import Desk


@pytest.fixture(params=["json", "stream"])
async def desk(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Desk]:
    """One body, both ways of answering: the picture must be the same."""
    made = Desk(tmp_path, stream=request.param == "stream")
    yield made
    await made.mediator.close(0)
