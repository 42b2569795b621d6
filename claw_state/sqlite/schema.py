"""The state in a file of SQLite: its tables, how it is opened, and how it stays small.

0600     the file, and what SQLite keeps beside it (-wal, -shm), whatever they were; 0700 a directory that is made for it
WAL      a kill -9 loses nothing that was written
vacuum   what is deleted is given back to the disk, a little at a time (``vacuum_step``)
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SCHEMA = 1
"""Of the tables, as the file says it (``user_version``)."""
LOCK_SECONDS = 0.1
"""How long another process's lock is waited for: everybody waits with us."""
HIDDEN_ROUNDS = """
DROP TABLE IF EXISTS hidden;
CREATE TABLE IF NOT EXISTS kept (
    id INTEGER PRIMARY KEY AUTOINCREMENT, agent TEXT NOT NULL, key TEXT NOT NULL, before TEXT NOT NULL,
    session TEXT NOT NULL, messages BLOB NOT NULL, used REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS kept_by_key ON kept (agent, key, id);
CREATE INDEX IF NOT EXISTS kept_by_use ON kept (agent, used);
CREATE INDEX IF NOT EXISTS kept_whole ON kept (agent, used) WHERE LENGTH(messages) > 1;
CREATE INDEX IF NOT EXISTS kept_marks ON kept (agent, used) WHERE LENGTH(messages) <= 1;
"""
"""Hidden rounds, by agent and anchor."""
TURNS = """
CREATE TABLE IF NOT EXISTS turns (
    turn TEXT PRIMARY KEY, agent TEXT NOT NULL, request TEXT NOT NULL, earlier TEXT NOT NULL, said TEXT NOT NULL,
    attempt TEXT NOT NULL, state TEXT NOT NULL, owner TEXT NOT NULL, seen REAL NOT NULL, answer BLOB
);
CREATE UNIQUE INDEX IF NOT EXISTS one_runs ON turns (agent, request) WHERE state = 'running';
CREATE INDEX IF NOT EXISTS turns_by_request ON turns (agent, request, seen);
DROP INDEX IF EXISTS turns_that_may_go_on;
DROP INDEX IF EXISTS turns_to_go_on_with;
CREATE INDEX IF NOT EXISTS turns_not_done ON turns (agent, earlier, seen) WHERE state != 'done';
CREATE INDEX IF NOT EXISTS turns_by_time ON turns (seen);
CREATE TABLE IF NOT EXISTS steps (
    turn TEXT NOT NULL, round INTEGER NOT NULL, place INTEGER NOT NULL, record BLOB NOT NULL,
    PRIMARY KEY (turn, round, place)
) WITHOUT ROWID;
CREATE TRIGGER IF NOT EXISTS a_turn_goes_with_its_steps AFTER DELETE ON turns BEGIN
    DELETE FROM steps WHERE turn = OLD.turn;
END;
CREATE TRIGGER IF NOT EXISTS an_answer_is_all_that_is_kept AFTER UPDATE OF answer ON turns WHEN NEW.answer IS NOT NULL BEGIN
    DELETE FROM steps WHERE turn = NEW.turn;
END;
"""
"""The journal."""
SPENDING = """
CREATE TABLE IF NOT EXISTS spending (
    agent TEXT NOT NULL, ends REAL NOT NULL, requests INTEGER NOT NULL, cost REAL NOT NULL, unknown INTEGER NOT NULL,
    PRIMARY KEY (agent, ends)
) WITHOUT ROWID;
"""
"""What agents have spent, in buckets."""
TABLES = HIDDEN_ROUNDS + TURNS + SPENDING
MAX_LOG_BYTES = 48 * 1024 * 1024
"""To which the write-ahead log is cut when it begins anew: one that grew as it may (``claw_state/sqlite/wal.py``) is not, since
everybody waits for some 30 ms meanwhile.
"""
_LONGEST_LOG = 16_000
"""Pages of the log at which who writes carries it over. Before that others do (``claw_state/sqlite/wal.py``)."""
_PAGES = 256
"""Given back to the disk at a time: everybody waits with us."""
SHRINK = f"PRAGMA incremental_vacuum({_PAGES})"
_INCREMENTAL = 2
_TRIES = 50
"""To cut the log while others use it."""
_HELD_SECONDS = 0.005
_PAUSES = 3
"""For each second that a lock was held."""
REMEDY = (
    "move the file away (with its -wal and -shm) and start again: conversations then go on without their earlier hidden "
    "rounds, and retries of turns from before are new turns"
)


def open_database(file: str, schema: str) -> sqlite3.Connection:
    """``file``: a path, or empty for memory. Raises ``sqlite3.Error`` or ``OSError`` when it can't be opened."""
    if file:
        _make(Path(file).parent)
        if not Path(file).exists():  # one that is there must not be opened: closing it takes SQLite's locks from it
            os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        for part in (file, f"{file}-wal", f"{file}-shm"):
            with suppress(OSError):  # another user's, or not there
                Path(part).chmod(0o600)
    database = sqlite3.connect(file or ":memory:", autocommit=True, timeout=LOCK_SECONDS)
    try:
        check_version(database)
        _becomes_ours(database)
        database.executescript(schema)
    except sqlite3.Error:
        database.close()
        raise
    return database


def check_version(database: sqlite3.Connection) -> int:
    """The file's version. Raises ``sqlite3.NotSupportedError`` for one that a later claw has written."""
    version: int = database.execute("PRAGMA user_version").fetchone()[0]
    if version > SCHEMA:
        raise sqlite3.NotSupportedError(
            f"a newer claw has written it (schema {version}, and this one knows {SCHEMA}): use that one, or another file"
        )
    return version


def check_integrity(database: sqlite3.Connection) -> None:
    """Raises ``sqlite3.DatabaseError`` for a file that is damaged: better now than in the middle of a turn."""
    (found,) = database.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise sqlite3.DatabaseError(f"database disk image is malformed: {str(found).splitlines()[-1]}")


def vacuum_step(database: sqlite3.Connection) -> None:
    """Give pages that are free back to the disk. Raises ``sqlite3.Error``."""
    database.execute(SHRINK).fetchall()


@contextmanager
def low_priority_transaction(database: sqlite3.Connection) -> Iterator[float]:
    """A transaction of somebody who is in no hurry; it should end by the time that is given. Behind it comes a pause that is
    longer than it was: a proxy waits ``LOCK_SECONDS``, looks a few times, and must then find it free.
    """
    database.execute("BEGIN IMMEDIATE")
    begun = time.monotonic()
    yield begun + _HELD_SECONDS
    database.execute("COMMIT")
    time.sleep(_PAUSES * (time.monotonic() - begun))


def vacuum_and_truncate_log(database: sqlite3.Connection) -> bool:
    """All free pages go back to the disk, and the log is carried over and cut; False: others read in it all the time."""
    pages = -1
    while database.execute("PRAGMA freelist_count").fetchone()[0] not in (
        0,
        pages,
    ):  # else an old file: it does not shrink
        pages = database.execute("PRAGMA freelist_count").fetchone()[0]
        with low_priority_transaction(database):
            vacuum_step(database)
    database.execute("PRAGMA busy_timeout=20")  # nobody can write while the log waits for its readers
    for _ in range(_TRIES):
        database.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()  # most of it, which stops nobody
        if database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0:
            return True
        time.sleep(_HELD_SECONDS * _PAUSES)
    return False


def describe_error(error: Exception) -> str:
    """Why the state can't be used, with a remedy where there is one."""
    damaged = isinstance(error, sqlite3.DatabaseError) and type(error) is sqlite3.DatabaseError
    return f"{error}; {REMEDY}" if damaged else str(error)


def _make(directory: Path) -> None:
    """As ``mkdir -p``, but every directory that is made is private."""
    if not directory.is_dir():
        _make(directory.parent)
        with suppress(FileExistsError):  # another process just made it; or it is a file, as opening will tell
            directory.mkdir()
            directory.chmod(0o700)


def _becomes_ours(database: sqlite3.Connection) -> None:
    (vacuum,) = database.execute("PRAGMA auto_vacuum").fetchone()
    if vacuum != _INCREMENTAL:
        database.execute("PRAGMA auto_vacuum=INCREMENTAL")
        if database.execute("SELECT 1 FROM sqlite_master").fetchone() is not None:
            with suppress(sqlite3.OperationalError):  # others are at it: at the next start
                database.execute("VACUUM")  # a file of an earlier version: only so does it begin to shrink
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=NORMAL")
    database.execute(f"PRAGMA journal_size_limit={MAX_LOG_BYTES}")
    database.execute(f"PRAGMA wal_autocheckpoint={_LONGEST_LOG}")
    if database.execute("PRAGMA user_version").fetchone()[0] != SCHEMA:
        database.execute(f"PRAGMA user_version={SCHEMA}")
