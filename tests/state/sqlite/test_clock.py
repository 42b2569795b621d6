"""Clocks that somebody sets while turns run, and between two starts of the proxy
(docs/state.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from claw_mediate.state import open_state
from claw_mediate.telemetry.event_log import EventLog
from claw_state.journal import RESUME_SECONDS, RequestFingerprint
from claw_state.lease import LeaseOwner
from claw_state.sqlite.clock import Uptime
from claw_state.sqlite.connection import Database
from claw_state.sqlite.inventory import SqliteInventory
from claw_state.sqlite.journal import SqliteJournal
from claw_state.url import File
from tests.state.conftest import Clock

HERE, ELSEWHERE = LeaseOwner("here", 1, "a"), LeaseOwner("elsewhere", 1, "b")
ASKED = RequestFingerprint("request", "earlier", "Buy", "")
HOUR, YEAR = 3600.0, 365 * 86_400.0
JUMPS = [HOUR, YEAR, -HOUR, -YEAR]


@pytest.fixture
def uptime(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Return the time since the machine was started, which the test sets."""
    clock = Clock()
    monkeypatch.setattr(Uptime, "of_machine", classmethod(lambda cls: cls("first", clock)))
    return clock


def opened(file: Path, owner: LeaseOwner, wall: Callable[[], float]) -> SqliteJournal:
    database = Database(str(file))
    return SqliteJournal(database, owner, database.open_clock(wall))


@pytest.mark.requirement("journal:clock")
@pytest.mark.parametrize("jump", JUMPS)
async def test_a_write_that_was_sent_is_found_after_the_clock_was_set(
    tmp_path: Path, uptime: Clock, clock: Clock, jump: float
) -> None:
    clock.now = 2e9
    here = opened(tmp_path / "s.db", HERE, clock)
    await here.begin("t1", "a", ASKED)
    await here.record_intent("t1", 1, 0, b"sent")
    await here.close()

    clock.now += jump
    later = opened(tmp_path / "s.db", ELSEWHERE, clock)
    past = await later.find("a", ASKED)
    assert past is not None
    assert await later.resume(past, ASKED)
    assert await later.call_record("t1", 1, 0) == b"sent"

    clock.now -= jump
    uptime.now += RESUME_SECONDS + 1
    assert await later.find("a", ASKED) is None
    await later.close()


@pytest.mark.requirement("journal:clock")
@pytest.mark.parametrize("jump", JUMPS)
@pytest.mark.usefixtures("uptime")
async def test_no_second_turn_begins_beside_one_that_runs_when_the_clock_is_set(
    tmp_path: Path, clock: Clock, jump: float
) -> None:
    clock.now = 2e9
    here = opened(tmp_path / "s.db", HERE, clock)
    await here.begin("t1", "a", ASKED)
    clock.now += jump
    beside = opened(tmp_path / "s.db", ELSEWHERE, clock)
    past = await beside.find("a", ASKED)
    assert past is not None
    assert past.is_alive
    assert not await beside.begin("t2", "a", ASKED)
    await here.record_intent("t1", 1, 0, b"sent")
    await here.close()
    await beside.close()


@pytest.mark.requirement("journal:clock")
async def test_a_machine_that_starts_in_1970_finds_the_turns_of_before(
    tmp_path: Path, uptime: Clock, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock.now = 2e9
    here = opened(tmp_path / "s.db", HERE, clock)
    await here.begin("t1", "a", ASKED)
    await here.close()

    monkeypatch.setattr(Uptime, "of_machine", classmethod(lambda cls: cls("second", uptime)))
    clock.now, uptime.now = 0.0, 1.0
    later = opened(tmp_path / "s.db", ELSEWHERE, clock)
    past = await later.find("a", ASKED)
    assert past is not None
    assert not past.is_alive
    await later.close()


@pytest.mark.requirement("journal:clock")
@pytest.mark.usefixtures("uptime")
async def test_the_proxy_and_claw_state_take_the_time_of_the_file(tmp_path: Path) -> None:
    place = File(str(tmp_path / "s.db"))
    first = Database(place.path)
    first.open_clock(lambda: 5e9)
    first.close()
    state = open_state(place, EventLog())
    await state.journal.begin("t1", "a", ASKED)
    ((seen,),) = state.database.read("SELECT seen FROM turns") if state.database else ()
    assert seen == 5e9
    (agent,) = SqliteInventory(place).inventory().agents
    assert agent.turns == {"running": 1}
    await state.journal.close()
    for part in (state.store, state.spending, state.ownership):
        await part.close()


@pytest.mark.requirement("journal:clock")
async def test_where_the_system_has_no_such_clock_the_wall_clock_is_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Uptime, "of_machine", classmethod(lambda _: None))
    database = Database(str(tmp_path / "s.db"))
    assert database.open_clock(time.time) is time.time
    database.close()


@pytest.mark.requirement("budget:clock")
async def test_every_part_of_the_state_in_a_file_has_its_time(
    tmp_path: Path, uptime: Clock
) -> None:
    """A clock that is a year ahead for a minute makes nobody forget what is his at a provider."""
    state = open_state(File(str(tmp_path / "s.db")), EventLog())
    parts: tuple[Any, ...] = (state.store, state.journal, state.spending, state.ownership)
    (clock,) = {part._clock for part in parts}
    before = clock()
    uptime.now += 1
    assert clock() == before + 1
    for part in parts:
        await part.close()
