"""The turn journal in a file: the size of a step, and files of an earlier version."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from claw_state.journal import StoredResponse
from tests.state.sqlite.test_wal import running
from tests.state.test_journal import INTENT

pytestmark = pytest.mark.requirement("journal:flush")


@pytest.mark.requirement("journal:small-writes")
async def test_most_responses_of_a_kilobyte_are_two_pages_of_the_log(tmp_path: Path) -> None:
    journal = await running(tmp_path, 1)
    sizes = []
    for number in range(2, 10):
        before = (tmp_path / "s.db-wal").stat().st_size
        await journal.record_response("intent-of-turn-0", number, bytes(1200))
        sizes.append((tmp_path / "s.db-wal").stat().st_size - before)
    await journal.close()
    assert sorted(sizes)[len(sizes) // 2] <= 2 * 4200, "one of the table, and one of its index"


@pytest.mark.requirement("journal:small-writes")
async def test_a_file_of_an_earlier_version_keeps_its_table_of_steps(tmp_path: Path) -> None:
    columns = (
        "turn TEXT NOT NULL, round INTEGER NOT NULL, place INTEGER NOT NULL, record BLOB NOT NULL"
    )
    with closing(sqlite3.connect(tmp_path / "s.db")) as before:
        before.execute(
            f"CREATE TABLE steps ({columns}, PRIMARY KEY (turn, round, place)) WITHOUT ROWID"
        )
    journal = await running(tmp_path, 1)
    await journal.record_intent("intent-of-turn-0", 1, 0, INTENT)
    await journal.record_response("intent-of-turn-0", 2, b"next")
    await journal.record_result("intent-of-turn-0", 1, 0, b"result")
    assert await journal.response("intent-of-turn-0", 2) == b"next"
    assert await journal.call_record("intent-of-turn-0", 1, 0) == b"result"
    await journal.end("intent-of-turn-0", StoredResponse(200, "application/json", b"{}"))
    assert await journal.response("intent-of-turn-0", 2) is None
    await journal.close()
