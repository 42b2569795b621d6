"""The tables of a state in a SQLite file, and how the file is opened and kept small.

0600    the mode of the file and of its -wal and -shm, also of those that exist;
0700 of a directory that is created for it
WAL     a kill -9 loses no completed write
vacuum  freed pages go back to the disk, a few at a time
"""

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.resources import files
from pathlib import Path

SCHEMA = 1  # The version of the tables, stored as ``user_version``
# The longest wait for other processes' locks while the file is opened: they may just make it, too
_OPEN_SECONDS = 5.0
HIDDEN_ROUNDS, TURNS, SPENDING, OWNED, PROVIDER_OBJECTS, CLOCK = (
    (files(__package__) / f"{name}.sql").read_text(encoding="utf-8")
    for name in ("hidden_rounds", "turns", "spending", "owned", "provider_objects", "clock")
)
TABLES = HIDDEN_ROUNDS + TURNS + SPENDING + OWNED + PROVIDER_OBJECTS + CLOCK
"""Missing tables are created.

So a file of an earlier version gets new ones, and keeps its version.
"""
MAX_LOG_BYTES = 48 * 1024 * 1024
"""The size to which the write-ahead log is truncated when it starts again.

A log of normal length (``claw_state/sqlite/wal.py``) stays below it, because truncating blocks the
event loop for 30 ms.
"""
_MAX_LOG_PAGES = 16_000
"""The length at which SQLite checkpoints the log during a write.

Before that a thread does (``claw_state/sqlite/wal.py``).
"""
_VACUUM_PAGES = 256
VACUUM_STEP = f"PRAGMA incremental_vacuum({_VACUUM_PAGES})"
"""The statement that returns a few pages to the disk. The event loop waits meanwhile."""
_INCREMENTAL = 2
_TRUNCATE_TRIES = 50
_LOCK_HELD_SECONDS = 0.005
_PAUSE_RATIO = 3  # Seconds of pause for each second that a low-priority transaction held the lock
REMEDY = (
    "move the file away (with its -wal and -shm) and start again: conversations then go on "
    "without their earlier hidden rounds, and retries of turns from before are new turns"
)


def open_database(file: str, schema: str) -> sqlite3.Connection:
    """Open a file, or a database in memory if ``file`` is empty, and create its tables.

    Raise ``sqlite3.Error`` or ``OSError`` if it can't be opened.
    """
    if file:
        _create_directory(Path(file).parent)
        # An existing file must not be opened here: closing it would release SQLite's locks.
        if not Path(file).exists():
            os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        for part in (file, f"{file}-wal", f"{file}-shm"):
            with suppress(OSError):  # another user's, or absent
                Path(part).chmod(0o600)

    database = sqlite3.connect(file or ":memory:", autocommit=True, timeout=_OPEN_SECONDS)
    try:
        check_version(database)
        _configure(database)
        database.executescript(schema)
        database.execute("PRAGMA busy_timeout=0")  # the event loop must not wait
    except sqlite3.Error:
        database.close()
        raise
    return database


def check_version(database: sqlite3.Connection) -> int:
    """Return the file's version. Raise ``sqlite3.NotSupportedError`` if a newer claw wrote it."""
    version: int = database.execute("PRAGMA user_version").fetchone()[0]
    if version > SCHEMA:
        raise sqlite3.NotSupportedError(
            f"a newer claw has written it (schema {version}, and this one knows "
            f"{SCHEMA}): use that one, or another file"
        )
    return version


def check_integrity(database: sqlite3.Connection) -> None:
    """Raise ``sqlite3.DatabaseError`` if the file is damaged."""
    (result,) = database.execute("PRAGMA quick_check(1)").fetchone()
    if result != "ok":
        raise sqlite3.DatabaseError(
            f"database disk image is malformed: {str(result).splitlines()[-1]}"
        )


@contextmanager
def low_priority_transaction(database: sqlite3.Connection) -> Iterator[float]:
    """Yield the monotonic time by which the transaction should end, commit it, and pause.

    The pause is longer than the transaction, so that a proxy that waits for the lock finds it free.
    """
    database.execute("BEGIN IMMEDIATE")
    begun = time.monotonic()
    yield begun + _LOCK_HELD_SECONDS
    database.execute("COMMIT")
    time.sleep(_PAUSE_RATIO * (time.monotonic() - begun))


def vacuum_and_truncate_log(database: sqlite3.Connection) -> bool:
    """Return all free pages to the disk, and truncate the log.

    Return False if the log can't be truncated, because it was read all the time.
    """
    # The file of an old version does not shrink: its number of free pages stays the same.
    before = -1
    while (free := database.execute("PRAGMA freelist_count").fetchone()[0]) not in (0, before):
        before = free
        with low_priority_transaction(database):
            database.execute(VACUUM_STEP).fetchall()

    # Short, because nobody can write while TRUNCATE waits for readers of the log.
    database.execute("PRAGMA busy_timeout=20")
    for _ in range(_TRUNCATE_TRIES):
        # This copies most of the log, and blocks nobody.
        database.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        (is_busy, *_) = database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if not is_busy:
            return True

        time.sleep(_LOCK_HELD_SECONDS * _PAUSE_RATIO)
    return False


def describe_error(error: Exception) -> str:
    """Return why the state can't be used, with a remedy if there is one."""
    is_damaged = isinstance(error, sqlite3.DatabaseError) and type(error) is sqlite3.DatabaseError
    return f"{error}; {REMEDY}" if is_damaged else str(error)


def _create_directory(directory: Path) -> None:
    if directory.is_dir():
        return

    _create_directory(directory.parent)
    # Another process may just have created it. If it is a file, opening the database fails.
    with suppress(FileExistsError):
        directory.mkdir()
        directory.chmod(0o700)


def _configure(database: sqlite3.Connection) -> None:
    (vacuum,) = database.execute("PRAGMA auto_vacuum").fetchone()
    if vacuum != _INCREMENTAL:
        database.execute("PRAGMA auto_vacuum=INCREMENTAL")
        if database.execute("SELECT 1 FROM sqlite_master").fetchone() is not None:
            # A file of an old version can shrink only after this. If it is in use, the next start
            # tries again.
            with suppress(sqlite3.OperationalError):
                database.execute("VACUUM")

    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=NORMAL")
    database.execute(f"PRAGMA journal_size_limit={MAX_LOG_BYTES}")
    database.execute(f"PRAGMA wal_autocheckpoint={_MAX_LOG_PAGES}")
    if database.execute("PRAGMA user_version").fetchone()[0] != SCHEMA:
        database.execute(f"PRAGMA user_version={SCHEMA}")
