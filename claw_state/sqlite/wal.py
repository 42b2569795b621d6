"""Threads that wait for the disk, so that the event loop does not (docs/decisions/0014).

    flush       ``fdatasync`` of the log, as ``synchronous=FULL`` does at each commit; all callers
                that wait at one moment share one
    checkpoint  copies the log into the database now and then, while others write
    restart     a log starts again only when all of it was copied, which never happens while
                somebody writes. So the last piece of a long log is copied under the lock of
                writers: they wait some milliseconds in all processes, but no event loop does

SQLite's own checkpoint would stop the event loop. It remains for a log that grows nevertheless
(``claw_state/sqlite/schema.py``).
"""

import asyncio
import os
import sqlite3
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

_CHECKPOINT_PAGES = 800  # Written pages, roughly, between two checkpoints
_LONG_LOG_PAGES = 8000  # The length at which a log should start again
# The longest wait for those who write, or still read the log. Behind them the log grows on.
_RESTART_SECONDS = 0.25
_PAGES_PER_RECORD = 3  # At least: one of a table and two of its indexes
_PAGE_BYTES = 4096
_sync = getattr(os, "fdatasync", os.fsync)  # Not every system has ``fdatasync``


class WriteAheadLog:
    """The log of a file that is open elsewhere in this process."""

    def __init__(self, file: str) -> None:
        """Raise ``sqlite3.Error`` if the file can't be opened."""
        self._log = f"{file}-wal"
        self._db = sqlite3.connect(
            file, autocommit=True, timeout=_RESTART_SECONDS, check_same_thread=False
        )
        self._threads = ThreadPoolExecutor(2, "claw-state")
        self._flush_lock = asyncio.Lock()
        self._next_flush: asyncio.Future[None] | None = None
        self._checkpoint: Future[None] | None = None
        self._written_pages = 0

    async def flush(self) -> None:
        """Flush all previous writes to the disk.

        Raise ``OSError`` if they may not survive a power cut.
        """
        if self._next_flush is None:
            # ``_flush`` resets ``_next_flush`` when it begins, which must be after this assignment.
            # mitmproxy's loop begins tasks at once (its task factory is eager); ``Task`` does not.
            self._next_flush = asyncio.Task(self._flush(), loop=asyncio.get_running_loop())
            self._next_flush.add_done_callback(_retrieve_exception)
        await asyncio.shield(self._next_flush)

    def record_write(self, size: int) -> None:
        """Count a record of ``size`` bytes, and start a checkpoint when it is due."""
        self._written_pages += _PAGES_PER_RECORD + size // _PAGE_BYTES
        if self._written_pages >= _CHECKPOINT_PAGES:
            self.checkpoint()

    def checkpoint(self) -> None:
        """Start a checkpoint, unless one is running."""
        if self._checkpoint is None or self._checkpoint.done():
            self._written_pages = 0
            self._checkpoint = self._threads.submit(self._run_checkpoint)

    def close(self) -> None:
        """Finish the running work, and close."""
        self._threads.shutdown()
        self._db.close()

    async def _flush(self) -> None:
        async with self._flush_lock:
            # A later caller may have written what this flush does not include.
            self._next_flush = None
            await asyncio.get_running_loop().run_in_executor(self._threads, _flush_file, self._log)

    def _run_checkpoint(self) -> None:
        with suppress(sqlite3.Error):  # the next checkpoint tries again
            _, pages, _ = self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if pages >= _LONG_LOG_PAGES:
                # RESTART copies the rest under the lock. If the disk is slow, others have written
                # much since the first checkpoint, so a second one copies that without the lock.
                self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
                self._db.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()


def _flush_file(log: str) -> None:
    # SQLite holds no locks on the log itself, so closing a descriptor of it releases none.
    descriptor = os.open(log, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _sync(descriptor)
    finally:
        os.close(descriptor)


def _retrieve_exception(flush: asyncio.Future[None]) -> None:
    """Mark the exception as retrieved: all who waited for it may have gone."""
    if not flush.cancelled():
        flush.exception()
