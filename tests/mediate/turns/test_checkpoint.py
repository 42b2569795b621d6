"""A turn's checkpoint when parts of the journal could not be written."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest

from claw_contract.history import McpRecord
from claw_mediate.core import tool_result
from claw_mediate.core.types import Image, ToolCall, ToolResult
from claw_mediate.turns.checkpoint import TurnCheckpoint
from claw_state.journal import AttemptKind, RequestFingerprint, StoredResponse
from claw_state.lease import LeaseOwner
from claw_state.sqlite.connection import Database
from claw_state.sqlite.journal import SqliteJournal
from claw_state.url import StoreError
from tests.mediate.made import called, granted

READ = called(granted("journaled.get", annotations={"readOnly": True}))
WRITE = called(granted("journaled.buy", method="POST"))
ASKED = RequestFingerprint("request", "", "Buy", "")


class FullDiskJournal(SqliteJournal):
    """A journal whose disk is full until the test says otherwise."""

    full = True

    async def record_response(self, turn_id: str, round_number: int, body: bytes) -> None:
        self._needs_room()
        await super().record_response(turn_id, round_number, body)

    async def record_intent(
        self, turn_id: str, round_number: int, place: int, record: bytes
    ) -> None:
        self._needs_room()
        await super().record_intent(turn_id, round_number, place, record)

    async def record_result(
        self, turn_id: str, round_number: int, place: int, record: bytes
    ) -> None:
        self._needs_room()
        await super().record_result(turn_id, round_number, place, record)

    def _needs_room(self) -> None:
        if self.full:
            raise StoreError("the disk is full")


class JournaledTurn:
    """A turn, its journal, and the calls that ran."""

    def __init__(self, journal: FullDiskJournal) -> None:
        self.journal = journal
        self.told: list[str] = []
        self.made: list[ToolCall] = []

    def checkpoint(self, attempt: AttemptKind = "first") -> TurnCheckpoint:
        return TurnCheckpoint(self.journal, "turn_1", self.told.append, attempt)

    async def call(
        self, checkpoint: TurnCheckpoint, round_number: int, place: int, call: ToolCall
    ) -> ToolResult:
        async def run() -> ToolResult:
            self.made.append(call)
            return tool_result.read_http_response(call, 200, b"{}", 2, 100)

        return await checkpoint.call(round_number, place, call, run)


@pytest.fixture
async def journaled() -> AsyncIterator[JournaledTurn]:
    journal = FullDiskJournal(Database(""), LeaseOwner.current())
    await journal.begin("turn_1", "analyst", ASKED)
    yield JournaledTurn(journal)
    await journal.close()


@pytest.mark.requirement("journal:unwritable")
async def test_behind_a_reply_that_could_not_be_written_no_write_is_made_and_reads_are(
    journaled: JournaledTurn,
) -> None:
    checkpoint = journaled.checkpoint()
    await checkpoint.record_response(1, b"{}")
    assert (await journaled.call(checkpoint, 1, 0, READ)).ok
    assert (await journaled.call(checkpoint, 1, 1, WRITE)).code == tool_result.REQUEST_FAILED
    assert journaled.made == [READ]
    assert len(journaled.told) == 1


@pytest.mark.requirement("journal:caught-up")
async def test_a_journal_that_is_back_gets_what_it_missed_and_writes_are_allowed(
    journaled: JournaledTurn,
) -> None:
    checkpoint = journaled.checkpoint()
    await checkpoint.record_response(1, b"first")
    assert not (await journaled.call(checkpoint, 1, 0, WRITE)).ok
    await checkpoint.record_response(2, b"second")
    journaled.journal.full = False
    assert (await journaled.call(checkpoint, 2, 0, WRITE)).ok
    assert [await journaled.journal.response("turn_1", number) for number in (1, 2)] == [
        b"first",
        b"second",
    ]
    assert journaled.made == [WRITE]


@pytest.mark.requirement("journal:not-behind-the-models-back")
async def test_a_refused_write_is_not_made_later_if_the_model_heard_of_the_refusal(
    journaled: JournaledTurn,
) -> None:
    checkpoint = journaled.checkpoint()
    journaled.journal.full = False
    await checkpoint.record_response(1, b"{}")
    journaled.journal.full = True
    refused = await journaled.call(checkpoint, 1, 0, WRITE)
    journaled.journal.full = False
    await checkpoint.record_response(2, b"the model heard of it")
    again = journaled.checkpoint("resumed")
    assert (await journaled.call(again, 1, 0, WRITE)).content == refused.content
    assert journaled.made == []


@pytest.mark.requirement("journal:answer-only")
async def test_the_response_that_is_the_answer_is_recorded_only_if_the_turn_fails(
    journaled: JournaledTurn,
) -> None:
    answered = journaled.checkpoint()
    await answered.record_response(1, b"the answer", is_answer=True)
    await answered.end(StoredResponse(200, "application/json", b"the answer"))
    assert journaled.told == [], "a full disk"
    await journaled.journal.begin("turn_2", "analyst", RequestFingerprint("other", "", "", ""))
    journaled.journal.full = False
    failed = TurnCheckpoint(journaled.journal, "turn_2", journaled.told.append, "first")
    await failed.record_response(1, b"the answer", is_answer=True)
    assert await journaled.journal.response("turn_2", 1) is None
    await failed.end(None)
    assert await journaled.journal.response("turn_2", 1) == b"the answer"


@pytest.mark.requirement("mcp:images")
async def test_the_images_of_a_result_are_known_after_a_restart(journaled: JournaledTurn) -> None:
    journaled.journal.full = False
    shown = ToolResult(WRITE, b"{}", ok=True, ran=True, images=(Image("image/png", "eHg="),))

    async def run() -> ToolResult:
        return shown

    await journaled.checkpoint().call(1, 0, WRITE, run)
    again = await journaled.call(journaled.checkpoint("resumed"), 1, 0, WRITE)
    assert (again.images, again.replayed, journaled.made) == (shown.images, True, [])


@pytest.mark.requirement("mcp:records-resumed")
@pytest.mark.parametrize("session", [None, "session-…"])
async def test_the_session_of_a_call_over_mcp_is_known_after_a_restart(
    journaled: JournaledTurn, session: str | None
) -> None:
    journaled.journal.full = False
    record = McpRecord(server="scripted 1.2", session=session, protocol="2025-11-25")

    async def run() -> ToolResult:
        return ToolResult(WRITE, b"{}", ok=True, ran=True, mcp=record)

    await journaled.checkpoint().call(1, 0, WRITE, run)
    again = await journaled.call(journaled.checkpoint("resumed"), 1, 0, WRITE)
    assert (again.mcp, again.replayed) == (record, True)


@pytest.mark.requirement("mcp:records-resumed")
@pytest.mark.parametrize("members", [6, 7])
async def test_a_record_of_an_earlier_version_is_still_read(
    journaled: JournaledTurn, members: int
) -> None:
    journaled.journal.full = False
    record = msgspec.msgpack.encode(
        [b'{"ok":true}', True, None, 200, 5, True, [["image/png", "eHg="]]][:members]
    )
    await journaled.journal.record_intent("turn_1", 1, 0, record)
    again = await journaled.call(journaled.checkpoint("resumed"), 1, 0, WRITE)
    assert (again.content, again.latency_ms, again.ran, again.mcp, journaled.made) == (
        b'{"ok":true}',
        5,
        True,
        None,
        [],
    )
    assert again.images == (Image("image/png", "eHg="),)[: members - 6]
