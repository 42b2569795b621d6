"""Two providers of a turn, as the tests of live replies use them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.mediate.providers.crossroads import Crossroads


@pytest.fixture
async def roads(tmp_path: Path) -> AsyncIterator[Crossroads]:
    """Yield a provider with two keys, and one with a single key."""
    made = Crossroads(tmp_path, "openai", {"one": 2, "two": 1})
    yield made
    await made.close()
