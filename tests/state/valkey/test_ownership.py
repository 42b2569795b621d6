"""The ownership store on a server: a key for each owner, also of what an earlier version wrote."""

from __future__ import annotations

import msgspec
import pytest

from claw_state.ownership import (
    USE_MARK_SECONDS,
)
from claw_state.valkey.client import ValkeyClient
from claw_state.valkey.inventory import ValkeyInventory
from claw_state.valkey.ownership import ValkeyOwnershipStore
from tests.state.conftest import Clock
from tests.state.server import SharedState
from tests.state.test_ownership_first_owner import FILE, OTHER, RESPONSE

pytestmark = pytest.mark.requirement("objects:first-owner")


async def test_a_key_names_an_object_s_owner_as_long_as_the_agent_has_it(
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


async def test_an_object_of_an_earlier_version_gets_an_owner_at_its_next_use(
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
