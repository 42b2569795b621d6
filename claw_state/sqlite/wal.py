"""What waits for the disk does so in threads of its own, and the loop goes on meanwhile. Of a state in a file of SQLite.

flushed    the log, as it is, is on the disk: what ``synchronous=FULL`` does at each commit, for all who wait at one moment
written    now and then the log is carried over into the database, beside those who write
still      a log begins anew only when all of it was carried over, and never is it while somebody writes: of one that grew long
           the last piece is carried over while those who write wait, for some milliseconds, and not the loop with them

SQLite's own carrying, which would stop the loop, is left for a log that grows all the same, since another process writes too
(``claw_state/sqlite/schema.py``).
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

_CARRIED_AFTER = 800
"""Pages that were written since, or about as many."""
_LAST_PIECE = 100
_LONG = 8000
"""Pages of a log that should begin anew."""
_STILL_SECONDS = 0.1
"""How long who writes waits for the last piece: on a disk that takes longer the log grows on."""
_OF_A_RECORD = 3
"""Pages, at least: a table's and its indexes'."""
_PAGE = 4096
_sync = getattr(os, "fdatasync", os.fsync)
"""Which not every system has."""


class WriteAheadLog:
    """Of one file, which is open elsewhere too."""

    def __init__(self, file: str) -> None:
        """Raises ``sqlite3.Error``."""
        self._log = f"{file}-wal"
        self._db = sqlite3.connect(file, autocommit=True, timeout=0, check_same_thread=False)
        self._threads = ThreadPoolExecutor(2, "claw-state")
        self._one_flushes = asyncio.Lock()
        self._next: asyncio.Future[None] | None = None
        self._carrying: Future[int] | None = None
        self._last: Future[int] | None = None
        """The carrying that others wait for, if any did."""
        self._written = 0

    async def flushed(self) -> None:
        """All that is written by now outlives a power cut. Raises ``OSError``: then it may not."""
        if self._next is None:
            self._next = asyncio.ensure_future(self._flush())
            self._next.add_done_callback(_heard)
        await asyncio.shield(self._next)

    async def still(self) -> None:
        """Who is about to write waits here while the last piece of a long log is carried over."""
        if self._last is not None and not self._last.done():
            await asyncio.wait({asyncio.wrap_future(self._last)}, timeout=_STILL_SECONDS)

    def written(self, size: int) -> None:
        """A record of so many bytes was."""
        self._written += _OF_A_RECORD + size // _PAGE
        if self._written >= _CARRIED_AFTER or (self._written >= _LAST_PIECE and self._is_long()):
            self.carry()

    def carry(self) -> None:
        """Carry the log over, unless that is under way."""
        if self._carrying is None or self._carrying.done():
            long = self._is_long()
            self._written = 0
            self._carrying = self._threads.submit(self._carry)
            self._last = self._carrying if long else None

    def close(self) -> None:
        """Behind what is under way."""
        self._threads.shutdown()
        self._db.close()

    async def _flush(self) -> None:
        async with self._one_flushes:
            self._next = None  # who comes from here on may have written what this flush does not see
            await asyncio.get_running_loop().run_in_executor(self._threads, _flush, self._log)

    def _is_long(self) -> bool:
        """Whether the log is, as it was last found; not where somebody waited for that already, and in vain."""
        found = self._carrying
        return found is not None and found is not self._last and found.done() and found.result() >= _LONG

    def _carry(self) -> int:
        """How many pages the log has."""
        with suppress(sqlite3.Error):  # once more after as many records
            _, pages, _ = self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            return int(pages)
        return 0


def _flush(log: str) -> None:
    """The log is a file without locks: closing a descriptor of it takes none from SQLite."""
    descriptor = os.open(log, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _sync(descriptor)
    finally:
        os.close(descriptor)


def _heard(flush: asyncio.Future[None]) -> None:
    """All who waited may have gone."""
    if not flush.cancelled():
        flush.exception()
