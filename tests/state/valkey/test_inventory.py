"""The inventory of a server that can't be used: one line with the remedy, without a password."""

from __future__ import annotations

import pytest

from claw_state.url import ServerAddress, StoreError, parse_place
from claw_state.valkey.client import SCHEMA, blocking_client
from claw_state.valkey.inventory import ValkeyInventory
from tests.state.server import SharedState
from tests.waiting import free_port


@pytest.mark.requirement("state:errors")
def test_a_server_that_is_not_there_is_one_line_with_the_remedy() -> None:
    port = free_port()
    server = parse_place(f"redis://:hush-hush@127.0.0.1:{port}/3")
    assert isinstance(server, ServerAddress)
    inventory = ValkeyInventory(server)
    for ask in (inventory.inventory, lambda: inventory.forget("a")):
        with pytest.raises(StoreError, match="does it run, and is it reachable from here") as error:
            ask()
        assert f"redis://127.0.0.1:{port}/3" in str(error.value)
        assert "hush-hush" not in str(error.value)
        assert "\n" not in str(error.value)


@pytest.mark.requirement("state:errors")
def test_a_server_that_a_newer_claw_uses_is_not_touched(shared: SharedState) -> None:
    with blocking_client(shared.place, 5) as client:
        client.set("claw:schema", SCHEMA + 1)
        client.zadd("claw:agents", {"a": 1.0})
    for ask in (ValkeyInventory(shared.place).inventory, lambda: forget(shared.place)):
        with pytest.raises(StoreError, match=f"schema {SCHEMA + 1}, and this one knows {SCHEMA}"):
            ask()
    with blocking_client(shared.place, 5) as client:
        assert client.zcard("claw:agents") == 1


def forget(place: ServerAddress) -> object:
    return ValkeyInventory(place).forget("a")
