"""The desk's fixtures, for the transcripts here and for the tests of ``tests/mediate``."""

from __future__ import annotations

import itertools
import os
import zlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.turns.desk import WIRES, Desk, opened
from tests.turns.kept_desk import KeptDesk
from tests.wires import anthropic, openai, responses

HALVES = list(itertools.combinations(WIRES, len(WIRES) // 2))
EVERY_FORM = bool(os.environ.get("CLAW_SEARCH"))
"""``make soak`` runs each transcript in both forms of each dialect."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a transcript in each dialect; the name of the test decides which half of
    them stream, unless each does both.
    """
    if "desk" not in metafunc.fixturenames:
        return
    wires = mark.args if (mark := metafunc.definition.get_closest_marker("wires")) else tuple(WIRES)
    if EVERY_FORM or metafunc.definition.get_closest_marker("both_forms"):
        ways = [f"{wire}-{form}" for wire in wires for form in ("json", "stream")]
    else:
        streaming = HALVES[zlib.crc32(metafunc.function.__name__.encode()) % len(HALVES)]
        ways = [f"{wire}-{'stream' if wire in streaming else 'json'}" for wire in wires]
    metafunc.parametrize("desk", ways, indirect=True)


@pytest.fixture
async def desk(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Desk]:
    """Yield a desk for each dialect, of which one half streams: a test body must
    draw the same picture in all of them.
    """
    dialect, way = request.param.split("-")
    async with opened(
        Desk(tmp_path, WIRES[dialect], stream=way != "json", live=way == "live")
    ) as made:
        yield made


@pytest.fixture(params=["json", "stream"])
async def claude(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Desk]:
    """Yield a desk for features that only Anthropic's protocol has."""
    async with opened(Desk(tmp_path, anthropic, stream=request.param == "stream")) as made:
        yield made


@pytest.fixture(params=["json", "stream"])
async def gpt(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Desk]:
    """Yield a desk for features that only OpenAI's protocol has."""
    async with opened(Desk(tmp_path, openai, stream=request.param == "stream")) as made:
        yield made


@pytest.fixture(params=["json", "stream"])
async def codex(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Desk]:
    """Yield a desk for features that only OpenAI's Responses protocol has."""
    async with opened(Desk(tmp_path, responses, stream=request.param == "stream")) as made:
        yield made


@pytest.fixture
async def kept(tmp_path: Path) -> AsyncIterator[KeptDesk]:
    """Yield a desk whose agent owns a conversation that the provider keeps."""
    async with opened(KeptDesk(tmp_path)) as desk:
        await desk.owns()
        yield desk


@pytest.fixture
def brief_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the state's writers wait for another process's lock for a twentieth of a
    second, and not for a whole one.
    """
    monkeypatch.setattr("claw_state.sqlite.connection._LOCK_SECONDS", 0.05)
