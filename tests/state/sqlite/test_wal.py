"""An intent is on the disk before its call leaves, and nobody else waits for that
(docs/spec/mediation.md section 5).
"""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from claw_state.journal import RequestFingerprint
from claw_state.lease import LeaseOwner
from claw_state.sqlite import wal
from claw_state.sqlite.connection import Database
from claw_state.sqlite.journal import SqliteJournal
from claw_state.url import StoreError
from tests.state.test_journal import INTENT
from tests.waiting import eventually_async

pytestmark = pytest.mark.requirement("journal:flush")


class SlowDisk:
    """A disk whose flushes end when the test lets them; it notes the log's content
    at each flush, and can fail.
    """

    def __init__(self, log: Path) -> None:
        self._log = log
        self.found: list[bytes] = []
        self.free = threading.Event()
        self.broken = False

    def __call__(self, descriptor: int) -> None:
        assert os.path.samestat(os.fstat(descriptor), self._log.stat())
        self.found.append(self._log.read_bytes())
        assert self.free.wait(60)
        if self.broken:
            raise OSError(5, "Input/output error")
        os.fsync(descriptor)


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlowDisk:
    made = SlowDisk(tmp_path / "s.db-wal")
    monkeypatch.setattr(wal, "_sync", made)
    return made


async def running(tmp_path: Path, turns: int) -> SqliteJournal:
    journal = SqliteJournal(Database(str(tmp_path / "s.db")), LeaseOwner.current())
    for number in range(turns):
        assert await journal.begin(
            f"intent-of-turn-{number}", "a", RequestFingerprint(f"{number}", "", "", "")
        )
        await journal.record_response(f"intent-of-turn-{number}", 1, b"reply")
    return journal


@pytest.mark.parametrize(
    "factory", [None, asyncio.eager_task_factory], ids=["lazy tasks", "eager tasks as in mitmproxy"]
)
async def test_intents_that_wait_at_one_moment_share_a_flush_and_the_loop_goes_on(
    tmp_path: Path, slow: SlowDisk, factory: Any
) -> None:
    asyncio.get_running_loop().set_task_factory(factory)
    journal = await running(tmp_path, 7)
    first = asyncio.ensure_future(journal.record_intent("intent-of-turn-0", 1, 0, INTENT))
    await eventually_async(lambda: len(slow.found) == 1, "the flush has begun")
    others = [
        asyncio.ensure_future(journal.record_intent(f"intent-of-turn-{number}", 1, 0, INTENT))
        for number in range(1, 7)
    ]
    await asyncio.sleep(0)  # let them begin
    await journal.record_response("intent-of-turn-0", 2, b"meanwhile")
    assert await journal.call_record("intent-of-turn-6", 1, 0) == INTENT
    assert not any(waiting.done() for waiting in (first, *others))
    slow.free.set()
    await asyncio.gather(first, *others)
    assert len(slow.found) == 2, (
        "those that came while a flush was under way waited for the next one, all for the same"
    )
    assert b"intent-of-turn-6" in slow.found[1]
    await journal.record_intent("intent-of-turn-0", 3, 0, INTENT)
    assert len(slow.found) == 3, "every later one is flushed, too"
    await journal.close()


async def test_an_intent_that_may_not_be_on_the_disk_is_none(
    tmp_path: Path, slow: SlowDisk
) -> None:
    journal = await running(tmp_path, 2)
    slow.broken = True
    slow.free.set()
    told = await asyncio.gather(
        *(journal.record_intent(f"intent-of-turn-{n}", 1, 0, INTENT) for n in (0, 1)),
        return_exceptions=True,
    )
    assert [isinstance(one, StoreError) for one in told] == [True, True]
    slow.broken = False
    await journal.record_intent("intent-of-turn-0", 1, 1, INTENT)
    await journal.close()


async def test_a_flush_that_nobody_waits_for_any_more_ends_before_the_file_is_closed(
    tmp_path: Path, slow: SlowDisk
) -> None:
    journal = await running(tmp_path, 1)
    gone = asyncio.ensure_future(journal.record_intent("intent-of-turn-0", 1, 0, INTENT))
    await eventually_async(lambda: len(slow.found) == 1, "the flush has begun")
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    slow.free.set()
    await journal.close()
    after = SqliteJournal(Database(str(tmp_path / "s.db")), LeaseOwner.current())
    assert await after.call_record("intent-of-turn-0", 1, 0) == INTENT
    await after.close()


@pytest.mark.requirement("journal:log-begins-anew")
async def test_a_long_log_begins_anew_during_turns_and_writers_wait_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wal, "_LONG_LOG_PAGES", 300)
    monkeypatch.setattr(wal, "_CHECKPOINT_PAGES", 100)
    monkeypatch.setattr(wal, "_RESTART_SECONDS", 60)
    log, waited = tmp_path / "s.db-wal", 0
    journal = await running(tmp_path, 1)
    first = begins(log)
    for number in range(20_000):
        writing = asyncio.ensure_future(
            journal.record_response("intent-of-turn-0", number, b"x" * 3000)
        )
        await asyncio.sleep(0)
        waited += not writing.done()
        await writing
        if waited and begins(log) != first:
            break
    assert begins(log) != first
    assert waited, "for the last piece, and the loop did not wait with it"
    assert log.stat().st_size < 16_000 * 4096, (
        "before SQLite would have carried it over, and stopped the loop"
    )
    await journal.close()


def begins(log: Path) -> bytes:
    """Return the salts of the log, which change each time that it begins anew."""
    with log.open("rb") as found:
        return found.read(24)[16:]
