"""A SQLite file that fails under its users: the consequences of each way of failing
(docs/state.md).
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from claw_contract.metadata import Budget
from claw_mediate import state
from claw_mediate.state import State
from claw_mediate.telemetry.event_log import EventLog
from claw_state.health import Health, StateUnavailableError
from claw_state.spending import Charge
from claw_state.sqlite.connection import Database
from claw_state.sqlite.schema import check_integrity, open_database
from claw_state.sqlite.spending import SqliteSpending
from claw_state.url import parse_place
from tests.events import known

SCHEMA = "CREATE TABLE IF NOT EXISTS held (id INTEGER PRIMARY KEY, what BLOB);"
ADD = "INSERT INTO held (what) VALUES (?)"
ALL = "SELECT COUNT(*), SUM(LENGTH(what)) FROM held"


class UsedFile:
    """A file in use, and the notices about it."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.told: list[str | None] = []
        self.health = Health(self.told.append)
        self.database = Database(str(file), SCHEMA, self.health)

    def adds(self, size: int = 10) -> bool:
        """Return True if a row could be written."""
        try:
            return asyncio.run(self.database.probe(ADD, b"x" * size)) == 1
        except StateUnavailableError:
            return False

    def counts(self) -> int | None:
        """Return the number of rows, or None if the file can't be read."""
        try:
            return int(self.database.read(ALL)[0][0])
        except StateUnavailableError:
            return None


@pytest.fixture
def used(tmp_path: Path) -> Iterator[UsedFile]:
    one = UsedFile(tmp_path / "s.db")
    yield one
    one.database.close()


def is_full(used: UsedFile) -> Callable[[], object]:
    """Make the file full, with SQLite's own error of a full disk; return the
    function that undoes it.
    """
    used.database.read("PRAGMA max_page_count=1")
    return lambda: used.database.read("PRAGMA max_page_count=1000000")


def is_locked(used: UsedFile) -> Callable[[], object]:
    other = sqlite3.connect(used.file, autocommit=True)
    other.execute("BEGIN EXCLUSIVE")
    return other.close


def is_deleted(used: UsedFile) -> Callable[[], object]:
    away = used.file.with_name("away.db")
    used.file.rename(away)
    return lambda: away.rename(used.file)


def is_replaced(used: UsedFile) -> Callable[[], object]:
    away = used.file.with_name("away.db")
    used.file.rename(away)
    used.file.touch()
    return lambda: away.rename(used.file)


def has_lost_its_log(used: UsedFile) -> Callable[[], object]:
    log = Path(f"{used.file}-wal")
    log.rename(f"{log}.away")
    return lambda: Path(f"{log}.away").rename(log)


@pytest.mark.requirement("state:file-outage")
@pytest.mark.parametrize("way", [is_full, is_locked, is_deleted, is_replaced, has_lost_its_log])
def test_an_unwritable_file_is_reported_once_and_used_again_when_it_can_be_written(
    used: UsedFile, way: Callable[[UsedFile], Callable[[], object]]
) -> None:
    assert used.adds()
    ends = way(used)
    assert [used.adds(100_000), used.adds(100_000)] == [False, False]
    assert len(used.told) == 1
    ends()
    assert used.adds(100_000)
    assert used.told[1:] == [None]
    assert used.counts() == 2


@pytest.mark.requirement("state:file-outage")
def test_after_one_wait_in_vain_for_a_lock_nobody_waits_until_it_is_free(
    used: UsedFile,
) -> None:
    ends = is_locked(used)
    assert not used.adds()
    with pytest.raises(StateUnavailableError, match="another process"):
        asyncio.run(used.database.write(ADD, b"x"))
    assert used.counts() == 0, "who reads goes on"
    ends()
    assert used.adds()
    asyncio.run(used.database.write(ADD, b"x"))


@pytest.mark.requirement("state:file-shared")
async def test_a_writer_waits_for_another_process_while_the_loop_goes_on(
    tmp_path: Path,
) -> None:
    told: list[str | None] = []
    database = Database(str(tmp_path / "s.db"), health=Health(told.append))
    spending, limit = (
        SqliteSpending(database),
        Budget.model_validate({"window": "1h", "max_requests": 1}),
    )
    with closing(sqlite3.connect(tmp_path / "s.db", autocommit=True)) as other:
        other.execute("BEGIN IMMEDIATE")
        counting = asyncio.ensure_future(spending.count_request("a", limit))
        spending.add_cost("b", limit, Charge(1.0), told.append)
        await asyncio.sleep(0.01)
        assert not counting.done()
        assert database.read("SELECT * FROM spending") == []
    assert await counting is None
    await spending.close()
    with closing(sqlite3.connect(tmp_path / "s.db")) as after:
        assert after.execute(
            "SELECT agent, requests, cost FROM spending ORDER BY agent"
        ).fetchall() == [
            ("a", 1, 0),
            ("b", 0, 1),
        ]
    assert told == []


@pytest.mark.requirement("state:file-shared")
async def test_time_in_which_the_loop_did_something_else_is_no_waiting_for_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("claw_state.sqlite.connection._LOCK_SECONDS", 0.1)
    database = Database(str(tmp_path / "s.db"), SCHEMA)
    with closing(sqlite3.connect(tmp_path / "s.db", autocommit=True)) as other:
        other.execute("BEGIN IMMEDIATE")
        writing = asyncio.ensure_future(database.write(ADD, b"x"))
        await asyncio.sleep(0.01)
        time.sleep(0.2)  # noqa: ASYNC251 - the loop is busy
        await asyncio.sleep(0.01)
        assert not writing.done()
    assert await writing == 1
    database.close()


@pytest.mark.requirement("state:file-damaged")
@pytest.mark.parametrize("damage", ["bytes in the middle", "cut", "garbage"])
def test_a_file_that_is_damaged_during_use_is_given_up_and_refused_at_the_next_start(
    used: UsedFile, damage: str
) -> None:
    for _ in range(200):
        assert used.adds(2000)
    used.database.read("PRAGMA wal_checkpoint(TRUNCATE)")
    size = used.file.stat().st_size
    with used.file.open("r+b") as file:
        match damage:
            case "bytes in the middle":
                for page in range(4096, size, 4096):
                    file.seek(page)
                    file.write(os.urandom(64))
            case "cut":
                file.truncate(size // 2 // 4096 * 4096)
            case _:
                file.write(b"not a database at all. " * (size // 23))
    used.database.read("PRAGMA shrink_memory")
    assert used.counts() is None
    assert not used.adds()
    assert len(used.told) == 1
    assert "move the file away" in str(used.told[0])
    used.database.close()
    with (
        pytest.raises(sqlite3.DatabaseError),
        closing(open_database(str(used.file), SCHEMA)) as database,
    ):
        check_integrity(database)


@pytest.mark.requirement("state:file-damaged")
def test_a_log_full_of_garbage_costs_what_stood_in_it_and_no_more(tmp_path: Path) -> None:
    """SQLite has a checksum for each frame of the log: a frame that does not match
    was never written.
    """
    file = tmp_path / "s.db"
    one = UsedFile(file)
    assert one.adds()
    one.database.close()
    Path(f"{file}-wal").write_bytes(os.urandom(100_000))
    again = UsedFile(file)
    assert again.counts() == 1
    assert again.adds()
    again.database.close()


@pytest.mark.requirement("state:file-at-the-start")
async def test_a_file_that_is_locked_when_the_proxy_starts_is_no_reason_not_to(
    tmp_path: Path,
) -> None:
    before, _ = started(tmp_path / "s.db")
    with closing(sqlite3.connect(tmp_path / "s.db", autocommit=True)) as other:
        other.execute("BEGIN EXCLUSIVE")
        kept, events = started(tmp_path / "s.db")
        assert not await kept.store.is_writable()
    assert await kept.store.is_writable()
    assert [event.get("error", event.get("state")) for event in events] == [
        "state_unusable",
        "usable",
    ]
    for one in (*before[:3], *kept[:3]):
        await one.close()


@pytest.mark.requirement("state:file-at-the-start")
@pytest.mark.parametrize("content", [b"no database at all. " * 500, None])
def test_an_unusable_file_keeps_the_proxy_from_starting_with_one_line(
    tmp_path: Path, content: bytes | None
) -> None:
    file = tmp_path / "s.db"
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)
    with pytest.raises(ValueError, match=f"the state '{file}' can't be opened: ") as refused:
        started(file)
    assert "\n" not in str(refused.value)
    assert content is None or "move the file away" in str(refused.value)


def started(file: Path) -> tuple[State, list[dict[str, Any]]]:
    """Open the state as a proxy does; return it and the log's events."""
    events: list[dict[str, Any]] = []
    log = EventLog(lambda line: events.append(known(line)))
    return state.open_state(parse_place(str(file)), log), events
