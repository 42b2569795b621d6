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
"""``make soak`` runs each transcript in every form of each dialect."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a transcript in each dialect.

    The name of the test decides which half of the dialects stream, unless each runs in every
    form, and whether those streams are live.
    """
    if "desk" not in metafunc.fixturenames:
        return

    find_marker = metafunc.definition.get_closest_marker
    wires = mark.args if (mark := find_marker("wires")) else tuple(WIRES)
    shows_live = {wire for wire in wires if wire != "legacy" and not find_marker("buffered")}
    if EVERY_FORM or find_marker("both_forms"):
        forms = [(wire, form) for wire in wires for form in ("json", "stream")]
        forms += [(wire, "live") for wire in wires if wire in shows_live]
    else:
        choice = zlib.crc32(metafunc.function.__name__.encode())
        streaming = HALVES[choice % len(HALVES)]
        live = shows_live if (choice // len(HALVES)) % 2 else set()
        streams = {wire: "live" if wire in live else "stream" for wire in streaming}
        forms = [(wire, streams.get(wire, "json")) for wire in wires]

    metafunc.parametrize("desk", [f"{wire}-{form}" for wire, form in forms], indirect=True)


@pytest.fixture
async def desk(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Desk]:
    """Yield a desk for each dialect: a test body must draw the same picture in all of them."""
    dialect, form = request.param.split("-")
    made = Desk(tmp_path, WIRES[dialect], stream=form != "json", live=form == "live")
    async with opened(made):
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
