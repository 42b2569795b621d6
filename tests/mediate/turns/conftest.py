"""A turn of each dialect, whose stream is fed by the test."""

from __future__ import annotations

import pytest

from tests.mediate.turns.streamed_turn import WIRES, StreamedTurn, TimedTurn


@pytest.fixture(params=WIRES)
async def turn(request: pytest.FixtureRequest) -> StreamedTurn:
    return StreamedTurn(request.param)


@pytest.fixture(params=WIRES)
def timed(request: pytest.FixtureRequest) -> TimedTurn:
    return TimedTurn(request.param)
