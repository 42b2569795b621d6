"""Which agent owns the files, batches and the like that a provider keeps, in a file
as on a server.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from claw_state.inventory import StateInventory
from claw_state.ownership import (
    MAX_PROVIDER_OBJECT_AGE_SECONDS,
    USE_MARK_SECONDS,
    KeptObject,
    ObjectName,
    OwnershipStore,
    ProviderObject,
    decode_object,
)
from claw_state.url import StoreError
from tests.state.conftest import Clock

pytestmark = pytest.mark.requirement("objects:rows")
type Ownerships = Callable[[], OwnershipStore]
FILE = ProviderObject("file", "file-1", "openai", "first")
BATCH = ProviderObject("batch", "batch_1", "openai")


async def test_another_proxy_finds_an_agents_objects_and_no_other_agent_does(
    ownerships: Ownerships,
) -> None:
    here, there = ownerships(), ownerships()
    await here.save_objects("a", [FILE, BATCH])
    assert await there.find_objects("a", [FILE.name, ObjectName("file", "file-2"), BATCH.name]) == [
        FILE,
        BATCH,
    ]
    assert await there.find_objects("b", [FILE.name, BATCH.name]) == []
    assert await there.find_objects("a", []) == []

    moved = msgspec.structs.replace(FILE, provider="second", key_label="")
    await there.save_objects("a", [moved])
    assert await here.find_objects("a", [FILE.name]) == [moved]


async def test_all_objects_of_a_kind_are_listed(ownerships: Ownerships, clock: Clock) -> None:
    store = ownerships()
    old = ProviderObject("file", "file-0", "openai")
    await store.save_objects("a", [old])
    clock.now += MAX_PROVIDER_OBJECT_AGE_SECONDS
    other = ProviderObject("file", "file-2", "second")
    await store.save_objects("a", [FILE, BATCH, other, ProviderObject("file_x", "1", "openai")])
    await store.save_objects("b", [ProviderObject("file", "file-3", "openai")])
    assert sorted(await store.list_objects("a", "file"), key=lambda each: each.id) == [
        old,
        FILE,
        other,
    ]
    clock.now += 1
    assert sorted(await store.list_objects("a", "file"), key=lambda each: each.id) == [FILE, other]
    assert await store.list_objects("a", "eval") == []


async def test_an_id_of_one_kind_is_none_of_another_and_no_response(ownerships: Ownerships) -> None:
    store = ownerships()
    await store.save_objects("a", [FILE])
    await store.save("a", KeptObject("resp_1", "resp_1", "openai"))
    others = [ObjectName(kind, "file-1") for kind in ("batch", "fil", "file ", "")]
    assert (
        await store.find_objects(
            "a", [*others, ObjectName("file", "FILE-1"), ObjectName("", "resp_1")]
        )
        == []
    )
    assert await store.find("a", "file-1") is None


async def test_an_object_stays_for_a_year_after_its_last_use(
    ownerships: Ownerships, clock: Clock
) -> None:
    store = ownerships()
    await store.save_objects("a", [FILE, BATCH])
    clock.now += MAX_PROVIDER_OBJECT_AGE_SECONDS
    assert await store.find_objects("a", [FILE.name]) == [FILE]
    clock.now += 1
    assert await store.find_objects("a", [FILE.name, BATCH.name]) == [FILE]
    await store.save_objects("a", [ProviderObject("file", "file-2", "openai")])
    assert await store.find_objects("a", [FILE.name]) == [FILE]


async def test_a_use_is_written_once_a_day(ownerships: Ownerships, clock: Clock) -> None:
    store = ownerships()
    await store.save_objects("a", [FILE])
    begun = clock.now
    clock.now += USE_MARK_SECONDS
    await store.find_objects("a", [FILE.name])
    clock.now = begun + MAX_PROVIDER_OBJECT_AGE_SECONDS + 1
    assert await store.find_objects("a", [FILE.name]) == []


async def test_the_least_recently_used_objects_go(
    ownerships: Ownerships, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("sqlite", "valkey"):
        monkeypatch.setattr(f"claw_state.{module}.ownership.MAX_PROVIDER_OBJECTS", 3)
    monkeypatch.setattr("claw_state.sqlite.ownership._EVICT_EVERY", 1)
    store = ownerships()
    files = [ProviderObject("file", f"file-{number}", "openai") for number in range(4)]
    for each in files[:3]:
        await store.save_objects("a", [each])
        clock.now += USE_MARK_SECONDS + 1
    theirs = ProviderObject("file", "file-of-b", "openai")
    await store.save_objects("b", [theirs])
    await store.save("a", KeptObject("resp_1", "resp_1", "openai"))
    await store.find_objects("a", [files[0].name])
    clock.now += 1
    await store.save_objects("a", [files[3]])
    assert await store.find_objects("a", [each.name for each in files]) == [
        files[0],
        files[2],
        files[3],
    ]
    assert await store.find_objects("b", [theirs.name]) == [theirs]
    assert await store.find("a", "resp_1") is not None


async def test_the_inventory_counts_objects_and_forgets_them(
    ownerships: Ownerships, kept: StateInventory
) -> None:
    store = ownerships()
    await store.save_objects("a", [FILE, BATCH])
    await store.save("a", KeptObject("resp_1", "resp_1", "openai"))
    theirs = ProviderObject("file", "file-of-b", "openai")
    await store.save_objects("b", [theirs])
    assert {agent.agent: agent.owned for agent in kept.inventory().agents} == {"a": 3, "b": 1}

    forgotten = kept.forget("a")
    assert forgotten is not None
    assert forgotten.owned == 3
    assert {agent.agent: agent.owned for agent in kept.inventory().agents} == {"b": 1}
    assert await store.find_objects("a", [FILE.name, BATCH.name]) == []
    assert await store.find_objects("b", [theirs.name]) == [theirs]


def test_a_damaged_record_is_refused() -> None:
    assert decode_object(msgspec.msgpack.encode(FILE)) == FILE
    for damaged in (b"", b"\xc1", msgspec.msgpack.encode(["file"]), msgspec.msgpack.encode(7)):
        with pytest.raises(StoreError, match="can't be read"):
            decode_object(damaged)
