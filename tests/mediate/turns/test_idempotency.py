"""The journal's judgement of a request, over time and among processes
(docs/spec/mediation.md section 5).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from claw_mediate.turns.idempotency import CompletedTurn, Resume, RetryLookup
from claw_state.journal import RESUME_SECONDS, RequestFingerprint, StoredResponse
from claw_state.lease import LEASE_SECONDS, LeaseOwner
from claw_state.sqlite.connection import Database
from claw_state.sqlite.journal import SqliteJournal
from tests.waiting import DEADLINE

ASKED = RequestFingerprint("request", "earlier", "Buy", "")
BUY = {(ASKED.message_digest, "failed")}
ANSWER = StoredResponse(200, "application/json", b"{}")


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def journal(tmp_path: Path, clock: Clock) -> AsyncIterator[SqliteJournal]:
    opened = SqliteJournal(Database(str(tmp_path / "s.db")), LeaseOwner.current(), clock)
    yield opened
    await opened.close()


@pytest.fixture
async def other(tmp_path: Path, clock: Clock) -> AsyncIterator[SqliteJournal]:
    """Yield the journal of another mediator in this process: one with new settings starts while
    turns of the old one go on.
    """
    opened = SqliteJournal(Database(str(tmp_path / "s.db")), LeaseOwner.current(), clock)
    yield opened
    await opened.close()


async def found(
    journal: SqliteJournal, asked: RequestFingerprint = ASKED, turn_id: str = "t2"
) -> CompletedTurn | Resume | None:
    async with asyncio.timeout(DEADLINE):
        return await RetryLookup(journal).find("analyst", turn_id, asked, says_retry=False)


@pytest.mark.requirement("journal:expiry")
@pytest.mark.parametrize("given", [ANSWER, None])
async def test_after_ten_minutes_the_same_request_is_a_new_turn(
    journal: SqliteJournal, clock: Clock, given: StoredResponse | None
) -> None:
    await journal.begin("t1", "analyst", ASKED)
    await journal.end("t1", given)
    clock.now += RESUME_SECONDS - 1
    assert isinstance(await found(journal), CompletedTurn if given else Resume)
    await journal.end("t1", given)
    clock.now += RESUME_SECONDS + 1
    assert await found(journal) is None


@pytest.mark.requirement("journal:expiry")
async def test_a_turn_that_nobody_ended_and_that_is_past_resuming_is_in_nobodys_way(
    journal: SqliteJournal, clock: Clock
) -> None:
    clock.now += RESUME_SECONDS
    await journal.begin(
        "t0", "clerk", ASKED
    )  # old records are deleted once a minute: this has just done it
    clock.now -= RESUME_SECONDS
    await journal.begin("t1", "analyst", ASKED)
    clock.now += RESUME_SECONDS + 1
    assert await found(journal) is None


@pytest.mark.requirement("journal:join")
async def test_a_turn_of_another_mediator_of_this_process_is_waited_for(
    journal: SqliteJournal, other: SqliteJournal
) -> None:
    await journal.begin("t1", "analyst", ASKED)
    waiting = asyncio.ensure_future(found(other))
    await asyncio.wait([waiting], timeout=0.3)
    assert not waiting.done()
    await journal.end("t1", ANSWER)
    assert await waiting == CompletedTurn("t1", ANSWER, awaited=True)


@pytest.mark.requirement("journal:altered")
async def test_altered_words_go_on_with_a_dead_processs_turn_and_not_a_live_ones(
    journal: SqliteJournal, other: SqliteJournal, clock: Clock
) -> None:
    altered = RequestFingerprint("another request", "earlier", "Buy. Go on.", "")
    await journal.begin("t1", "analyst", ASKED)
    assert await found(other, altered) is None
    await other.end("t2", ANSWER)
    await other.mark_delivered("t2")
    clock.now += 60
    later = RequestFingerprint("a third request", "earlier", "Buy. Go on, please.", "")
    assert isinstance(await found(other, later, "t3"), Resume)


@pytest.mark.requirement("journal:altered")
async def test_words_that_begin_like_those_of_a_turn_that_runs_here_are_another_turn(
    journal: SqliteJournal,
) -> None:
    await journal.begin("t1", "analyst", ASKED)
    assert (
        await found(journal, RequestFingerprint("another request", "earlier", "Buy me a car", ""))
        is None
    )


@pytest.mark.requirement("journal:altered")
@pytest.mark.parametrize(
    ("more", "goes_on", "alone"),
    [
        ("", True, True),
        ("\n", True, True),
        ("\n\n[Queued user message] Continue the current task", True, True),
        (" [Queued user message] Continue the current task", True, True),
        ("[Queued user message]", True, True),
        ("\r\nGo on.", True, True),
        (" me a car", True, False),
        (", please", True, False),
        ("ers", False, False),
        ("1", False, False),
        ("é", False, False),
    ],
)
def test_appended_text_is_apart_from_the_last_word_and_if_need_be_from_the_last_line(
    more: str, *, goes_on: bool, alone: bool
) -> None:
    asked = RequestFingerprint("r", "e", f"Buy{more}", "")
    assert bool(asked.openclaw_retry_of(BUY)) is goes_on
    assert bool(replace(asked, alone=True).openclaw_retry_of(BUY)) is alone


@pytest.mark.requirement("journal:altered")
@pytest.mark.parametrize("before", ["", " ", "Sell", "uy", "Buy\nmore"])
def test_words_that_do_not_begin_with_those_of_before_go_on_with_nothing(before: str) -> None:
    earlier = RequestFingerprint("r", "e", before, "")
    assert not RequestFingerprint("r", "e", "Buy", "").openclaw_retry_of(
        {(earlier.message_digest, "failed")}
    )


@pytest.mark.requirement("journal:altered")
@pytest.mark.parametrize("words", ["Buy", ":", "3:", "x:3", "-1:", "99:" + "0" * 64])
def test_what_is_no_mark_of_words_is_gone_on_with_by_nobody(words: str) -> None:
    """A file of an earlier claw may contain such a value."""
    assert not RequestFingerprint("r", "e", "Buy", "").openclaw_retry_of({(words, "failed")})


@pytest.mark.requirement("state:no-secrets")
def test_of_what_a_user_said_its_length_and_digest_are_kept() -> None:
    assert len(RequestFingerprint("r", "e", "Buy" * 1_000_000, "").message_digest) < 100


@pytest.mark.requirement("journal:altered-and-lost")
async def test_altered_words_wait_for_an_answer_on_its_way_and_get_it_once_it_is_lost(
    journal: SqliteJournal, other: SqliteJournal, clock: Clock
) -> None:
    await journal.begin("t1", "analyst", ASKED)
    await journal.end("t1", ANSWER)
    altered = RequestFingerprint("not streamed", "earlier", "Buy", "")
    waiting = asyncio.ensure_future(found(other, altered))
    await asyncio.wait([waiting], timeout=0.3)
    assert not waiting.done()
    clock.now += LEASE_SECONDS
    assert await waiting == CompletedTurn("t1", ANSWER, awaited=True)
    await other.mark_delivered("t1")
    assert await found(other, altered) is None


@pytest.mark.requirement("journal:altered-and-lost")
async def test_words_that_go_on_within_the_line_are_not_given_the_earlier_answer(
    journal: SqliteJournal, clock: Clock
) -> None:
    await journal.begin("t1", "analyst", ASKED)
    await journal.end("t1", ANSWER)
    clock.now += LEASE_SECONDS
    assert (
        await found(journal, RequestFingerprint("another request", "earlier", "Buy me a car", ""))
        is None
    )
    noted = RequestFingerprint(
        "a third request", "earlier", "Buy\n\n[Queued user message] Go on", ""
    )
    assert await found(journal, noted) == CompletedTurn("t1", ANSWER)


@pytest.mark.requirement("journal:one-runs")
async def test_a_turn_that_runs_is_the_latest_though_the_clock_was_set_back(
    journal: SqliteJournal, other: SqliteJournal, clock: Clock
) -> None:
    await journal.begin("t1", "analyst", ASKED)
    await journal.end("t1", ANSWER)
    await journal.mark_delivered("t1")
    clock.now -= 60
    await journal.begin("t2", "analyst", ASKED)
    await journal.close()
    assert await found(other, ASKED, "t3") == Resume("t2", has_steps=False)


@pytest.mark.requirement("journal:altered")
async def test_a_turn_whose_runner_leaves_while_it_is_resumed_is_found_by_other_words(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    await journal.begin("t1", "analyst", ASKED)
    await journal.end("t1", None)
    response, resumed = journal.response, asyncio.Event()

    async def slow(turn_id: str, round_number: int) -> bytes | None:
        """Read the response slowly, as from a server."""
        resumed.set()
        await asyncio.sleep(DEADLINE)
        return await response(turn_id, round_number)

    monkeypatch.setattr(journal, "response", slow)
    first = asyncio.ensure_future(found(journal))
    await resumed.wait()
    first.cancel()
    await asyncio.wait([first])
    monkeypatch.undo()
    assert await found(
        journal, RequestFingerprint("longer", "earlier", "Buy. Go on.", "")
    ) == Resume("t1", has_steps=False)


@pytest.mark.requirement("journal:resume")
async def test_of_two_that_find_a_failed_turn_one_goes_on_with_it(
    journal: SqliteJournal, other: SqliteJournal
) -> None:
    await journal.begin("t1", "analyst", ASKED)
    await journal.end("t1", None)
    past = await journal.find("analyst", ASKED)
    assert past is not None
    assert [await one.resume(past, ASKED) for one in (journal, other)] == [True, False]


@pytest.mark.requirement("store:own")
async def test_another_agents_turn_is_not_found(journal: SqliteJournal) -> None:
    await journal.begin("t1", "clerk", ASKED)
    await journal.end("t1", None)
    assert await found(journal) is None
