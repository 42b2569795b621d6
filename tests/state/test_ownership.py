"""Which agent owns what a provider keeps, in a file as on a server
(docs/spec/responses.md section 10).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from claw_state import ownership
from claw_state.ownership import (
    MAX_AGE_SECONDS,
    KeptObject,
    OwnershipStore,
    decode_kept,
    encode_kept,
)
from claw_state.url import StoreError
from tests.state.conftest import Clock

pytestmark = pytest.mark.requirement("responses:owned-ids")
type Ownerships = Callable[[], OwnershipStore]
WHOLE = KeptObject(
    *(
        "resp_1",
        "resp_2",
        "openai",
        "a…z",
        "resp_0",
        "session",
        ("key",),
        ("call_1",),
        ("resp_3",),
        b"{}",
        b'{"id":1}',
    )
)


async def test_another_proxy_finds_what_an_agent_owns_and_no_other_agent_does(
    ownerships: Ownerships,
) -> None:
    here, there = ownerships(), ownerships()
    await here.save("a", WHOLE)
    assert await there.find("a", "resp_1") == WHOLE
    assert await there.find("b", "resp_1") is None
    assert await there.find("a", "resp_2") is None
    await there.save("a", msgspec.structs.replace(WHOLE, pending_results=b""))
    assert (await here.find("a", "resp_1")) == msgspec.structs.replace(WHOLE, pending_results=b"")
    await here.delete("a", "resp_1")
    await here.delete("a", "resp_1")
    assert await there.find("a", "resp_1") is None


async def test_the_least_recently_used_and_the_old_go(
    ownerships: Ownerships, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("sqlite", "valkey"):
        monkeypatch.setattr(f"claw_state.{module}.ownership.MAX_OBJECTS", 3)
    monkeypatch.setattr("claw_state.sqlite.ownership._EVICT_EVERY", 1)
    store = ownerships()
    for number in range(3):
        await store.save("a", KeptObject(f"r{number}", "p", "openai"))
        clock.now += 1
    await store.save("b", KeptObject("r", "p", "openai"))
    assert await store.find("a", "r0") is not None
    clock.now += 1
    await store.save("a", KeptObject("r3", "p", "openai"))
    assert [await store.find("a", f"r{number}") is not None for number in range(4)] == [
        True,
        False,
        True,
        True,
    ]
    assert await store.find("b", "r") is not None
    clock.now += MAX_AGE_SECONDS + 1
    assert await store.find("a", "r3") is None
    await store.save("a", KeptObject("r4", "p", "openai"))
    assert await store.find("a", "r4") is not None


def test_a_record_of_an_earlier_version_is_read_and_a_damaged_one_is_refused() -> None:
    assert decode_kept(msgspec.msgpack.encode(["id", "p", "openai"])) == KeptObject(
        "id", "p", "openai"
    )
    assert decode_kept(encode_kept(WHOLE)) == WHOLE
    for damaged in (b"", b"\xc1", msgspec.msgpack.encode(["id"]), msgspec.msgpack.encode(7)):
        with pytest.raises(StoreError, match="can't be read"):
            decode_kept(damaged)
    assert ownership.MAX_OBJECTS == 10_000
