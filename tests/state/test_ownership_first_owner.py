"""The first agent that gets an id of a provider's owns it, in a file as on a server."""

from __future__ import annotations

from collections.abc import Callable

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
from tests.state.conftest import Clock

pytestmark = pytest.mark.requirement("objects:first-owner")
type Ownerships = Callable[[], OwnershipStore]
FILE = ProviderObject("file", "file-1", "openai", "first")
OTHER = ProviderObject("file", "file-2", "openai")
RESPONSE = KeptObject("resp_1", "resp_1", "openai")


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
