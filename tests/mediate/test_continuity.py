"""Anchors: the same message in a runner's other spellings, and no other message."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_mediate.continuity import calls_anchor, text_anchor

IDS = st.lists(st.text(alphabet="abcXYZ019", min_size=1, max_size=6), min_size=1, max_size=4)


@pytest.mark.requirement("continuity:calls-anchor")
@given(IDS, st.sampled_from("_-.:|"), st.randoms())
def test_order_and_punctuation_of_call_ids_do_not_matter(ids: list[str], mark: str, random: object) -> None:
    shuffled = [f"{mark}{call_id[:1]}{mark}{call_id[1:]}" for call_id in ids]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert calls_anchor(shuffled) == calls_anchor(ids)


@given(IDS, IDS)
def test_other_call_ids_are_another_anchor(one: list[str], other: list[str]) -> None:
    assert (calls_anchor(one) == calls_anchor(other)) == (sorted(one) == sorted(other))


@pytest.mark.requirement("continuity:text-anchor")
@given(st.text(), st.lists(st.text(), max_size=5))
def test_white_space_does_not_matter_and_only_the_last_words_of_the_user_do(text: str, said: list[str]) -> None:
    assert text_anchor(f"  {text}\n", ["long ago", *said][-3:]) == text_anchor(text, ["long ago", *said])
    assert text_anchor("a\n\nb", ["c d"]) == text_anchor("ab", ["cd "])


@pytest.mark.requirement("continuity:text-anchor")
def test_equal_answers_of_two_conversations_are_told_apart() -> None:
    assert text_anchor("Done.", ["Buy"]) != text_anchor("Done.", ["Sell"])
    assert text_anchor("Done.", ["a", "b"]) != text_anchor("Done.", ["ab"])
    assert text_anchor("Done.", []) != text_anchor("Done", ["."])


def test_an_anchor_of_calls_is_never_one_of_text() -> None:
    assert calls_anchor(["a"]) != text_anchor("a", [])


def test_any_text_has_an_anchor() -> None:
    assert text_anchor("\ud800", ["\udfff"]).startswith("text:")
