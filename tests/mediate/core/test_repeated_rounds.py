"""Which entries of one turn a request gets back, where several of its messages lead to them."""

from __future__ import annotations

import pytest

from claw_mediate.core.continuity import EMPTY_TEXT_KEY
from claw_mediate.core.repeated_rounds import find_repeated
from claw_mediate.core.shown import LiveRecord, ShownRound
from claw_state.continuity import Anchor, StoredRounds

ONE, TWO, OTHER = b'{"call":1},{"result":1}', b'{"call":2},{"result":2}', b'{"call":3}'
EMPTY = f"openai:{EMPTY_TEXT_KEY}"


def live(
    number: int, turn: str, *rounds: int, continued: str = ""
) -> tuple[StoredRounds, LiveRecord]:
    """Return a stored live turn with these rounds, which goes on with those in ``continued``."""
    shown = tuple(ShownRound(each, messages=2) for each in rounds)
    hidden = tuple(b'{"call":%d},{"result":%d}' % (each, each) for each in rounds)
    record = LiveRecord(shown, hidden, turn, continued=tuple(continued))
    return StoredRounds(number, Anchor(f"k{number}", ("a",)), "", record.write()), record


@pytest.mark.requirement("live:failed-then-answered")
@pytest.mark.parametrize(
    ("entries", "repeated"),
    [
        ([live(1, "t", 1), live(2, "t", 1, 2)], {0}),
        ([live(1, "t", 1, 2), live(2, "t", 2)], {1}),
        ([live(1, "t", 1), live(2, "t", 1)], {0}),
        ([live(2, "t", 1), live(1, "t", 1)], {1}),
        ([live(1, "t", 1), live(2, "t", 1, 2), live(3, "t", 3), live(4, "t", 1, 2, 3)], {0, 1, 2}),
        ([live(1, "t", 1, 2), live(2, "t", 3)], set()),
        ([live(1, "t", 1), live(2, "u", 1, 2)], set()),
        ([live(1, "", 1), live(2, "", 1, 2)], set()),
        ([live(1, "t", 1), live(2, "u", 1, 1, continued="t")], {0}),
        ([live(1, "t", 1), live(2, "u", 1, 1), live(3, "v", 1, 1, 1, continued="tu")], {0, 1}),
        ([live(1, "t", 2), live(2, "u", 1, continued="t")], set()),
        ([live(1, "s", 1), live(2, "u", 1, continued="t")], set()),
    ],
)
def test_of_live_entries_of_one_turn_the_one_with_most_rounds_stays(
    entries: list[tuple[StoredRounds, LiveRecord]], repeated: set[int]
) -> None:
    matches = {index: rounds for index, (rounds, _) in enumerate(entries)}
    records = {rounds.id: record for rounds, record in entries}
    assert find_repeated(matches, records) == repeated


def stored(
    number: int, key: str, *messages: bytes, before: str = "a", session: str = ""
) -> StoredRounds:
    return StoredRounds(number, Anchor(key, (before,)), session, b",".join(messages))


@pytest.mark.requirement("live:failed-then-answered")
@pytest.mark.parametrize(
    ("first", "second", "repeated"),
    [
        (stored(1, EMPTY, ONE), stored(2, "text:x", ONE, TWO), {0}),
        (stored(1, EMPTY, ONE), stored(2, EMPTY, ONE, TWO), {0}),
        (stored(1, EMPTY, ONE), stored(2, "text:x", OTHER, TWO), set()),
        (stored(1, EMPTY, ONE), stored(2, "text:x", ONE, before="b"), set()),
        (stored(1, EMPTY, ONE), stored(2, "text:x", ONE, session="s"), set()),
        # Two steps of a task, of a server that counts its calls anew in each reply:
        (stored(1, "calls:x", ONE), stored(2, "calls:y", ONE, TWO), set()),
        (stored(1, "text:x", ONE, TWO), stored(2, EMPTY, ONE), set()),
        (stored(1, EMPTY), stored(2, "text:x"), set()),
    ],
)
def test_a_failure_is_of_the_answered_turn_behind_it_that_begins_with_its_rounds(
    first: StoredRounds, second: StoredRounds, repeated: set[int]
) -> None:
    assert find_repeated({3: first, 5: second}, {}) == {3 for _ in repeated}


@pytest.mark.requirement("live:failed-then-answered")
def test_a_live_failure_that_was_answered_in_a_buffered_turn_is_of_that_turn() -> None:
    rounds, record = live(1, "t", 1)
    failed = StoredRounds(1, Anchor("text:x", ("a",), names=(EMPTY,)), "", rounds.messages)
    answered = stored(2, "text:y", ONE, TWO)
    assert find_repeated({0: failed, 1: answered}, {1: record}) == {0}
