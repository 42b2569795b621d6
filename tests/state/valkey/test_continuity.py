"""The continuity store on a server: every key expires."""

from __future__ import annotations

import pytest

from claw_state.valkey.client import ValkeyClient
from claw_state.valkey.continuity import ValkeyContinuityStore
from tests.state.conftest import Clock
from tests.state.server import SharedState
from tests.state.test_continuity import held, keep


@pytest.mark.requirement("store:expires")
async def test_every_key_expires_and_one_that_is_used_expires_last(
    shared: SharedState, clock: Clock
) -> None:
    """The counter of rounds expires too, but never before a round that it has numbered."""
    store = ValkeyContinuityStore(ValkeyClient(shared.place, timeout=10), clock)
    assert await store.is_writable()
    await keep(store, "a", "x", b"11")
    names = set(shared.asks("KEYS", "claw:*").decode().split()) & set(NAMES)
    assert names == set(NAMES)
    for name in NAMES:
        shared.asks("EXPIRE", name, "60")
    await held(store, "a", "x")
    seconds = {name: int(shared.asks("TTL", name).strip(b":\r\n")) for name in NAMES}
    assert min(seconds.values()) > 0
    assert {name for name in NAMES if seconds[name] <= 60} == {"claw:agents", "claw:schema"}
    await store.close()


NAMES = (
    *("claw:agents", "claw:last", "claw:schema"),
    *(f"claw:a:a:{part}" for part in ("about", "messages", "used", "whole", "bytes", "by:x")),
)
