"""The lease of a turn: it ends at once with the process that holds it, and a clock that was ahead
holds none.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from claw_state.journal import Journal, RequestFingerprint
from claw_state.lease import LEASE_SECONDS, LeaseOwner, LifeLock, holder_lives
from claw_state.sqlite.connection import Database
from claw_state.sqlite.journal import SqliteJournal
from tests.state.conftest import Clock
from tests.state.test_journal import ELSEWHERE, HERE

ASKED = RequestFingerprint("request", "earlier", "Buy", "")
HOUR = 3600.0
BEGINS = """
import asyncio, sys
from claw_state.sqlite.journal import SqliteJournal
from claw_state.journal import RequestFingerprint
from claw_state.sqlite.connection import Database
from claw_state.lease import LeaseOwner
journal = SqliteJournal(Database(sys.argv[1]), LeaseOwner("same", 1, "other"))
asyncio.run(journal.begin("t1", "a", RequestFingerprint("request", "earlier", "Buy", "")))
print("begun", flush=True)
sys.stdin.read()
"""


@pytest.mark.requirement("journal:owner")
async def test_a_killed_process_is_dead_at_once_and_its_files_are_removed(
    tmp_path: Path,
) -> None:
    file = str(tmp_path / "s.db")
    with begun(file) as other:
        journal = SqliteJournal(Database(file), LeaseOwner("same", 1, "mine"))
        past = await journal.find("a", ASKED)
        assert past is not None
        assert past.is_alive
        other.kill()
        other.wait()
        past = await journal.find("a", ASKED)
        assert past is not None
        assert not past.is_alive
        assert await journal.resume(past, ASKED)
    assert [holder_lives(file, name) for name in ("mine", "other", "nobody")] == [
        True,
        False,
        False,
    ]
    later = SqliteJournal(Database(file), LeaseOwner("same", 1, "later"))
    assert left_in(tmp_path) == ["s.db-life-later", "s.db-life-mine"]
    await later.close()
    await journal.close()
    assert left_in(tmp_path) == []


def begun(file: str) -> subprocess.Popen[bytes]:
    """Start a process that has a running turn."""
    arguments = [sys.executable, "-c", BEGINS, file]
    other = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert other.stdout is not None
    assert other.stdout.readline() == b"begun\n"
    return other


def left_in(home: Path) -> list[str]:
    return sorted(file.name for file in home.glob("*-life-*"))


def test_closing_a_lock_twice_closes_no_other_file(tmp_path: Path) -> None:
    life = LifeLock(str(tmp_path / "state.db"), "one")
    life.close()
    other = os.open(tmp_path, os.O_RDONLY)
    life.close()
    os.fstat(other)
    os.close(other)


@pytest.mark.requirement("journal:lease-ahead")
async def test_a_sign_of_life_from_the_future_holds_no_turn(
    journals: Callable[[LeaseOwner], Journal], clock: Clock
) -> None:
    """The clock of a state's server was ahead and was set back: its dead proxy
    seems to be heard of in an hour.
    """
    clock.now += HOUR
    await journals(HERE).begin("t1", "a", ASKED)
    clock.now -= LEASE_SECONDS - 1
    elsewhere = journals(ELSEWHERE)
    past = await elsewhere.find("a", ASKED)
    assert past is not None
    assert past.is_alive

    clock.now -= HOUR
    past = await elsewhere.find("a", ASKED)
    assert past is not None
    assert not past.is_alive
    assert await elsewhere.resume(past, ASKED)
