"""The record of what was shown of each round: written, read back, and found in a message."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_mediate.core.continuity import EMPTY_TEXT_KEY, text_key
from claw_mediate.core.shown import (
    Cut,
    LiveRecord,
    Piece,
    RoundText,
    answer_anchor_of_shown,
    describe_rounds,
    digests_of_hides,
    failed_anchor_of_shown,
    find_cuts,
    find_end,
    hides_key,
    is_live_key,
    live_name,
    needs_glue,
    signature_digest,
)
from claw_state.continuity import Anchor
from tests.mediate.live_turns import joined

TEXT = st.text(alphabet="ab.é🙂 \n\t ", max_size=10)
HIDDEN = (b'{"a":1}', b'{"b":[1, 2]}')
ROUNDS = [RoundText(1, "One.", HIDDEN, pieces=1, signatures=["s"]), RoundText(2, "Two.")]


@pytest.mark.requirement("live:continuity-record")
def test_a_record_is_read_as_it_was_written() -> None:
    record = describe_rounds(ROUNDS, "Three.", is_joined=True)
    stored = record.write()
    marker, *messages = json.loads(b"[%b]" % stored)
    assert marker["claw"] == "live"
    assert len(marker["shown"]) == 2
    assert messages == [{"a": 1}, {"b": [1, 2]}]
    assert LiveRecord.read(stored) == record
    assert record.hidden == b",".join(HIDDEN)
    assert record.signed == {signature_digest("s")}
    assert [each.is_woven for each in record.shown] == [True, False]


def marker(*shown: Any, **more: Any) -> str:
    return json.dumps({"claw": "live", "shown": shown, **more})


STRETCH = [4, "d" * 32, None]
GOOD = [1, STRETCH, [0, "", None], 1, 1, ["s"]]


@pytest.mark.requirement("live:continuity-record")
@pytest.mark.parametrize(
    "stored",
    [
        "",
        "{}",
        "not JSON",
        '{"claw":"live"',
        marker(),
        marker(GOOD),
        marker(GOOD) + ",{},{}",
        marker([-1, *GOOD[1:]]) + ",{}",
        marker([*GOOD[:3], 1, -1, []]),
        marker([1, [4], *GOOD[2:], "more"]) + ",{}",
        marker([1, "four", *GOOD[2:]]) + ",{}",
        marker(GOOD, role="assistant") + ",{}",
        "[" * 5000 + "]" * 5000,
    ],
)
def test_what_is_no_record_is_not_read_as_one(stored: str) -> None:
    assert LiveRecord.read(marker(GOOD).encode() + b",{}") is not None
    assert LiveRecord.read(stored.encode()) is None


@pytest.mark.requirement("live:continuity-split")
@given(st.lists(TEXT, min_size=1, max_size=4), TEXT)
def test_each_round_is_found_in_the_text_that_all_were_joined_to(
    texts: list[str], after: str
) -> None:
    rounds = [RoundText(number, text) for number, text in enumerate(texts, 1)]
    record = describe_rounds(rounds, after, is_joined=True)
    text = joined([*texts, after])
    cuts = find_cuts([Piece("text", text)], record.shown)
    assert cuts is not None
    rest = "" if cuts[-1].piece else text[cuts[-1].offset :]
    assert rest == after if after.strip() else not rest.strip()


@pytest.mark.requirement("live:continuity-split")
@given(st.lists(TEXT, min_size=1, max_size=4), TEXT, st.sampled_from(["", " ", "\n\n\n"]))
def test_white_space_between_rounds_does_not_matter(
    texts: list[str], after: str, space: str
) -> None:
    rounds = [RoundText(number, text) for number, text in enumerate(texts, 1)]
    record = describe_rounds(rounds, after, is_joined=False)
    text = space.join([*texts, after])
    cuts = find_cuts([Piece("text", text)], record.shown)
    assert cuts is not None
    rest = "" if cuts[-1].piece else text[cuts[-1].offset :]
    assert "".join(rest.split()) == "".join(after.split())


@pytest.mark.requirement("live:continuity-split")
def test_pieces_without_text_belong_to_a_round_as_far_as_it_had_some() -> None:
    rounds = [RoundText(1, "One.", pieces=2), RoundText(2, "", pieces=1), RoundText(3, "Three.")]
    shown = describe_rounds(rounds, "", is_joined=False).shown
    other = Piece("other")
    pieces = [Piece("text", "One."), other, other, other, Piece("text", "Three."), other]
    assert find_cuts(pieces, shown) == [Cut(2), Cut(3), Cut(5)]
    signed = [pieces[0], Piece("signed"), *pieces[1:]]
    assert find_cuts(signed, shown[:1]) == [Cut(1)]
    assert find_cuts([pieces[0], Piece("call"), pieces[4]], shown[2:]) is None
    assert find_cuts([Piece("call"), pieces[0]], shown[:1]) is None


@pytest.mark.requirement("live:continuity-split")
def test_a_stretch_is_found_by_its_words_only() -> None:
    (one,) = describe_rounds([RoundText(1, "a b")], "", is_joined=False).shown
    assert find_end("a b", 0, one.text) == find_end("ab ", 0, one.text) == 3
    assert find_end("x ab", 1, one.text) == 4
    assert find_end("ac", 0, one.text) is find_end("a", 0, one.text) is None


@pytest.mark.requirement("live:continuity-split")
def test_line_breaks_go_between_texts_that_would_touch() -> None:
    assert needs_glue("a", "b")
    assert not any([needs_glue("a ", "b"), needs_glue("a", "\nb"), needs_glue("", "b")])
    assert not needs_glue("a", "")


@pytest.mark.requirement("live:continuity-anchor")
def test_a_live_answer_is_found_by_all_that_was_shown_or_by_its_last_piece() -> None:
    whole, last = Anchor(text_key("One.Two."), ("b",), names=("n",)), Anchor(text_key("Two."))
    anchor = answer_anchor_of_shown(whole, last)
    assert anchor == Anchor(whole.key, ("b",), names=("n", last.key))
    assert answer_anchor_of_shown(whole, whole) == whole
    assert answer_anchor_of_shown(whole, Anchor(EMPTY_TEXT_KEY)) == whole


@pytest.mark.requirement("live:continuity-anchor")
def test_a_turn_that_failed_is_found_by_what_it_showed_or_where_that_is_missing() -> None:
    assert failed_anchor_of_shown("One.", ("b",)) == Anchor(
        text_key("One."), ("b",), names=(EMPTY_TEXT_KEY,)
    )
    assert failed_anchor_of_shown(" \n", ("b",)) == Anchor(EMPTY_TEXT_KEY, ("b",))


@pytest.mark.requirement("live:continuity-hides", "live:continuity-fleet")
def test_names_of_live_turns_are_told_from_all_others() -> None:
    live = live_name("openai-chat")
    hidden = f"{live}:{hides_key(signature_digest('s'))}"
    assert digests_of_hides([hidden, f"{live}:item:x", "hides:"]) == {signature_digest("s"), ""}
    assert is_live_key(hidden)
    assert not is_live_key("openai-chat:text:+live")


@pytest.mark.requirement("live:continuity-hides")
def test_a_signature_is_known_by_its_beginning_which_is_all_that_is_read_of_a_long_one() -> None:
    assert signature_digest("x" * 2000) == signature_digest("x" * 1024 + " [digest]")
    assert signature_digest("x" * 100) != signature_digest("x" * 101)
