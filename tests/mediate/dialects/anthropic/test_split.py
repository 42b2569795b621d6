"""The blocks of a live turn's answer, split where each round ended, with their thinking."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from claw_mediate.core.shown import signature_digest
from claw_mediate.dialects.anthropic.split import SPLIT_RULES
from tests.mediate.live_turns import Anthropic, ModelReply, PlayedTurn, dump, play

WIRE = Anthropic()
TEXT = st.text(alphabet="ab.é🙂 \n\t", max_size=12).filter(lambda text: not text or text.strip())
THOUGHT = st.text(alphabet="hm?", max_size=6)
ROUND = st.builds(ModelReply, TEXT, THOUGHT, st.booleans())
TWO = [ModelReply("Let me look.", "first"), ModelReply("And there.", "second")]
LAST = ModelReply("Nothing is there.", "third")
MARK = {"type": "ephemeral"}


def sent(answer: Any) -> list[Any]:
    return [WIRE.asked()[0], answer, WIRE.user("Thanks.")]


def check(played: PlayedTurn, answer: Any, rest: list[Any]) -> None:
    """Check that the provider sees its own bytes, and the rest behind them."""
    woven = played.next_request(sent(answer))
    assert woven[: len(played.seen)] == played.seen
    assert list(map(json.loads, woven[len(played.seen) :])) == [*rest, WIRE.user("Thanks.")]


def joined_string(answer: Any) -> Any:
    text = "".join(block.get("text", "") for block in answer["content"])
    return {"role": "assistant", "content": text}


def without_thinking(answer: Any) -> Any:
    blocks = [block for block in answer["content"] if block["type"] != "thinking"]
    return {"role": "assistant", "content": blocks}


def distinct(saids: list[ModelReply]) -> list[ModelReply]:
    """Return the replies with thoughts of their own: a signature is never used twice."""
    return [
        ModelReply(said.text, said.thought and f"{number}{said.thought}", said.rejected)
        for number, said in enumerate(saids)
    ]


@pytest.mark.requirement("live:continuity-split", "live:continuity-bytes")
@settings(max_examples=60, deadline=None)
@given(
    st.lists(ROUND, min_size=1, max_size=4),
    st.builds(ModelReply, TEXT, THOUGHT),
    st.sampled_from(["", "Dear", "1. é"]),
    st.booleans(),
)
def test_split_and_woven_again_a_conversation_is_what_the_provider_saw(
    rounds: list[ModelReply], last: ModelReply, prefill: str, loses_thinking: bool
) -> None:
    assume(not all(said.rejected for said in rounds))
    *rounds, last = distinct([*rounds, last])
    played = play(WIRE, rounds, last, prefill)
    (answer,) = WIRE.answer([*rounds, last], prefill)
    if loses_thinking:
        answer, last = without_thinking(answer), ModelReply(last.text)
    assume(answer["content"])
    check(played, answer, WIRE.last(last))


@pytest.mark.requirement("live:continuity-split")
def test_thinking_and_preamble_join_the_hidden_call_in_one_message() -> None:
    played = play(WIRE, TWO, LAST)
    (answer,) = WIRE.answer([*TWO, LAST])
    woven = list(map(json.loads, played.next_request(sent(answer))))
    assert [message["role"] for message in woven] == [
        *("user", "assistant", "user", "assistant", "user", "assistant", "user")
    ]
    assert [block["type"] for block in woven[1]["content"]] == ["thinking", "text", "tool_use"]
    assert [block["type"] for block in woven[5]["content"]] == ["thinking", "text"]


@pytest.mark.requirement("live:continuity-split", "live:continuity-forms")
@pytest.mark.parametrize("space", ["", "\n", "\n\n"])
def test_blocks_that_a_runner_joined_to_a_string_are_split(space: str) -> None:
    played = play(WIRE, TWO, LAST)
    text = space.join([*(said.text for said in TWO), LAST.text])
    rest = {"role": "assistant", "content": LAST.text}
    check(played, {"role": "assistant", "content": text}, [rest])


@pytest.mark.requirement("live:continuity-split", "live:continuity-prefill")
@pytest.mark.parametrize("form", ["string", "blocks", "merged"])
def test_what_the_runner_began_begins_the_first_hidden_message(form: str) -> None:
    rounds = [ModelReply(" let me look."), TWO[1]]
    played = play(WIRE, rounds, LAST, "Well,")
    (answer,) = WIRE.answer([*rounds, LAST], "Well,")
    rest = WIRE.last(LAST)
    if form == "string":
        answer = joined_string(answer)
        rest = [{"role": "assistant", "content": LAST.text}]
    elif form == "merged":
        first, second, *others = answer["content"]
        merged = {"type": "text", "text": first["text"] + second["text"]}
        answer = {"role": "assistant", "content": [merged, *others]}
    check(played, answer, rest)


@pytest.mark.requirement("live:continuity-members")
def test_cache_control_stays_with_its_block_and_citations_of_null_do_not_matter() -> None:
    played = play(WIRE, TWO, LAST)
    (answer,) = WIRE.answer([*TWO, LAST])
    for block in answer["content"]:
        if block["type"] == "text":
            block["citations"] = None
    answer["content"][-1]["cache_control"] = MARK
    check(played, answer, [{"role": "assistant", "content": answer["content"][-2:]}])

    answer["content"][1]["cache_control"] = MARK
    woven = list(map(json.loads, played.next_request(sent(answer))))
    _, text, call = woven[1]["content"]
    assert text == {"type": "text", "text": "Let me look.", "cache_control": MARK}
    assert "cache_control" not in call
    assert "cache_control" not in json.dumps(woven[2:5])


@pytest.mark.requirement("live:continuity-members")
def test_of_a_block_that_is_cut_the_members_stay_with_the_later_half() -> None:
    played = play(WIRE, [TWO[0]], LAST)
    text = TWO[0].text + "\n" + LAST.text
    block = {"type": "text", "text": text, "cache_control": MARK}
    rest = {**block, "text": LAST.text}
    check(
        played,
        {"role": "assistant", "content": [block]},
        [{"role": "assistant", "content": [rest]}],
    )


@pytest.mark.requirement("live:continuity-rejected")
def test_what_a_rejected_round_said_and_thought_leaves_with_its_round() -> None:
    rounds = distinct(
        [ModelReply("Both.", "r", rejected=True), TWO[0], ModelReply("Or.", "s", rejected=True)]
    )
    played = play(WIRE, rounds, LAST)
    (answer,) = WIRE.answer([*rounds, LAST])
    check(played, answer, WIRE.last(LAST))


@pytest.mark.requirement("live:continuity-rejected", "live:continuity-hides")
def test_where_nothing_is_woven_only_thinking_of_the_rounds_leaves() -> None:
    rounds = distinct(
        [ModelReply("Both.", "r", rejected=True), ModelReply("Again.", "s", rejected=True)]
    )
    played = play(WIRE, rounds, LAST)
    (answer,) = WIRE.answer([*rounds, LAST])
    woven = list(map(json.loads, played.next_request(sent(answer))))
    texts = [block.get("text") or block["thinking"] for block in woven[1]["content"]]
    assert texts == ["Both.", "Again.", "third", LAST.text]


@pytest.mark.requirement("live:continuity-split")
def test_tools_that_the_provider_ran_leave_with_their_round_and_later_ones_stay() -> None:
    played = play(WIRE, TWO, LAST)
    tool = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
    own = {**tool, "id": "s2"}
    (answer,) = WIRE.answer([*TWO, LAST])
    answer["content"][2:2] = [tool]
    answer["content"][-2:-2] = [own]
    first, *others = played.record.shown
    record = replace(played.record, shown=(replace(first, pieces=2), *others))
    split = SPLIT_RULES.split([dump(answer)], record)
    assert split is not None
    rest = json.loads(split[0].rest)["content"]
    assert [block["type"] for block in rest] == ["server_tool_use", "thinking", "text"]
    assert rest[0] == own


@pytest.mark.requirement("live:continuity-fallback", "live:continuity-hides")
def test_of_an_answer_that_is_not_what_was_shown_only_the_rounds_own_thinking_leaves() -> None:
    """The runner keeps the thinking of all replies, and the text of the last one."""
    played = play(WIRE, TWO, LAST)
    (answer,) = WIRE.answer([*TWO, LAST])
    kept = [block for block in answer["content"] if block["type"] == "thinking"]
    answer = {"role": "assistant", "content": [*kept, answer["content"][-1]]}
    woven = list(map(json.loads, played.next_request(sent(answer))))
    assert [block["type"] for block in woven[1]["content"]] == ["thinking", "tool_use"]
    assert [block["type"] for block in woven[3]["content"]] == ["thinking", "tool_use"]
    assert woven[5] == WIRE.last(LAST)[0]


@pytest.mark.requirement("live:continuity-fallback")
@pytest.mark.parametrize(
    "content",
    [
        None,
        7,
        [7],
        [],
        "Let me look. And no.",
        [{"type": "tool_use", "id": "t", "name": "shell", "input": {}}],
    ],
)
def test_a_message_of_another_form_is_not_split(content: Any) -> None:
    played = play(WIRE, TWO, LAST)
    message = dump({"role": "assistant", "content": content})
    assert SPLIT_RULES.split([message], played.record) is None
    assert SPLIT_RULES.leave_out([message], 0, played.record.signed) == {}


@pytest.mark.requirement("live:continuity-refused")
@pytest.mark.parametrize(
    ("message", "is_refused"),
    [
        (
            "messages.5.content.1: `thinking` or `redacted_thinking` blocks cannot be modified.",
            True,
        ),
        ("messages.1.content.0: Invalid `signature` in `thinking` block", True),
        ("messages.1.content.0.type: Expected `thinking` or `redacted_thinking`", False),
        ("`max_tokens` must be greater than `thinking.budget_tokens`", False),
        ("messages: roles must alternate, and cannot be modified", False),
    ],
)
def test_an_error_about_thinking_that_came_back_is_known(message: str, is_refused: bool) -> None:
    error = {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
    assert WIRE.dialect.replay_rules.refuses_reasoning(dump(error)) is is_refused
    assert not WIRE.dialect.replay_rules.refuses_reasoning(b"<html>")


@pytest.mark.requirement("live:continuity-split", "live:continuity-hides")
def test_thinking_that_was_redacted_is_known_by_its_data() -> None:
    redacted = {"type": "redacted_thinking", "data": "D"}
    unsigned = {"type": "thinking", "thinking": "?"}
    assert SPLIT_RULES.signatures(dump([redacted, unsigned, {"type": "text", "text": "x"}])) == [
        "D"
    ]

    played = play(WIRE, [TWO[0]], LAST)
    first = replace(played.record.shown[0], signed=(signature_digest("D"),))
    record = replace(played.record, shown=(first,))
    (answer,) = WIRE.answer([ModelReply(TWO[0].text), LAST])
    answer["content"].insert(1, redacted)
    split = SPLIT_RULES.split([dump(answer)], record)
    assert split is not None
    assert json.loads(split[0].rest) == WIRE.last(LAST)[0]
