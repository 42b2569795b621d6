"""The keys of messages: a message is found in a runner's other spellings."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from claw_mediate.core.continuity import (
    call_key,
    calls_key,
    keys_in_text,
    text_key,
)


def _nested(values: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.lists(values, max_size=3) | st.dictionaries(st.text(), values, max_size=3)


IDS = st.lists(st.text(alphabet="abcXYZ019", min_size=1, max_size=6), min_size=1, max_size=4)


@pytest.mark.requirement("continuity:calls-anchor")
@given(IDS, st.sampled_from("_-.:|"), st.randoms())
def test_order_and_punctuation_of_call_ids_do_not_matter(
    ids: list[str], mark: str, random: object
) -> None:
    shuffled = [f"{mark}{call_id[:1]}{mark}{call_id[1:]}" for call_id in ids]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert calls_key(shuffled) == calls_key(ids)


@given(IDS, IDS)
def test_other_call_ids_are_another_key(one: list[str], other: list[str]) -> None:
    assert (calls_key(one) == calls_key(other)) == (sorted(one) == sorted(other))


@pytest.mark.requirement("continuity:text-anchor")
@given(st.text())
def test_white_space_does_not_matter(text: str) -> None:
    assert text_key(f"  {text}\n") == text_key(text)
    assert text_key("a\n\nb") == text_key("ab")


def test_keys_of_different_kinds_are_never_equal() -> None:
    assert len({calls_key(["a"]), text_key("a"), call_key("a", ""), text_key("b")}) == 4


def test_any_text_has_a_key() -> None:
    assert text_key("\ud800").startswith("text:")


@pytest.mark.requirement("continuity:calls-as-text")
@given(
    st.lists(
        st.tuples(IDS.map("_".join), st.recursive(st.text() | st.none(), _nested)),
        min_size=1,
        max_size=3,
    ),
    st.text(),
)
@example([("call_1", "'{\"")], "Calling tools:\n[")
def test_ids_are_read_from_whatever_python_writes(
    calls: list[tuple[str, object]], words: str
) -> None:
    made = [
        {"id": call_id, "type": "function", "function": {"name": "f", "arguments": {"a": argument}}}
        for call_id, argument in calls
    ]
    key, *of_words = keys_in_text(f"{words}\nCalling tools:\n{made}")
    assert key == calls_key(call_id for call_id, _ in calls)
    assert of_words == ([text_key(words)] if text_key(words) != text_key("") else [])


@pytest.mark.requirement("continuity:calls-as-text")
@pytest.mark.parametrize(
    "text",
    ["", "Calling tools:\n[]", "Calling tools:\n[{'id': 7}]", "[{'id': 'call_1'}]", "call_1"],
)
def test_other_text_has_no_other_keys(text: str) -> None:
    assert keys_in_text(text) == ()


@pytest.mark.requirement("continuity:calls-as-text")
@pytest.mark.parametrize(
    "filler",
    [
        "{",
        "'",
        '"',
        "'\\",
        "{'id': '",
        "{'id': 'c', 'type': 'function', ",
        "Calling tools:\n[",
        "''",
    ],
)
def test_a_text_of_a_megabyte_is_read_once(filler: str) -> None:
    """Reading it anew from each such sign would take hours, and pytest ends a test
    after minutes.
    """
    keys_in_text(
        "Calling tools:\n[{'id': 'c', 'type': 'function', 'function': {'name': "
        + filler * (1_000_000 // len(filler))
    )
