"""The continuity store: bounded, durable, and each agent's own; in a file as on a server."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from claw_state.continuity import (
    MAX_AGE_SECONDS,
    MAX_BYTES,
    MAX_MARKS,
    MAX_NAMES,
    MAX_TURNS,
    Anchor,
    ContinuityStore,
)
from tests.state.conftest import Clock

type Stores = Callable[[], ContinuityStore]


async def keep(
    store: ContinuityStore, agent: str, key: str, messages: bytes, session: str = ""
) -> None:
    await store.save(agent, Anchor(key, ("before",)), session, messages)


async def held(store: ContinuityStore, agent: str, *keys: str) -> list[tuple[str, bytes]]:
    """Return keys and messages of the stored rounds that were not evicted, and mark
    them as used.
    """
    found = [one for one in await store.find(agent, keys) if not one.evicted]
    await store.mark_used(agent, found)
    return [(one.anchor.key, one.messages) for one in found]


@pytest.mark.requirement("store:own")
async def test_what_is_kept_is_found_by_its_agent_and_key_only_the_latest_first(
    stores: Stores,
) -> None:
    store = stores()
    await keep(store, "a", "x", b"11")
    await keep(store, "b", "x", b"22", "s")
    assert await held(store, "a", "x", "x", "y") == [("x", b"11")]
    (one,) = await store.find("b", ["x"])
    assert (one.anchor, one.session, one.messages) == (Anchor("x", ("before",)), "s", b"22")
    assert await held(store, "c", "x") == await held(store, "a") == []
    await keep(store, "a", "x", b"new")
    assert await held(store, "a", "x") == [("x", b"new"), ("x", b"11")]
    await store.close()


@pytest.mark.requirement("continuity:evidence")
async def test_an_answer_that_hid_nothing_is_stored_and_differs_from_an_equal_one(
    stores: Stores,
) -> None:
    store = stores()
    await keep(store, "a", "x", b"")
    assert await held(store, "a", "x") == [("x", b"")]
    await keep(store, "a", "x", b"11")
    await keep(store, "a", "x", b"")
    assert await held(store, "a", "x") == [("x", b""), ("x", b"11"), ("x", b"")]
    await store.close()


@pytest.mark.requirement("store:bounded")
async def test_the_least_recently_used_turns_go_first_and_only_those_of_that_agent(
    stores: Stores, clock: Clock
) -> None:
    store = stores()
    await keep(store, "other", "x", b"11")
    for number in range(MAX_TURNS):
        clock.now += 1
        await keep(store, "a", f"t{number}", b"11")
    clock.now += 1
    await held(store, "a", "t0")
    clock.now += 1
    await keep(store, "a", "new", b"11")
    kept = [
        key for key, _ in await held(store, "a", *(f"t{number}" for number in range(MAX_TURNS)))
    ]
    assert len(kept) == MAX_TURNS - 1
    assert "t0" in kept
    assert "t1" not in kept
    assert await held(store, "other", "x") == [("x", b"11")]
    (evicted,) = await store.find("a", ["t1"])
    assert (evicted.evicted, evicted.messages, evicted.anchor.before) == (True, b"", ("before",))
    await store.close()


@pytest.mark.requirement("store:names", "live:continuity-hides")
async def test_all_names_of_an_entry_outlive_its_messages(stores: Stores, clock: Clock) -> None:
    store = stores()
    names = tuple(f"d+live:hides:{number}" for number in range(MAX_NAMES))
    await store.save("a", Anchor("x", ("before",), names=names), "", b"11")
    for number in range(MAX_TURNS):
        clock.now += 1
        await keep(store, "a", f"t{number}", b"11")

    for name in (names[0], names[-1]):
        (entry,) = await store.find("a", [name])
        assert (entry.evicted, entry.messages) == (True, b"")
        assert name in entry.anchor.names
    await store.close()


@pytest.mark.requirement("store:marks")
async def test_answers_that_hid_nothing_have_a_bound_of_their_own(
    stores: Stores, clock: Clock
) -> None:
    store = stores()
    for number in range(3):
        clock.now += 1
        await keep(store, "a", f"whole{number}", b"11")
    for number in range(MAX_MARKS + 20):
        clock.now += 1
        await keep(store, "a", f"mark{number}", b"")
    assert [key for key, _ in await held(store, "a", "mark0", "mark1", "mark20")] == ["mark20"]
    assert len(await held(store, "a", "whole0", "whole1", "whole2")) == 3
    await store.close()


@pytest.mark.requirement("store:bounded")
async def test_what_was_not_used_for_a_week_is_gone(stores: Stores, clock: Clock) -> None:
    store = stores()
    await keep(store, "a", "old", b"11")
    await keep(store, "a", "used", b"11")
    clock.now += MAX_AGE_SECONDS
    await held(store, "a", "used")
    clock.now += 1
    await keep(store, "a", "new", b"11")
    assert {key for key, _ in await held(store, "a", "old", "used", "new")} == {"used", "new"}
    await store.close()


@pytest.mark.requirement("continuity:bounds")
async def test_an_agent_keeps_so_many_bytes_and_the_latest_ones(
    stores: Stores, clock: Clock
) -> None:
    store = stores()
    third = b"x" * (MAX_BYTES // 3)
    for number in range(5):
        clock.now += 1
        await keep(store, "analyst", f"calls:{number}", third)
        await keep(store, "executor", f"calls:{number}", b"small")
    keys = [f"calls:{number}" for number in range(5)]
    assert sorted(key for key, _ in await held(store, "analyst", *keys)) == [
        "calls:2",
        "calls:3",
        "calls:4",
    ]
    assert len(await held(store, "executor", *keys)) == 5
    await store.close()


@pytest.mark.requirement("store:names")
async def test_an_entry_is_found_once_by_each_name_and_its_names_go_with_it(
    stores: Stores, clock: Clock
) -> None:
    store = stores()
    await store.save("a", Anchor("x", ("before",), names=("n1", "n2")), "s", b"11")
    await store.save("a", Anchor("y", names=("n2",)), "s", b"22")
    await store.save("b", Anchor("x", names=("n1",)), "s", b"33")
    (one,) = await store.find("a", ["n1"])
    assert (one.anchor.key, one.anchor.before, one.messages) == ("x", ("before",), b"11")
    assert "n1" in one.anchor.names
    assert sorted(await held(store, "a", "x", "n1", "n2")) == [("x", b"11"), ("y", b"22")]
    assert await held(store, "a", "before", "s", "") == []
    clock.now += MAX_AGE_SECONDS + 1
    await keep(store, "a", "new", b"11")
    assert await held(store, "a", "x", "n1", "n2") == []
    await store.save("a", Anchor("x", names=("n1",)), "s", b"44")
    assert await held(store, "a", "n1") == [("x", b"44")]
    await store.close()
