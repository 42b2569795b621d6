"""The continuity store: bounded, durable, and each agent's own; in a file as on a server."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

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
from claw_state.sqlite.connection import Database
from claw_state.sqlite.continuity import SqliteContinuityStore
from claw_state.url import StoreError
from claw_state.valkey.client import ValkeyClient
from claw_state.valkey.continuity import ValkeyContinuityStore
from tests.state.conftest import Clock
from tests.state.server import SharedState

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
async def test_an_answer_behind_which_nothing_is_hidden_is_kept_to_be_told_from_an_equal_one(
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


@pytest.mark.requirement("store:marks")
async def test_answers_without_hidden_messages_take_no_room_from_those_with_any_and_are_bounded_too(
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


@pytest.mark.requirement("store:bounded")
async def test_what_an_agent_left_that_comes_no_more_is_gone_after_seven_days(
    tmp_path: Path, clock: Clock
) -> None:
    file = str(tmp_path / "claw.db")
    store = SqliteContinuityStore(Database(file), clock)
    for number in range(300):
        await keep(store, "gone", f"k{number}", b"11")
    clock.now += MAX_AGE_SECONDS + 1
    assert await held(store, "gone", "k0") == [], "not even for the agent itself"
    for number in range(2):
        await keep(store, "other", f"k{number}", b"22")
    with closing(sqlite3.connect(file)) as database:
        assert database.execute("SELECT DISTINCT agent FROM kept").fetchall() == [("other",)]
    await store.close()


@pytest.mark.requirement("store:durable")
async def test_a_file_survives_a_restart_and_is_private(tmp_path: Path) -> None:
    file = tmp_path / "state" / "claw.db"
    first = SqliteContinuityStore(Database(str(file)))
    await keep(first, "a", "x", b"\x00\xff")
    second = SqliteContinuityStore(Database(str(file)))  # the first was not closed, as in a crash
    assert await held(second, "a", "x") == [("x", b"\x00\xff")]
    assert oct(file.stat().st_mode)[-3:] == "600"
    await first.close()
    await second.close()


async def test_memory_is_lost_with_the_process() -> None:
    store = SqliteContinuityStore(Database(""))
    await keep(store, "a", "x", b"11")
    await store.close()
    store = SqliteContinuityStore(Database(""))
    assert await held(store, "a", "x") == []
    await store.close()


async def test_a_store_that_can_t_be_used_says_so(tmp_path: Path) -> None:
    store = SqliteContinuityStore(Database(str(tmp_path / "s.db")))
    assert await store.is_writable()
    await store.close()
    assert not await store.is_writable()
    with pytest.raises(StoreError):
        await keep(store, "a", "x", b"11")
    with pytest.raises(StoreError):
        await held(store, "a", "x")


@pytest.mark.parametrize("content", [b"not a database, and long enough to be seen as none" * 50])
def test_a_file_that_is_no_database_is_an_error_at_the_start(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "s.db").write_bytes(content)
    with pytest.raises(sqlite3.DatabaseError):
        SqliteContinuityStore(Database(str(tmp_path / "s.db")))


def test_a_path_that_cannot_be_is_an_error_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        SqliteContinuityStore(Database(str(tmp_path / "file" / "s.db")))


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


@pytest.mark.requirement("store:expires")
async def test_on_a_server_whatever_is_kept_expires_and_what_is_used_later_than_all_else(
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


@pytest.mark.requirement("store:names")
async def test_an_entry_is_found_by_each_of_its_names_once_and_its_names_go_with_it(
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


@pytest.mark.requirement("store:names")
async def test_names_are_bounded_and_leave_no_row_behind(tmp_path: Path, clock: Clock) -> None:
    file = str(tmp_path / "claw.db")
    store = SqliteContinuityStore(Database(file), clock)
    await store.save(
        "a", Anchor("x", names=tuple(f"n{number}" for number in range(1000))), "", b"11"
    )
    with closing(sqlite3.connect(file)) as database:
        assert database.execute("SELECT COUNT(*) FROM kept_names").fetchone() == (MAX_NAMES,)
        clock.now += MAX_AGE_SECONDS + 1
        await keep(store, "a", "new", b"11")
        assert database.execute("SELECT COUNT(*) FROM kept_names").fetchone() == (0,)
    await store.close()
