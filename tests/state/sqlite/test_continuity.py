"""The continuity store in a file: restarts, rights, and files that can't be used."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from claw_state.continuity import (
    MAX_AGE_SECONDS,
    MAX_NAMES,
    Anchor,
)
from claw_state.sqlite.connection import Database
from claw_state.sqlite.continuity import SqliteContinuityStore
from claw_state.url import StoreError
from tests.state.conftest import Clock
from tests.state.test_continuity import held, keep


@pytest.mark.requirement("store:bounded")
async def test_what_an_agent_left_that_comes_no_more_is_gone_after_seven_days(
    tmp_path: Path, clock: Clock
) -> None:
    file = str(tmp_path / "claw.db")
    store = SqliteContinuityStore(Database(file), clock)
    for number in range(300):
        await keep(store, "gone", f"k{number}", b"11")
    clock.now += MAX_AGE_SECONDS + 1
    assert await held(store, "gone", "k0") == [], "not even for the agent itself"
    for number in range(2):
        await keep(store, "other", f"k{number}", b"22")
    with closing(sqlite3.connect(file)) as database:
        assert database.execute("SELECT DISTINCT agent FROM kept").fetchall() == [("other",)]
    await store.close()


@pytest.mark.requirement("store:durable")
async def test_a_file_survives_a_restart_and_is_private(tmp_path: Path) -> None:
    file = tmp_path / "state" / "claw.db"
    first = SqliteContinuityStore(Database(str(file)))
    await keep(first, "a", "x", b"\x00\xff")
    second = SqliteContinuityStore(Database(str(file)))  # the first was not closed, as in a crash
    assert await held(second, "a", "x") == [("x", b"\x00\xff")]
    assert oct(file.stat().st_mode)[-3:] == "600"
    await first.close()
    await second.close()


async def test_memory_is_lost_with_the_process() -> None:
    store = SqliteContinuityStore(Database(""))
    await keep(store, "a", "x", b"11")
    await store.close()
    store = SqliteContinuityStore(Database(""))
    assert await held(store, "a", "x") == []
    await store.close()


async def test_a_store_that_can_t_be_used_says_so(tmp_path: Path) -> None:
    store = SqliteContinuityStore(Database(str(tmp_path / "s.db")))
    assert await store.is_writable()
    await store.close()
    assert not await store.is_writable()
    with pytest.raises(StoreError):
        await keep(store, "a", "x", b"11")
    with pytest.raises(StoreError):
        await held(store, "a", "x")


@pytest.mark.parametrize("content", [b"not a database, and long enough to be seen as none" * 50])
def test_a_file_that_is_no_database_is_an_error_at_the_start(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "s.db").write_bytes(content)
    with pytest.raises(sqlite3.DatabaseError):
        SqliteContinuityStore(Database(str(tmp_path / "s.db")))


def test_a_path_that_cannot_be_is_an_error_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        SqliteContinuityStore(Database(str(tmp_path / "file" / "s.db")))


@pytest.mark.requirement("store:names")
async def test_names_are_bounded_and_leave_no_row(tmp_path: Path, clock: Clock) -> None:
    file = str(tmp_path / "claw.db")
    store = SqliteContinuityStore(Database(file), clock)
    await store.save(
        "a", Anchor("x", names=tuple(f"n{number}" for number in range(1000))), "", b"11"
    )
    with closing(sqlite3.connect(file)) as database:
        assert database.execute("SELECT COUNT(*) FROM kept_names").fetchone() == (MAX_NAMES,)
        clock.now += MAX_AGE_SECONDS + 1
        await keep(store, "a", "new", b"11")
        assert database.execute("SELECT COUNT(*) FROM kept_names").fetchone() == (0,)
    await store.close()
