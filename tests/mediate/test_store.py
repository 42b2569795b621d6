"""The continuity store: bounded, durable, and each agent's own."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from claw_mediate.continuity import bounded
from claw_mediate.io.store import MOST_AGE_SECONDS, MOST_BYTES, MOST_TURNS, Store


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.requirement("store:own")
def test_what_is_kept_is_recalled_by_its_agent_and_anchor_only() -> None:
    store = Store("")
    store.keep("a", "x", b"1")
    store.keep("b", "x", b"2")
    assert store.recall("a", ["x", "x", "y"]) == {"x": b"1"}
    assert store.recall("b", ["x"]) == {"x": b"2"}
    assert store.recall("c", ["x"]) == store.recall("a", []) == {}
    store.keep("a", "x", b"new")
    assert store.recall("a", ["x"]) == {"x": b"new"}
    store.close()


@pytest.mark.requirement("store:bounded")
def test_the_least_recently_used_turns_go_first_and_only_those_of_that_agent() -> None:
    clock = Clock()
    store = Store("", clock)
    store.keep("other", "x", b"1")
    for number in range(MOST_TURNS):
        clock.now += 1
        store.keep("a", f"t{number}", b"1")
    clock.now += 1
    store.recall("a", ["t0"])
    clock.now += 1
    store.keep("a", "new", b"1")
    kept = store.recall("a", [f"t{number}" for number in range(MOST_TURNS)])
    assert len(kept) == MOST_TURNS - 1
    assert "t0" in kept
    assert "t1" not in kept
    assert store.recall("other", ["x"]) == {"x": b"1"}
    store.close()


@pytest.mark.requirement("store:bounded")
def test_what_was_not_used_for_a_week_is_gone() -> None:
    clock = Clock()
    store = Store("", clock)
    store.keep("a", "old", b"1")
    store.keep("a", "used", b"1")
    clock.now += MOST_AGE_SECONDS
    store.recall("a", ["used"])
    clock.now += 1
    store.keep("a", "new", b"1")
    assert store.recall("a", ["old", "used", "new"]).keys() == {"used", "new"}
    store.close()


@pytest.mark.requirement("store:durable")
def test_a_file_survives_a_restart_and_is_private(tmp_path: Path) -> None:
    file = tmp_path / "state" / "claw.db"
    first = Store(str(file))
    first.keep("a", "x", b"\x00\xff")
    second = Store(str(file))  # the first was not closed: a crash
    assert second.recall("a", ["x"]) == {"x": b"\x00\xff"}
    assert oct(file.stat().st_mode)[-3:] == "600"
    first.close()
    second.close()


def test_memory_is_lost_with_the_process() -> None:
    store = Store("")
    store.keep("a", "x", b"1")
    store.close()
    store = Store("")
    assert store.recall("a", ["x"]) == {}
    store.close()


def test_readiness_tells_whether_it_can_be_written(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "s.db"))
    assert store.writable()
    store.close()
    assert not store.writable()


@pytest.mark.parametrize("content", [b"not a database, and long enough to be seen as none" * 50])
def test_a_file_that_is_no_database_is_an_error_at_the_start(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "s.db").write_bytes(content)
    with pytest.raises(sqlite3.DatabaseError):
        Store(str(tmp_path / "s.db"))


def test_a_path_that_cannot_be_is_an_error_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        Store(str(tmp_path / "file" / "s.db"))


@pytest.mark.requirement("continuity:bounds")
def test_an_agent_keeps_so_many_bytes_and_the_latest_ones() -> None:
    clock = Clock()
    store = Store("", clock)
    third = b"x" * (MOST_BYTES // 3)
    for number in range(5):
        clock.now += 1
        store.keep("analyst", f"calls:{number}", third)
        store.keep("executor", f"calls:{number}", b"small")
    found = store.recall("analyst", [f"calls:{number}" for number in range(5)])
    assert sorted(found) == ["calls:2", "calls:3", "calls:4"]
    assert len(store.recall("executor", [f"calls:{number}" for number in range(5)])) == 5
    store.close()


@pytest.mark.requirement("continuity:bounds")
def test_what_is_reinjected_in_one_request_is_bounded_and_the_latest_is_there() -> None:
    hidden = {1: b"x" * 100, 3: b"x" * 100, 5: b"x" * 50}
    assert sorted(bounded(hidden, 160)) == [3, 5]
    assert bounded(hidden, 40) == {}
