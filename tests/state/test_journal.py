"""The turn journal, in a file as on a server: the record of a turn, found by its retries
(docs/spec/mediation.md section 5).
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from claw_state.journal import RESUME_SECONDS, Journal, RequestFingerprint, StoredResponse
from claw_state.lease import LEASE_SECONDS, LeaseOwner
from claw_state.url import StoreError
from tests.state.conftest import Clock

type Journals = Callable[[LeaseOwner], Journal]
HERE, ELSEWHERE = LeaseOwner("here", 1, "a"), LeaseOwner("elsewhere", 1, "b")
ASKED = RequestFingerprint("request", "earlier", "Buy", "")
GIVEN = StoredResponse(200, "application/json", b'{"answer": "\\u0000"}')
INTENT, RESULT = b"\x00 the call was sent", b"\xff its result"


@pytest.mark.requirement("journal:one-runs")
async def test_of_one_request_one_turn_runs_whoever_begins_it(journals: Journals) -> None:
    here, elsewhere = journals(HERE), journals(ELSEWHERE)
    assert await here.begin("t1", "a", ASKED)
    assert not await elsewhere.begin("t2", "a", ASKED)
    assert await elsewhere.begin("t3", "another", ASKED)
    assert await elsewhere.begin(
        "t4", "a", RequestFingerprint("other request", "earlier", "Buy", "")
    )
    past = await elsewhere.find("a", ASKED)
    assert past is not None
    assert (past.turn_id, past.state, past.is_alive) == ("t1", "running", True)
    assert [await journal.is_alive("t1") for journal in (here, elsewhere)] == [False, True]
    assert not await elsewhere.is_alive("nobody's")
    assert await elsewhere.find("nobody", ASKED) is None


@pytest.mark.requirement("journal:lease")
async def test_a_turn_whose_process_is_silent_goes_on_elsewhere_and_no_longer_here(
    journals: Journals, clock: Clock
) -> None:
    here, elsewhere = journals(HERE), journals(ELSEWHERE)
    await here.begin("t1", "a", ASKED)
    await here.record_response("t1", 1, b"reply")
    await here.record_intent("t1", 1, 0, INTENT)
    clock.now += LEASE_SECONDS - 1
    await here.renew_leases(["t1"])
    clock.now += LEASE_SECONDS - 1
    past = await elsewhere.find("a", ASKED)
    assert past is not None
    assert past.is_alive
    clock.now += 2
    past = await elsewhere.find("a", ASKED)
    assert past is not None
    assert not past.is_alive
    assert not await elsewhere.is_alive("t1")
    assert await elsewhere.resume(past, ASKED)
    assert not await elsewhere.resume(past, ASKED)
    for refused in (
        here.record_intent("t1", 2, 0, INTENT),
        here.record_response("t1", 2, b"late"),
        here.record_result("t1", 1, 0, RESULT),
    ):
        with pytest.raises(StoreError):
            await refused
    await here.end("t1", None)
    await here.renew_leases(["t1"])
    again = await elsewhere.find("a", ASKED)
    assert again is not None
    assert (again.state, again.owner) == ("running", ELSEWHERE.name)
    assert await elsewhere.response("t1", 1) == b"reply"
    assert await elsewhere.response("t1", 2) is None
    assert await elsewhere.call_record("t1", 1, 0) == INTENT


@pytest.mark.requirement("journal:resume")
async def test_what_a_turn_did_is_read_as_it_was_written(journals: Journals) -> None:
    here = journals(HERE)
    await here.begin("t1", "a", ASKED)
    assert await here.call_record("t1", 1, 0) is None
    await here.record_intent("t1", 1, 0, INTENT)
    assert await here.call_record("t1", 1, 0) == INTENT
    await here.record_result("t1", 1, 0, RESULT)
    await here.record_response("t1", 1, b"\x00\xff")
    other = journals(ELSEWHERE)
    assert await other.call_record("t1", 1, 0) == RESULT
    assert await other.call_record("t1", 1, 1) is None
    assert await other.response("t1", 1) == b"\x00\xff"


@pytest.mark.requirement("journal:not-entered")
async def test_a_turn_that_is_not_entered_may_not_begin_a_call(journals: Journals) -> None:
    here = journals(HERE)
    with pytest.raises(StoreError):
        await here.record_intent("unknown", 1, 0, INTENT)


@pytest.mark.requirement("journal:retry-of-a-done-turn")
async def test_an_answer_is_there_until_it_is_handed_over_and_for_those_who_retry(
    journals: Journals,
) -> None:
    here, elsewhere = journals(HERE), journals(ELSEWHERE)
    keyed = RequestFingerprint("request", "earlier", "Buy", "key-1")
    await here.begin("t1", "a", keyed)
    await here.end("t1", GIVEN)
    past = await elsewhere.find("a", ASKED)
    assert past is not None
    assert (past.state, past.response, past.idempotency_key, past.is_alive) == (
        "answered",
        GIVEN,
        "key-1",
        False,
    )
    await elsewhere.mark_delivered("t1")
    past = await here.find("a", ASKED)
    assert past is not None
    assert (past.state, past.response) == ("done", GIVEN)
    assert await here.begin("t2", "a", ASKED)


@pytest.mark.requirement("journal:answer-only")
async def test_what_led_to_an_answer_is_kept_no_longer_than_the_answer_is_missing(
    journals: Journals,
) -> None:
    here = journals(HERE)
    for turn, given in (("failed", None), ("answered", GIVEN)):
        await here.begin(turn, "a", RequestFingerprint(turn, "", "", ""))
        await here.record_response(turn, 1, b"reply")
        await here.record_intent(turn, 1, 0, INTENT)
        await here.record_result(turn, 1, 0, RESULT)
        await here.end(turn, given)
    assert (await here.response("failed", 1), await here.call_record("failed", 1, 0)) == (
        b"reply",
        RESULT,
    )
    assert (await here.response("answered", 1), await here.call_record("answered", 1, 0)) == (
        None,
        None,
    )
    await here.end("answered", None)
    past = await here.find("a", RequestFingerprint("answered", "", "", ""))
    assert past is not None
    assert (past.state, past.response) == ("answered", GIVEN), (
        "what could not go on is never said to have failed"
    )


@pytest.mark.requirement("journal:resume")
async def test_a_failed_turn_is_found_by_a_request_that_continues_its_last_words(
    journals: Journals,
) -> None:
    here, elsewhere = journals(HERE), journals(ELSEWHERE)
    await here.begin("t1", "a", ASKED)
    longer = RequestFingerprint("longer", "earlier", "Buy, I said", "")
    assert await elsewhere.find("a", longer) is None
    await here.end("t1", None)
    for other in (
        RequestFingerprint("x", "else", "Buy, I said", ""),
        RequestFingerprint("x", "earlier", "But", ""),
        RequestFingerprint("x", "earlier", "", ""),
    ):
        assert await elsewhere.find("a", other) is None
    past = await elsewhere.find("a", longer)
    assert past is not None
    assert (past.turn_id, past.state) == ("t1", "failed")
    assert await elsewhere.resume(past, longer)
    assert not await here.resume(past, longer)
    assert await here.find("a", ASKED) is None
    again = await here.find("a", longer)
    assert again is not None
    assert again.turn_id == "t1"


@pytest.mark.requirement("journal:altered")
async def test_the_latest_failed_turn_that_the_words_continue_is_found_and_none_that_runs_here(
    journals: Journals, clock: Clock
) -> None:
    here = journals(HERE)
    for number, said in enumerate(["Buy", "Buy me", "Buy m", "Buy me a"]):
        clock.now += 1
        await here.begin(f"t{number}", "a", RequestFingerprint(f"r{number}", "earlier", said, ""))
        if said != "Buy me a":
            await here.end(f"t{number}", None)
    past = await here.find("a", RequestFingerprint("longer", "earlier", "Buy me a car", ""))
    assert past is not None
    assert past.turn_id == "t1"
    assert (
        await here.find(
            "a", RequestFingerprint("longer", "earlier", "Buy me a car", "", alone=True)
        )
        is None
    )


@pytest.mark.requirement("journal:altered")
async def test_a_failed_turn_is_found_among_many_done_ones_with_the_same_words(
    journals: Journals,
) -> None:
    here = journals(HERE)
    await here.begin("t0", "a", RequestFingerprint("r0", "earlier", "Buy", ""))
    await here.end("t0", None)
    for number in range(1, 300):
        await here.begin(f"t{number}", "a", RequestFingerprint(f"r{number}", "earlier", "Look", ""))
        await here.end(f"t{number}", GIVEN)
        await here.mark_delivered(f"t{number}")
    past = await here.find("a", RequestFingerprint("longer", "earlier", "Buy, I said", ""))
    assert past is not None
    assert past.turn_id == "t0"


@pytest.mark.requirement("journal:altered-and-lost")
async def test_a_lost_answer_is_found_by_altered_words_once_nobody_delivers_it(
    journals: Journals, clock: Clock
) -> None:
    here, elsewhere = journals(HERE), journals(ELSEWHERE)
    await here.begin("t1", "a", ASKED)
    await here.end("t1", GIVEN)
    noted = RequestFingerprint("noted", "earlier", "Buy\n\n[Queued user message] Go on", "")
    for journal in (here, elsewhere):
        for seconds, alive in ((0.0, True), (LEASE_SECONDS, False)):
            clock.now += seconds
            past = await journal.find("a", noted)
            assert past is not None
            assert (past.turn_id, past.state, past.response, past.is_alive) == (
                "t1",
                "answered",
                GIVEN,
                alive,
            )
            clock.now -= seconds
        assert (
            await journal.find("a", RequestFingerprint("other", "earlier", "Buy me a car", ""))
            is None
        )
    await here.mark_delivered("t1")
    assert await here.find("a", noted) is None


@pytest.mark.requirement("journal:one-runs")
async def test_a_turn_is_not_resumed_where_another_of_that_request_runs(journals: Journals) -> None:
    here, elsewhere = journals(HERE), journals(ELSEWHERE)
    await here.begin("t1", "a", ASKED)
    await here.end("t1", None)
    longer = RequestFingerprint("longer", "earlier", "Buy, I said", "")
    past = await here.find("a", longer)
    assert past is not None
    assert await elsewhere.begin("t2", "a", longer)
    assert not await here.resume(past, longer)


@pytest.mark.requirement("journal:ten-minutes")
async def test_after_ten_minutes_nothing_is_resumed_and_the_request_may_run_again(
    journals: Journals, clock: Clock
) -> None:
    here, elsewhere = journals(HERE), journals(ELSEWHERE)
    await here.begin("t1", "a", ASKED)
    clock.now += RESUME_SECONDS - 30
    other = RequestFingerprint("other", "", "", "")
    assert await here.begin("t2", "a", other)
    clock.now += 30
    assert await elsewhere.find("a", ASKED) is None
    assert await here.begin("t3", "a", ASKED)
    assert await elsewhere.find("a", other) is not None


@pytest.mark.requirement("journal:kill")
async def test_a_journal_is_read_by_the_process_that_comes_after(
    journals: Journals, clock: Clock
) -> None:
    first = journals(HERE)
    await first.begin("t1", "a", ASKED)
    await first.record_response("t1", 1, b"reply")
    clock.now += LEASE_SECONDS
    after = journals(LeaseOwner("here", 1, "c"))
    past = await after.find("a", ASKED)
    assert past is not None
    assert (past.state, past.is_alive) == ("running", False)
    assert await after.resume(past, ASKED)
    assert await after.response("t1", 1) == b"reply"


@pytest.mark.requirement("journal:owner")
async def test_turns_of_a_process_with_the_same_name_and_number_go_on(
    journals: Journals,
) -> None:
    """Two containers may have the same host name, and each has a process 1."""
    here, there = journals(LeaseOwner("same", 1, "a")), journals(LeaseOwner("same", 1, "b"))
    await here.begin("t1", "a", ASKED)
    past = await there.find("a", ASKED)
    assert past is not None
    assert (past.state, past.is_alive) == ("running", True)
    await there.renew_leases(["t1"])
    with pytest.raises(StoreError):
        await there.record_intent("t1", 1, 0, INTENT)


@pytest.mark.requirement("journal:altered-while-a-write-is-on-its-way")
async def test_a_turn_that_its_runner_left_is_waited_for_by_altered_words_too_everywhere(
    journals: Journals, clock: Clock
) -> None:
    here, elsewhere = journals(HERE), journals(ELSEWHERE)
    longer = RequestFingerprint("longer", "earlier", "Buy, I said", "")
    await here.begin("t1", "a", ASKED)
    await elsewhere.abandon("t1")  # not its own turn
    assert await here.find("a", longer) is None
    await here.abandon("t1")
    for journal in (here, elsewhere):
        for asked in (ASKED, longer):
            past = await journal.find("a", asked)
            assert past is not None
            assert (past.turn_id, past.state, past.is_alive) == ("t1", "abandoned", True)
    clock.now += LEASE_SECONDS - 1
    await here.renew_leases(["t1"])
    clock.now += LEASE_SECONDS - 1
    past = await elsewhere.find("a", longer)
    assert past is not None
    assert past.is_alive
    await here.end("t1", None)
    past = await elsewhere.find("a", longer)
    assert past is not None
    assert (past.state, past.is_alive) == ("failed", False)
    assert await elsewhere.resume(past, longer)
