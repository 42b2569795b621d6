"""The continuity store: hidden rounds by agent and anchor, in SQLite (spec/mediation.md section 7).

With a file it survives a restart; without one it lives as long as the process. Bounded per agent, oldest use first out.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Collection
from pathlib import Path

MOST_TURNS = 256
MOST_AGE_SECONDS = 7 * 24 * 3600.0
MOST_BYTES = 8 * 1024 * 1024
_LOCK_SECONDS = 0.1
"""How long another process's lock is waited for: everybody waits with us."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS hidden (
    agent TEXT NOT NULL, anchor TEXT NOT NULL, messages BLOB NOT NULL, used REAL NOT NULL,
    PRIMARY KEY (agent, anchor)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS hidden_by_use ON hidden (agent, used);
"""
_BY_USE = """
DELETE FROM hidden WHERE agent = ? AND used < MAX(?, COALESCE(
    (SELECT used FROM hidden WHERE agent = ? ORDER BY used DESC LIMIT 1 OFFSET ?), 0
))
"""
_BY_SIZE = """
DELETE FROM hidden WHERE agent = ? AND anchor IN (
    SELECT anchor FROM (
        SELECT anchor, SUM(LENGTH(messages)) OVER (ORDER BY used DESC, anchor) AS held FROM hidden WHERE agent = ?
    ) WHERE held > ?
)
"""


class Store:
    """What later requests need of earlier turns."""

    def __init__(self, file: str, clock: Callable[[], float] = time.time) -> None:
        """``file``: a path, or empty for memory. Raises ``sqlite3.Error`` or ``OSError`` when it can't be opened."""
        if file:
            Path(file).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        self._clock = clock
        self._held: dict[str, int] = {}
        """By agent the bytes that are held at most: they are summed up again only when it seems to be too many."""
        self._db = sqlite3.connect(file or ":memory:", autocommit=True, timeout=_LOCK_SECONDS)
        try:
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.executescript(_SCHEMA)
        except sqlite3.Error:
            self._db.close()
            raise

    def keep(self, agent_id: str, anchor: str, messages: bytes) -> None:
        """Hidden messages (JSON, comma separated) that led to the message with that anchor."""
        now = self._clock()
        self._held[agent_id] = self._held.get(agent_id, MOST_BYTES) + len(messages)
        self._db.execute("INSERT OR REPLACE INTO hidden VALUES (?, ?, ?, ?)", (agent_id, anchor, messages, now))
        self._db.execute(_BY_USE, (agent_id, now - MOST_AGE_SECONDS, agent_id, MOST_TURNS - 1))
        if self._held[agent_id] > MOST_BYTES:
            self._db.execute(_BY_SIZE, (agent_id, agent_id, MOST_BYTES))
            sized = self._db.execute("SELECT SUM(LENGTH(messages)) FROM hidden WHERE agent = ?", (agent_id,))
            self._held[agent_id] = sized.fetchone()[0] or 0

    def recall(self, agent_id: str, anchors: Collection[str]) -> dict[str, bytes]:
        """Of these anchors, those that hidden messages are kept for."""
        found: dict[str, bytes] = {}
        for anchor in set(anchors):
            row = self._db.execute(
                "UPDATE hidden SET used = ? WHERE agent = ? AND anchor = ? RETURNING messages",
                (self._clock(), agent_id, anchor),
            ).fetchone()
            if row is not None:
                found[anchor] = bytes(row[0])
        return found

    def writable(self) -> bool:
        """For ``/ready``."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute("ROLLBACK")
        except sqlite3.Error:
            return False
        return True

    def close(self) -> None:
        self._db.close()
