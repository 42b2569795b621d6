"""The ownership store in a file: its bounds, locks, and files of an earlier version."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from claw_state.ownership import (
    USE_MARK_SECONDS,
    KeptObject,
    OwnershipStore,
)
from claw_state.sqlite.connection import Database
from claw_state.sqlite.ownership import SqliteOwnershipStore
from claw_state.url import StoreError
from tests.state.conftest import Clock
from tests.state.test_ownership import WHOLE
from tests.state.test_ownership_first_owner import RESPONSE
from tests.state.test_ownership_objects import BATCH, FILE


@pytest.mark.requirement("responses:owned-ids")
async def test_excess_objects_go_after_some_saves_and_at_a_process_s_first_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    monkeypatch.setattr("claw_state.sqlite.ownership.MAX_OBJECTS", 3)

    async def save(store: OwnershipStore, times: int) -> int:
        for _ in range(times):
            clock.now += 1
            await store.save("a", KeptObject(f"r{clock.now}", "p", "openai"))
        with closing(sqlite3.connect(tmp_path / "s.db")) as file:
            count: int = file.execute("SELECT COUNT(*) FROM owned").fetchone()[0]
        return count

    store = SqliteOwnershipStore(Database(str(tmp_path / "s.db")), clock)
    assert await save(store, 64) == 64
    assert await save(store, 1) == 3
    assert await save(store, 5) == 8
    await store.close()
    store = SqliteOwnershipStore(Database(str(tmp_path / "s.db")), clock)
    assert await save(store, 1) == 3
    await store.close()


@pytest.mark.requirement("responses:owned-ids")
async def test_while_another_process_has_locked_the_file_owners_are_still_found(
    tmp_path: Path,
) -> None:
    file = tmp_path / "s.db"
    store = SqliteOwnershipStore(Database(str(file)))
    await store.save("a", WHOLE)
    with closing(sqlite3.connect(file)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert await store.find("a", "resp_1") == WHOLE
        with pytest.raises(StoreError):
            await store.save("a", WHOLE)
    await store.close()


@pytest.mark.requirement("objects:rows")
async def test_while_another_process_has_locked_the_file_objects_are_still_found(
    tmp_path: Path, clock: Clock
) -> None:
    file = tmp_path / "s.db"
    store = SqliteOwnershipStore(Database(str(file)), clock)
    await store.save_objects("a", [FILE])
    clock.now += USE_MARK_SECONDS + 1
    with closing(sqlite3.connect(file)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert await store.find_objects("a", [FILE.name]) == [FILE]
        with pytest.raises(StoreError):
            await store.save_objects("a", [BATCH])
    await store.close()


_EARLIER = """
PRAGMA user_version=1;
CREATE TABLE provider_objects (
    agent TEXT NOT NULL, kind TEXT NOT NULL, id TEXT NOT NULL, provider TEXT NOT NULL, key_label TEXT NOT NULL,
    used REAL NOT NULL, PRIMARY KEY (agent, kind, id)
) WITHOUT ROWID;
CREATE TABLE owned (
    agent TEXT NOT NULL, id TEXT NOT NULL, record BLOB NOT NULL, used REAL NOT NULL, PRIMARY KEY (agent, id)
) WITHOUT ROWID;
"""


@pytest.mark.requirement("objects:first-owner")
async def test_a_file_of_an_earlier_version_gets_the_indexes_and_keeps_both_owners(
    tmp_path: Path,
) -> None:
    file = tmp_path / "s.db"
    with closing(sqlite3.connect(file)) as earlier:
        earlier.executescript(_EARLIER)
        for agent in ("a", "b"):
            earlier.execute(
                "INSERT INTO provider_objects VALUES (?, 'file', 'file-1', 'openai', 'first', 4e9)",
                (agent,),
            )
            record = msgspec.msgpack.encode(RESPONSE)
            earlier.execute("INSERT INTO owned VALUES (?, 'resp_1', ?, 4e9)", (agent, record))
        earlier.commit()
    store = SqliteOwnershipStore(Database(str(file)))
    assert await store.save_objects("c", [FILE]) == [FILE]
    assert not await store.save("c", RESPONSE)
    for agent in ("a", "b"):
        assert await store.save_objects(agent, [FILE]) == []
        assert await store.save(agent, RESPONSE)
        assert await store.find_objects(agent, [FILE.name]) == [FILE]
    await store.close()
    with closing(sqlite3.connect(file)) as now:
        names = {
            name for (name,) in now.execute("SELECT name FROM sqlite_master WHERE type = 'index'")
        }
        plan = now.execute(
            "EXPLAIN QUERY PLAN SELECT agent FROM provider_objects WHERE kind = 'x' AND id = 'y'"
        ).fetchall()
    assert {"provider_objects_by_id", "owned_by_id"} <= names
    assert "provider_objects_by_id" in plan[0][3]
