"""The event about a request's hidden rounds: how many were reinjected, and why others were not.

Numbers, never words.
"""

from __future__ import annotations

import json

import pytest

from claw_contract.log import ContinuityEvent
from claw_mediate.core.continuity import Evidence
from claw_mediate.core.reinjection import Reinjection, plan_reinjection
from claw_state.continuity import Anchor, StoredRounds
from tests.turns.desk import Desk
from tests.turns.remembering import said

ROOM = 256 * 1024


def recall(anchors: dict[int, str], *kept: StoredRounds, session: str = "") -> Reinjection:
    evidence = Evidence({index: Anchor(key, ("asked",)) for index, key in anchors.items()})
    return plan_reinjection(
        evidence, kept, session, lambda messages: messages[: len(messages) // 2]
    )


def kept(
    number: int, key: str, messages: bytes = b"", *, before: str = "asked", evicted: bool = False
) -> StoredRounds:
    return StoredRounds(number, Anchor(key, (before,)), "", messages, evicted)


@pytest.mark.requirement("log:continuity")
async def test_a_request_tells_what_it_got_back_and_of_which_turn_it_is(desk: Desk) -> None:
    await said(desk, "One?", "desk.balance", "First.")
    assert desk.told("continuity") == [], "no message of the assistant's, nothing to tell"
    desk.model_says("Second.")
    await desk.asks("Two?")
    desk.messages[:0] = [
        desk.wire.user("Zero?"),
        {"role": "assistant", "content": "I was never said."},
    ]
    desk.model_says("Third.")
    await desk.asks("Three?")
    first, second = map(ContinuityEvent.model_validate, desk.told("continuity"))
    assert (first.anchors, first.hits, first.turns) == (1, 1, 1)
    assert (second.anchors, second.hits, second.turns, second.missed.unknown) == (3, 2, 1, 1)
    assert first.bytes == second.bytes > 0
    assert [event.turn_id for event in (first, second)] == [
        line["turn_id"] for line in desk.history()[1:]
    ]
    words = json.dumps(desk.told("continuity"))
    assert all(word not in words for word in ("One?", "First.", "never said", "balance"))


@pytest.mark.requirement("log:continuity")
@pytest.mark.parametrize(
    ("turn", "why"),
    [
        (kept(1, "text:a", b"-" * 10), "turns"),
        (kept(1, "text:a"), "hits"),
        (kept(1, "text:a", evicted=True), "evicted"),
        (kept(1, "text:a", b"-" * 10, before="another question"), "other_conversation"),
        (kept(1, "text:a", b"-" * (2 * ROOM + 4)), "over_bound"),
        (kept(1, "text:a", b"-" * (ROOM + 4)), "shortened"),
        (kept(1, "text:b", b"-" * 10), "unknown"),
    ],
)
def test_of_a_message_that_got_nothing_back_it_is_told_why(turn: StoredRounds, why: str) -> None:
    found = recall({1: "text:a"}, turn)
    numbers = found.event.model_dump()
    numbers |= numbers.pop("missed")
    expected = {"anchors", why} | (
        {"hits", "turns", "bytes"} if why in {"turns", "shortened"} else set()
    )
    assert {name for name, number in numbers.items() if number} == expected
    assert numbers["bytes"] == sum(map(len, found.insertions.values()))
    assert numbers["anchors"] == numbers["hits"] + sum(found.event.missed.model_dump().values())


@pytest.mark.requirement("log:continuity")
def test_the_place_of_an_answer_that_was_dropped_counts_where_something_was_hidden_there() -> None:
    key = "text:nothing"
    for turns, number in (((kept(1, key, b"{},{}"),), 1), ((), 0)):
        found = plan_reinjection(Evidence(gaps={2: Anchor(key, ("asked",))}), turns, "", bytes)
        assert (found.event.anchors, found.event.hits, found.event.turns) == (number,) * 3
        assert len(found.insertions) == number
