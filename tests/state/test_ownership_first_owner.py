"""The first agent that gets an id of a provider's owns it, in a file as on a server."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from claw_state.inventory import StateInventory
from claw_state.ownership import (
    MAX_AGE_SECONDS,
    MAX_PROVIDER_OBJECT_AGE_SECONDS,
    USE_MARK_SECONDS,
    KeptObject,
    OwnershipStore,
    ProviderObject,
)
from claw_state.sqlite.connection import Database
from claw_state.sqlite.ownership import SqliteOwnershipStore
from claw_state.valkey.client import ValkeyClient
from claw_state.valkey.inventory import ValkeyInventory
from claw_state.valkey.ownership import ValkeyOwnershipStore
from tests.state.conftest import Clock
from tests.state.server import SharedState

pytestmark = pytest.mark.requirement("objects:first-owner")
type Ownerships = Callable[[], OwnershipStore]
FILE = ProviderObject("file", "file-1", "openai", "first")
OTHER = ProviderObject("file", "file-2", "openai")
RESPONSE = KeptObject("resp_1", "resp_1", "openai")
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


async def test_an_id_of_another_agent_stays_that_agents(ownerships: Ownerships) -> None:
    here, there = ownerships(), ownerships()
    assert await here.save_objects("a", [FILE]) == []
    assert await there.save_objects("b", [FILE, OTHER]) == [FILE]
    assert await here.find_objects("b", [FILE.name, OTHER.name]) == [OTHER]
    assert await here.list_objects("b", "file") == [OTHER]
    assert await there.find_objects("a", [FILE.name]) == [FILE]
    relabelled = msgspec.structs.replace(FILE, key_label="second")
    assert await there.save_objects("a", [relabelled]) == []
    assert await here.find_objects("a", [FILE.name]) == [relabelled]


async def test_another_agents_response_stays_that_agents(ownerships: Ownerships) -> None:
    here, there = ownerships(), ownerships()
    assert await here.save("a", RESPONSE)
    changed = msgspec.structs.replace(RESPONSE, pending_results=b"{}")
    assert not await there.save("b", changed)
    assert not await there.save("b", KeptObject("resp_of_b", "resp_1", "openai"))
    assert await here.find("b", "resp_1") is None
    assert await here.find("b", "resp_of_b") is None
    assert await here.find("a", "resp_1") == RESPONSE
    assert await there.save("a", changed)
    assert await here.find("a", "resp_1") == changed


async def test_an_id_of_another_kind_or_provider_is_another_one(ownerships: Ownerships) -> None:
    store = ownerships()
    await store.save_objects("a", [FILE])
    await store.save("a", RESPONSE)
    elsewhere = msgspec.structs.replace(FILE, provider="second")
    batch = ProviderObject("batch", FILE.id, "openai")
    assert await store.save_objects("b", [elsewhere, batch]) == []
    assert await store.save("b", msgspec.structs.replace(RESPONSE, provider="second"))
    assert await store.save_objects("b", [FILE]) == [FILE]
    assert not await store.save("b", RESPONSE)
    assert await store.find_objects("b", [elsewhere.name]) == [elsewhere]
    assert await store.find_objects("a", [FILE.name]) == [FILE]


async def test_where_agents_may_share_both_have_it(ownerships: Ownerships) -> None:
    store = ownerships()
    await store.save_objects("a", [FILE])
    await store.save("a", RESPONSE)
    assert await store.save_objects("b", [FILE], may_share=True) == []
    assert await store.save("b", RESPONSE, may_share=True)
    assert await store.save_objects("c", [FILE]) == [FILE]
    for agent in ("a", "b"):
        assert await store.save_objects(agent, [FILE]) == []
        assert await store.save(agent, RESPONSE)
        assert await store.find_objects(agent, [FILE.name]) == [FILE]
        assert await store.find(agent, "resp_1") == RESPONSE


async def test_an_id_that_was_deleted_or_forgotten_is_free(
    ownerships: Ownerships, kept: StateInventory
) -> None:
    store = ownerships()
    await store.save_objects("a", [FILE])
    await store.save("a", RESPONSE)
    await store.delete("a", "resp_1")
    assert await store.save("b", RESPONSE)
    assert not await store.save("a", RESPONSE)
    assert kept.forget("a") is not None
    assert kept.forget("b") is not None
    assert await store.save_objects("b", [FILE]) == []
    assert await store.save("a", RESPONSE)
    assert await store.save_objects("a", [FILE]) == [FILE]
    assert not await store.save("b", RESPONSE)


async def test_an_id_is_free_when_its_owner_has_not_used_it_for_long(
    ownerships: Ownerships, clock: Clock
) -> None:
    store = ownerships()
    await store.save_objects("a", [FILE])
    clock.now += MAX_PROVIDER_OBJECT_AGE_SECONDS - USE_MARK_SECONDS
    await store.find_objects("a", [FILE.name])
    await store.save("a", RESPONSE)
    clock.now += MAX_AGE_SECONDS
    assert not await store.save("b", RESPONSE)
    clock.now += 1
    assert await store.save("b", RESPONSE)
    assert await store.find("a", "resp_1") is None
    assert await store.save_objects("b", [FILE]) == [FILE]
    clock.now += MAX_PROVIDER_OBJECT_AGE_SECONDS
    assert await store.save_objects("b", [FILE]) == []
    assert await store.save_objects("a", [FILE]) == [FILE]
    assert await store.find_objects("a", [FILE.name]) == []


async def test_an_id_that_was_evicted_is_free(
    ownerships: Ownerships, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("sqlite", "valkey"):
        monkeypatch.setattr(f"claw_state.{module}.ownership.MAX_PROVIDER_OBJECTS", 1)
        monkeypatch.setattr(f"claw_state.{module}.ownership.MAX_OBJECTS", 1)
    monkeypatch.setattr("claw_state.sqlite.ownership._EVICT_EVERY", 1)
    store = ownerships()
    for file, response in ((FILE, RESPONSE), (OTHER, KeptObject("resp_2", "resp_2", "openai"))):
        await store.save_objects("a", [file])
        await store.save("a", response)
        clock.now += 1
    assert await store.save_objects("b", [FILE]) == []
    assert await store.save("b", RESPONSE)
    assert await store.save_objects("c", [OTHER]) == [OTHER]


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


async def test_a_server_has_a_key_of_each_owner_as_long_as_the_agent_has_the_object(
    shared: SharedState, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("claw_state.valkey.ownership.MAX_PROVIDER_OBJECTS", 1)
    store = ValkeyOwnershipStore(ValkeyClient(shared.place, timeout=10), clock)
    await store.save("a", RESPONSE)
    await store.save_objects("a", [FILE])
    assert owner_keys(shared) == {"claw:o:objects:openai file file-1", "claw:o:owned:openai resp_1"}
    assert b":-" not in shared.asks("TTL", "claw:o:owned:openai resp_1")

    await store.save_objects("a", [msgspec.structs.replace(FILE, provider="second")])
    clock.now += 1
    await store.delete("a", "resp_1")
    assert owner_keys(shared) == {"claw:o:objects:second file file-1"}
    await store.save_objects("a", [OTHER])
    assert owner_keys(shared) == {"claw:o:objects:openai file file-2"}
    ValkeyInventory(shared.place, clock).forget("a")
    assert owner_keys(shared) == set()
    await store.close()


async def test_on_a_server_what_an_earlier_version_wrote_is_its_owners_from_the_next_use_on(
    shared: SharedState, clock: Clock
) -> None:
    store = ValkeyOwnershipStore(ValkeyClient(shared.place, timeout=10), clock)
    await store.save("a", RESPONSE)
    await store.save_objects("a", [FILE])
    for key in owner_keys(shared):
        shared.asks("DEL", key)
    clock.now += USE_MARK_SECONDS + 1
    await store.find("a", "resp_1")
    await store.find_objects("a", [FILE.name])
    assert not await store.save("b", RESPONSE)
    assert await store.save_objects("b", [FILE]) == [FILE]
    await store.close()


def owner_keys(shared: SharedState) -> set[str]:
    """Return the names of the keys that say whose an id is."""
    lines = shared.asks("KEYS", "claw:o:*").decode().split("\r\n")
    return {line for line in lines if line.startswith("claw:o:")}
