"""The answer of a live turn comes back as one message, and is split where each round ended."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.mediate.live_turns import Chat, ModelReply, PlayedTurn, dump, joined, play

WIRE = Chat()
TEXT = st.text(alphabet="ab.é🙂 \n\t", max_size=12)
ROUND = st.builds(ModelReply, TEXT, st.sampled_from(["", "hm ", "so?"]), st.booleans())
TWO = [ModelReply("Let me look.", "first "), ModelReply("And there.", "second ")]
LAST = ModelReply("Nothing is there.", "third")


def sent(answer: Any) -> list[Any]:
    return [*WIRE.asked(), answer, WIRE.user("Thanks.")]


def check(played: PlayedTurn, answer: Any, rest: list[Any]) -> None:
    """Check that the provider sees its own bytes, and the rest behind them."""
    woven = played.next_request(sent(answer))
    assert woven[: len(played.seen)] == played.seen
    assert list(map(json.loads, woven[len(played.seen) :])) == [*rest, WIRE.user("Thanks.")]


@pytest.mark.requirement("live:continuity-split", "live:continuity-bytes")
@settings(max_examples=60, deadline=None)
@given(st.lists(ROUND, min_size=1, max_size=4), TEXT, st.sampled_from(["", "at last"]))
def test_split_and_woven_again_a_conversation_is_what_the_provider_saw(
    rounds: list[ModelReply], text: str, thought: str
) -> None:
    assume(not all(said.rejected for said in rounds))
    last = ModelReply(text, thought)
    played = play(WIRE, rounds, last)
    (answer,) = WIRE.answer([*rounds, last])
    if any(said.text for said in rounds):
        check(played, answer, WIRE.last(last))
    else:
        reasoning = {"reasoning_content": thought} if thought else {}
        check(played, answer, [{"role": "assistant", "content": text, **reasoning}])


@pytest.mark.requirement("live:continuity-split")
def test_two_rounds_with_preambles_make_three_pieces() -> None:
    played = play(WIRE, TWO, LAST)
    (answer,) = WIRE.answer([*TWO, LAST])
    assert answer["content"] == "Let me look.\n\nAnd there.\n\nNothing is there."
    check(played, answer, WIRE.last(LAST))


@pytest.mark.requirement("live:continuity-split")
@pytest.mark.parametrize(
    "content",
    [
        "  Let me look. And there.\nNothing is there.  ",
        "Letmelook.Andthere.Nothing is there.",
        "Let me look.\n\n\n\nAnd there.\n\n\n\nNothing is there.",
    ],
)
def test_white_space_that_a_runner_trims_or_adds_does_not_matter(content: str) -> None:
    played = play(WIRE, TWO, LAST)
    woven = played.next_request(sent({"role": "assistant", "content": content}))
    assert woven[: len(played.seen)] == played.seen
    assert json.loads(woven[len(played.seen)])["content"].strip() == LAST.text


@pytest.mark.requirement("live:continuity-split", "live:continuity-members")
def test_other_members_and_those_of_a_part_that_is_cut_stay_with_the_last_part() -> None:
    played = play(WIRE, TWO, LAST)
    mark = {"type": "ephemeral"}
    part = {"type": "text", "text": joined([said.text for said in (*TWO, LAST)])}
    answer = {
        "role": "assistant",
        "name": "clerk",
        "content": [{**part, "cache_control": mark}],
        "annotations": [{"url": "u"}],
    }
    rest = {**answer, "content": [{**part, "text": LAST.text, "cache_control": mark}]}
    check(played, answer, [rest])


@pytest.mark.requirement("live:continuity-split", "live:continuity-rejected")
def test_what_a_rejected_round_said_leaves_with_its_round() -> None:
    rounds = [ModelReply("I try both.", rejected=True), TWO[0], ModelReply("Or so.", rejected=True)]
    played = play(WIRE, rounds, LAST)
    (answer,) = WIRE.answer([*rounds, LAST])
    check(played, answer, WIRE.last(LAST))
    assert b"I try both" not in played.next_body(sent(answer))
    assert b"Or so" not in played.next_body(sent(answer))


@pytest.mark.requirement("live:continuity-rejected")
def test_where_nothing_is_woven_the_message_stays_as_it_is() -> None:
    rounds = [ModelReply("I try both.", rejected=True), ModelReply("Once more.", rejected=True)]
    played = play(WIRE, rounds, LAST)
    (answer,) = WIRE.answer([*rounds, LAST])
    messages = sent(answer)
    assert played.next_request(messages) == list(map(dump, messages))


@pytest.mark.requirement("live:continuity-reasoning-text")
def test_reasoning_that_was_joined_over_rounds_leaves_the_last_part() -> None:
    played = play(WIRE, TWO, LAST)
    (answer,) = WIRE.answer([*TWO, LAST])
    woven = played.next_request(sent(answer))
    thoughts = [json.loads(message).get("reasoning_content") for message in woven]
    assert thoughts == [None, "first ", None, "second ", None, "third", None]

    without = play(WIRE, TWO, ModelReply(LAST.text))
    (answer,) = WIRE.answer([*TWO, ModelReply(LAST.text)])
    assert "reasoning_content" not in json.loads(without.next_request(sent(answer))[-2])

    foreign = {**answer, "reasoning_content": "what somebody else thought"}
    last = json.loads(played.next_request(sent(foreign))[-2])
    assert last["reasoning_content"] == "what somebody else thought"


@pytest.mark.requirement("live:continuity-fallback")
def test_of_an_answer_that_is_not_what_was_shown_nothing_is_split() -> None:
    """The runner keeps the last reply only: it is found by that."""
    played = play(WIRE, TWO, LAST)
    messages = sent({"role": "assistant", "content": LAST.text})
    woven = list(map(json.loads, played.next_request(messages)))
    assert [message["role"] for message in woven] == [
        *("user", "assistant", "tool", "assistant", "tool", "assistant", "user")
    ]
    assert [message["content"] for message in woven[1:5:2]] == [None, None]
    assert woven[5:] == messages[1:]


@pytest.mark.requirement("live:continuity-split")
def test_a_handoff_keeps_its_calls_when_its_text_was_shown_before() -> None:
    played = play(WIRE, TWO, ModelReply(""))
    (answer,) = WIRE.answer(TWO)
    call = {"id": "call_9", "type": "function", "function": {"name": "shell", "arguments": "{}"}}
    answer = {**answer, "tool_calls": [call]}
    split = played.wire.dialect.split_rules.split([dump(answer)], played.record)
    assert split is not None
    rest = json.loads(split[0].rest)
    assert (rest["content"], rest["tool_calls"]) == (None, [call])


@pytest.mark.requirement("live:continuity-fallback")
@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": {"text": "Let me look."}},
        {"role": "assistant", "content": None},
        {"role": "assistant", "content": "Let me look.", "function_call": {"name": "f"}},
        {"role": "assistant", "content": "Let me cook.And there.Nothing is there."},
    ],
)
def test_a_message_of_another_form_is_not_split(message: Any) -> None:
    played = play(WIRE, TWO, LAST)
    assert played.wire.dialect.split_rules.split([dump(message)], played.record) is None
