"""Continuity by evidence: among messages that are equal, the right one is found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_mediate.core.continuity import Transcript, calls_key, text_key
from claw_mediate.core.round_matching import match_rounds
from claw_state.continuity import Anchor, StoredRounds

KEY = text_key("Done.")


def said(*texts: str) -> tuple[str, ...]:
    transcript = Transcript()
    for text in texts:
        transcript.add_text(text)
    return transcript.before


def kept(number: int, *before: str, session: str = "", key: str = KEY) -> StoredRounds:
    return StoredRounds(number, Anchor(key, said(*before)), session, f"hidden {number}".encode())


def found(
    conversation: Sequence[str], turns: Sequence[StoredRounds], session: str = ""
) -> dict[int, int]:
    """Return the stored rounds chosen for each message of a conversation in which
    the assistant says every "Done.".
    """
    transcript, anchors = Transcript(), {}
    for index, text in enumerate(conversation):
        if text == "Done.":
            anchors[index] = transcript.add_assistant(KEY)
        transcript.add_text(text)
    return {index: one.id for index, one in match_rounds(anchors, turns, session).items()}


@pytest.mark.requirement("continuity:evidence")
def test_equal_answers_of_two_conversations_are_told_apart_by_what_was_said_before() -> None:
    turns = [kept(1, "Buy"), kept(2, "Sell")]
    assert found(["Buy", "Done."], turns) == {1: 1}
    assert found(["Sell", "Done."], turns) == {1: 2}
    assert found(["Hold", "Done."], turns) == {}


@pytest.mark.requirement("continuity:evidence")
def test_equal_answers_are_told_apart_by_what_was_said_before_and_by_order() -> None:
    turns = [
        kept(1, "Buy"),
        kept(2, "Buy", "Done.", "Buy"),
        kept(3, "Buy", "Done.", "Buy", "Done.", "Buy"),
    ]
    assert found(["Buy", "Done.", "Buy", "Done.", "Buy", "Done."], turns) == {1: 1, 3: 2, 5: 3}


@pytest.mark.requirement("continuity:evidence")
@pytest.mark.parametrize(
    "again",
    [
        ["Buy", "Done."],  # the runner never stores its volatile last message
        ["<reminder>", "Buy", "Done."],
        ["Buy", "<volatile>", "Done."],
        ["summary of what was", "Buy", "Done."],
    ],
)
def test_messages_that_a_runner_adds_or_drops_do_not_matter_while_one_is_the_same(
    again: list[str],
) -> None:
    assert list(found(again, [kept(1, "Buy", "<volatile>")]).values()) == [1]


@pytest.mark.requirement("continuity:evidence")
def test_the_session_beats_everything_where_the_runner_names_it() -> None:
    turns = [kept(1, "Buy", session="a"), kept(2, "Buy", session="b")]
    assert found(["Buy", "Done."], turns, "a") == {1: 1}
    assert found(["Buy", "Done."], turns, "b") == {1: 2}
    assert found(["other words", "Done."], turns, "a") == {1: 1}
    assert found(["Buy", "Done."], turns, "a continued one") == {1: 2}


@pytest.mark.requirement("continuity:evidence")
def test_an_answer_that_was_made_again_is_the_latest_one() -> None:
    assert found(["Buy", "Done."], [kept(1, "Buy"), kept(2, "Buy")]) == {1: 2}


@pytest.mark.requirement("continuity:evidence")
def test_evidence_is_no_requirement() -> None:
    assert found(["Done."], [kept(1, "Buy")]) == {0: 1}
    assert found(["Buy", "Done."], [kept(1)]) == {1: 1}


@pytest.mark.requirement("continuity:told-apart")
@given(
    st.lists(st.sampled_from(["Buy", "Sell", "Done."]), max_size=8),
    st.lists(st.sampled_from(["Buy", "Sell"]), max_size=4),
)
def test_one_kept_turn_serves_one_message(conversation: list[str], before: list[str]) -> None:
    turns = [kept(number, *before[:number]) for number in range(5)]
    numbers = list(found(conversation, turns).values())
    assert len(numbers) == len(set(numbers))


class CountedMessages(tuple[str, ...]):
    """Earlier messages that count how often they are read."""

    __slots__ = ()
    times = 0

    def __iter__(self) -> Iterator[str]:
        CountedMessages.times += 1
        return super().__iter__()


@pytest.mark.requirement("continuity:bounds")
def test_an_answer_that_was_given_often_costs_no_more_to_find() -> None:
    kept = [StoredRounds(number, Anchor("text:ok", ("beat",)), "", b"{}") for number in range(64)]
    looked = []
    for length in (1_000, 10_000):
        CountedMessages.times = 0
        found = match_rounds(
            {index: Anchor("text:ok", CountedMessages(("beat",))) for index in range(length)},
            kept,
            "",
        )
        looked.append(CountedMessages.times)
        assert sorted(found) == list(range(length - 64, length))
    assert looked[0] == looked[1]


NOTE, OTHER_NOTE = (
    "<system-reminder>\na\n</system-reminder>",
    "<system-reminder> b </system-reminder>",
)


def is_same(parts: Sequence[str], others: Sequence[str]) -> bool:
    """Return True if an answer after the one message is found after the other."""
    transcripts = [Transcript(), Transcript()]
    for transcript, message in zip(transcripts, (parts, others), strict=True):
        transcript.add_user(*message)
    kept, sent = (transcript.add_assistant(KEY) for transcript in transcripts)
    return bool(match_rounds({1: sent}, [StoredRounds(1, kept, "", b"{}")], ""))


@pytest.mark.requirement("continuity:parts")
@pytest.mark.parametrize(
    ("parts", "others"),
    [
        (["a", "b", "c", "d", "e"], ["a", "b", "d", "e"]),
        (["a", "b"], ["ab"]),
        (["a", " ", "b"], ["a", "b"]),
        ([NOTE, "Buy"], ["Buy"]),
        (["Buy", NOTE], ["Buy"]),
        ([NOTE, OTHER_NOTE, "Buy"], ["Buy"]),
        ([NOTE, "Buy"], [OTHER_NOTE, "Buy"]),
        ([str(number) for number in range(40)], ["".join(str(number) for number in range(40))]),
    ],
)
def test_a_users_message_is_known_by_most_of_its_parts(parts: list[str], others: list[str]) -> None:
    assert is_same(parts, others)
    assert is_same(others, parts)


@pytest.mark.requirement("continuity:parts")
@pytest.mark.parametrize(
    ("parts", "others"),
    [
        ([NOTE, OTHER_NOTE, "Buy"], [NOTE, OTHER_NOTE, "Sell"]),
        (["context", "Buy", "be brief"], ["context", "Sell", "be brief"]),
        (["context", "Buy"], ["context"]),
        ([NOTE, "Buy"], [NOTE]),
        ([NOTE, OTHER_NOTE], [NOTE]),
        ([f"{NOTE}1", f"{NOTE}2", f"{NOTE}3", "Buy"], [f"{NOTE}4", f"{NOTE}5", f"{NOTE}6", "Buy"]),
        (["a"], ["b"]),
    ],
)
def test_a_users_message_with_other_words_is_another_one(
    parts: list[str], others: list[str]
) -> None:
    assert not is_same(parts, others)
    assert not is_same(others, parts)


@pytest.mark.requirement("continuity:parts")
def test_one_equal_message_says_no_less_than_several_nearly_equal_ones() -> None:
    def after(number: int, *messages: list[str]) -> StoredRounds:
        transcript = Transcript()
        for parts in messages:
            transcript.add_user(*parts)
        return StoredRounds(number, transcript.add_assistant(KEY), "", b"{}")

    own = after(1, ["Beat"])
    other = after(2, [NOTE, "Beat"], [OTHER_NOTE, "Beat"], [NOTE, "Beat"])
    sent = after(3, ["Beat"], ["Beat"]).anchor
    assert match_rounds({1: sent}, [own, other], "") == {1: own}


@pytest.mark.requirement("continuity:parts")
def test_what_an_earlier_version_kept_of_a_message_in_parts_is_known_as_a_whole() -> None:
    transcript = Transcript()
    transcript.add_user("context", "Buy")
    old = StoredRounds(1, Anchor(KEY, said("contextBuy")), "", b"{}")
    assert match_rounds({1: transcript.add_assistant(KEY)}, [old], "") == {1: old}


@pytest.mark.requirement("continuity:calls-as-text")
def test_a_mentioned_id_is_no_evidence() -> None:
    handed_over = kept(1, "Buy", key=calls_key(["call_1"]))
    text = (
        "Calling tools:\n[{'id': 'call_1', 'type': 'function', 'function': {'name': 'f', "
        "'arguments': {}}}]"
    )
    for before, ids in ((["Buy"], [1]), (["Buy", "Sell"], []), (["Sell"], []), ([], [])):
        transcript = Transcript()
        for words in before:
            transcript.add_user(words)
        result = match_rounds(
            {1: transcript.add_assistant(text_key(text), text)}, [handed_over], ""
        )
        assert [one.id for one in result.values()] == ids
