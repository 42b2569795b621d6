"""A turn's pages of the journal, where some of them could not be written."""

from __future__ import annotations

import pytest

from claw_mediate import result
from claw_mediate.io.journal import SqliteJournal
from claw_mediate.io.journaling import Asked
from claw_mediate.io.store import StoreError
from claw_mediate.io.tape import Tape
from claw_mediate.model import Answer
from claw_state.owner import Owner
from tests.mediate.made import called, granted

READ = called(granted("desk.get", annotations={"readOnly": True}))
WRITE = called(granted("desk.buy", method="POST"))


class Forgetful(SqliteJournal):
    """Its disk is full for as long as the model's replies are written."""

    async def replied(self, turn_id: str, round_number: int, body: bytes) -> None:
        raise StoreError(f"the disk is full: {turn_id} {round_number} {len(body)}")


@pytest.mark.requirement("journal:unwritable")
async def test_behind_a_reply_that_could_not_be_written_no_write_is_made_and_reads_are() -> None:
    told: list[str] = []
    journal = Forgetful("", Owner.this())
    await journal.begin("turn_1", "analyst", Asked("request", "", "Buy", ""))
    tape = Tape(journal, "turn_1", told.append, "first")
    made: list[str] = []

    async def run() -> Answer:
        made.append("ran")
        return result.from_http(READ, 200, b"{}", 2, 100)

    await tape.replied(1, b"{}")
    assert (await tape.call(1, 0, READ, run)).ok
    assert (await tape.call(1, 1, WRITE, run)).code == result.REQUEST_FAILED
    assert made == ["ran"]
    assert len(told) == 1
    await journal.close()
