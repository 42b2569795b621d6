"""The file of a state: private, small, and intact, whatever other processes do with it."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from claw_state.continuity import Anchor
from claw_state.journal import RESUME_SECONDS, RequestFingerprint, StoredResponse
from claw_state.lease import LeaseOwner
from claw_state.sqlite.connection import Database
from claw_state.sqlite.continuity import SqliteContinuityStore
from claw_state.sqlite.journal import SqliteJournal
from claw_state.sqlite.schema import MAX_LOG_BYTES, TURNS, open_database
from tests.state.conftest import Clock

PARTS = ("", "-wal", "-shm")


def modes(file: Path) -> dict[str, str]:
    return {
        part: oct(Path(f"{file}{part}").stat().st_mode)[-3:]
        for part in PARTS
        if Path(f"{file}{part}").exists()
    }


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def other_process(code: str, file: Path) -> str:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); {code}",
            str(file),
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout


@pytest.mark.requirement("store:whole")
async def test_another_process_that_ends_does_not_take_the_log_from_those_that_go_on(
    tmp_path: Path,
) -> None:
    """SQLite's last user removes the log.

    Other processes do not see a process that lost its locks.
    """
    file = tmp_path / "s.db"
    store, journal = (
        SqliteContinuityStore(Database(str(file))),
        SqliteJournal(Database(str(file)), LeaseOwner.current()),
    )
    other_process("db.execute('DELETE FROM kept'); db.commit(); db.close()", file)
    await store.save("a", Anchor("x", ()), "", b"1")
    assert (
        other_process("print(db.execute('SELECT COUNT(*) FROM kept').fetchone()[0])", file) == "1\n"
    )
    await store.close()
    await journal.close()


@pytest.mark.requirement("store:private")
@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_the_file_its_log_and_a_new_directory_are_private_whatever_the_umask(
    tmp_path: Path, mask: int
) -> None:
    file = tmp_path / "new" / "deep" / "s.db"
    with umask(mask), closing(open_database(str(file), TURNS)):
        assert modes(file) == dict.fromkeys(PARTS, "600")
    assert [oct(made.stat().st_mode)[-3:] for made in (file.parent, file.parent.parent)] == [
        "700",
        "700",
    ]


@pytest.mark.requirement("store:private")
def test_a_file_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    file = tmp_path / "s.db"
    with umask(0), closing(sqlite3.connect(file)) as wide:
        wide.execute("PRAGMA journal_mode=WAL")
        wide.execute("CREATE TABLE unrelated (x)")
        assert modes(file) == dict.fromkeys(PARTS, "644")
        file.chmod(0o666)
        with closing(open_database(str(file), TURNS)):
            assert modes(file) == dict.fromkeys(PARTS, "600")


@pytest.mark.requirement("store:private")
def test_a_link_to_a_missing_file_makes_a_private_one(
    tmp_path: Path,
) -> None:
    (tmp_path / "name.db").symlink_to(tmp_path / "s.db")
    with umask(0), closing(open_database(str(tmp_path / "name.db"), TURNS)):
        assert modes(tmp_path / "s.db")[""] == "600"


@pytest.mark.requirement("store:shrinks")
async def test_the_file_and_its_log_shrink_after_a_flood_while_turns_go_on(
    tmp_path: Path, clock: Clock
) -> None:
    file, log = tmp_path / "s.db", tmp_path / "s.db-wal"
    database = Database(str(file))
    journal, store = (
        SqliteJournal(database, LeaseOwner.current(), clock),
        SqliteContinuityStore(database, clock),
    )
    answer = StoredResponse(200, "application/json", b"x" * 200_000)
    with closing(sqlite3.connect(file, autocommit=True)) as reader:
        reader.execute("BEGIN")
        reader.execute(
            "SELECT COUNT(*) FROM turns"
        ).fetchall()  # the log can't begin anew while somebody reads
        for number in range(250):
            clock.now += 0.1
            await turn(journal, f"flood-{number}", answer)
            await store.save("analyst", Anchor(f"text:{number}", ()), "", b"y" * 50_000)
    assert log.stat().st_size > MAX_LOG_BYTES

    async def run_turns_until(fact: Callable[[], bool]) -> None:
        for number in range(20_000):  # the log is copied into the file beside these turns
            if fact():
                return
            clock.now += 0.01
            await turn(
                journal,
                f"later-{clock.now}-{number}",
                StoredResponse(200, "application/json", b"small"),
            )
        pytest.fail(f"{file.stat().st_size}, and {log.stat().st_size} in the log")

    await run_turns_until(lambda: log.stat().st_size <= MAX_LOG_BYTES)
    grown = file.stat().st_size
    assert grown > 40_000_000
    clock.now += RESUME_SECONDS
    await run_turns_until(lambda: file.stat().st_size < grown / 2)
    await journal.close()
    await store.close()


@pytest.mark.requirement("store:shrinks-later")
async def test_a_turn_goes_on_where_another_process_writes_while_the_file_is_to_shrink(
    tmp_path: Path,
) -> None:
    file = tmp_path / "s.db"
    database = Database(str(file))
    for statement in ("CREATE TABLE flood (x)", "INSERT INTO flood VALUES (zeroblob(2000000))"):
        await database.write(statement)
    await database.write("DELETE FROM flood")

    def free_pages() -> int:
        ((pages,),) = database.read("PRAGMA freelist_count")
        return int(pages)

    free = free_pages()
    with closing(sqlite3.connect(file, autocommit=True)) as other:
        other.execute("BEGIN IMMEDIATE")
        database.shrink()
        assert free_pages() == free > 0

    database.shrink()
    assert free_pages() < free
    database.close()


async def turn(journal: SqliteJournal, name: str, given: StoredResponse) -> None:
    assert await journal.begin(name, "analyst", RequestFingerprint(name, "", "", ""))
    await journal.end(name, given)
    await journal.mark_delivered(name)
