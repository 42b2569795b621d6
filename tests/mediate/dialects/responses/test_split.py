"""The items of a live turn's answer, with the hidden items woven between them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from claw_mediate.core.shown import Stretch
from claw_mediate.dialects.responses.split import SPLIT_RULES
from tests.mediate.live_turns import ModelReply, PlayedTurn, Responses, dump, play

WIRE = Responses()
TEXT = st.text(alphabet="ab.é🙂 \n\t", max_size=12).filter(lambda text: not text or text.strip())
THOUGHT = st.text(alphabet="hm?", max_size=6)
ROUND = st.builds(ModelReply, TEXT, THOUGHT, st.booleans())
TWO = [ModelReply("Let me look.", "first"), ModelReply("And there.", "second")]
LAST = ModelReply("Nothing is there.", "third")


def sent(items: list[Any]) -> list[Any]:
    return [*WIRE.asked(), *items, WIRE.user("Thanks.")]


def check(played: PlayedTurn, items: list[Any], rest: list[Any]) -> None:
    """Check that the provider sees its own bytes, and the rest behind them."""
    woven = played.next_request(sent(items))
    assert woven[: len(played.seen)] == played.seen
    assert list(map(json.loads, woven[len(played.seen) :])) == [*rest, WIRE.user("Thanks.")]


def without(items: list[Any], member: str) -> list[Any]:
    return [{name: value for name, value in item.items() if name != member} for item in items]


@pytest.mark.requirement("live:continuity-split", "live:continuity-bytes")
@settings(max_examples=60, deadline=None)
@given(
    st.lists(ROUND, min_size=1, max_size=4),
    st.builds(ModelReply, TEXT, THOUGHT),
    st.sampled_from(["verbatim", "no ids", "no reasoning", "references"]),
)
def test_woven_between_the_items_the_hidden_ones_are_what_the_provider_saw(
    rounds: list[ModelReply], last: ModelReply, form: str
) -> None:
    assume(not all(said.rejected for said in rounds))
    assume(last.text)
    played = play(WIRE, rounds, last)
    items = WIRE.answer([*rounds, last])
    own = len(WIRE.answer([last]))
    if form == "no ids":
        items = without(items, "id")
    elif form == "no reasoning":
        items = [item for item in items if item["type"] != "reasoning"]
        own = 1
    elif form == "references":
        assume(not any(said.rejected for said in rounds))  # Their items are in no record
        items = [{"type": "item_reference", "id": item["id"]} for item in items]
    check(played, items, items[len(items) - own :])


@pytest.mark.requirement("live:continuity-split")
def test_each_round_goes_behind_its_own_preamble() -> None:
    played = play(WIRE, TWO, LAST)
    woven = list(map(json.loads, played.next_request(sent(WIRE.answer([*TWO, LAST])))))
    round_types = ["reasoning", "message", "function_call", "function_call_output"]
    types = [item.get("type", "message") for item in woven]
    assert types == ["message", *round_types, *round_types, "reasoning", "message", "message"]


@pytest.mark.requirement("live:continuity-forms")
def test_messages_that_a_runner_joined_to_one_item_are_split() -> None:
    played = play(WIRE, TWO, LAST)
    joined = {"role": "assistant", "content": "Let me look.And there.\nNothing is there."}
    check(played, [joined], [{"role": "assistant", "content": LAST.text}])

    parts = [{"type": "output_text", "text": said.text} for said in (*TWO, LAST)]
    message = {"type": "message", "role": "assistant", "content": parts}
    check(played, [message], [{**message, "content": parts[2:]}])

    parts[1:] = [{**parts[1], "text": "And there. Nothing is there.", "annotations": []}]
    rest = [{**parts[1], "text": LAST.text}]
    check(played, [message | {"content": parts}], [{**message, "content": rest}])


@pytest.mark.requirement("live:continuity-rejected")
def test_what_a_rejected_round_said_and_thought_leaves_with_its_round() -> None:
    rounds = [
        ModelReply("Both.", "r", rejected=True),
        TWO[0],
        ModelReply("Or so.", "s", rejected=True),
    ]
    played = play(WIRE, rounds, LAST)
    items = WIRE.answer([*rounds, LAST])
    check(played, items, items[-2:])


@pytest.mark.requirement("live:continuity-rejected", "live:continuity-hides")
def test_where_nothing_is_woven_only_reasoning_of_the_rounds_leaves() -> None:
    rounds = [ModelReply("Both.", "r", rejected=True), ModelReply("Again.", "s", rejected=True)]
    played = play(WIRE, rounds, LAST)
    items = WIRE.answer([*rounds, LAST])
    assert list(map(json.loads, played.next_request(sent(items)))) == sent(
        [*without([items[1], items[3]], "id"), *items[4:]]
    )


@pytest.mark.requirement("live:continuity-split")
def test_items_of_hosted_tools_leave_where_the_record_has_them_and_images_stay() -> None:
    played = play(WIRE, [TWO[0]], LAST)
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    image = {"type": "image_generation_call", "id": "ig_1", "result": "aGk="}
    reasoning, message, *last = WIRE.answer([TWO[0], LAST])
    items = [search, image, reasoning, message, {**search, "id": "ws_2"}, *last]

    hidden = b",".join([dump(search), played.record.messages[0]])
    first = replace(played.record.shown[0], pieces=3, messages=4)
    record = replace(played.record, shown=(first,), messages=(hidden,))
    weaves = SPLIT_RULES.split(list(map(dump, items)), record)
    assert weaves is not None
    assert {place: weave.hidden for place, weave in weaves.items()} == {
        0: b"",
        2: b"",
        3: b"",
        4: hidden,
    }
    assert 1 not in weaves, "no record has an image"


@pytest.mark.requirement("live:continuity-split")
def test_rounds_behind_which_nothing_was_shown_take_the_place_of_the_last_item() -> None:
    """The turn failed behind its first preamble, and the runner goes on with a new message."""
    played = play(WIRE, [TWO[0]], ModelReply())
    items = WIRE.answer([TWO[0]])
    check(played, items, [])

    alone = SPLIT_RULES.split(list(map(dump, items)), played.record)
    assert alone is not None
    assert alone[1].hidden == played.record.hidden
    silent = replace(played.record, shown=(replace(played.record.shown[0], text=Stretch()),))
    assert SPLIT_RULES.split([], silent) is None, "there is no item to go to"


@pytest.mark.requirement("live:continuity-fallback", "live:continuity-hides")
def test_of_an_answer_that_is_not_what_was_shown_only_the_rounds_own_reasoning_leaves() -> None:
    played = play(WIRE, TWO, LAST)
    items = WIRE.answer([*TWO, LAST])
    items[1]["content"][0]["text"] = "Let me cook."
    woven = list(map(json.loads, played.next_request(sent(items))))
    assert [item.get("type", "message") for item in woven] == [
        "message",
        *["reasoning", "function_call", "function_call_output"] * 2,
        *["message", "message", "reasoning", "message", "message"],
    ]
    own = without([items[1], items[3]], "id")  # By its id, the API would miss the reasoning
    assert woven[7:] == sent([*own, *items[4:]])[1:]


@pytest.mark.requirement("live:continuity-fallback")
def test_reasoning_for_a_message_alone_leaves_with_it() -> None:
    first, second = WIRE.answer(TWO)[::2]
    call = {"type": "function_call", "id": "fc", "call_id": "c", "name": "f", "arguments": "{}"}
    message = WIRE.answer(TWO)[1]
    items = [first, message, second, call]
    assert SPLIT_RULES.without_text(b",".join(map(dump, items))) == b",".join(
        map(dump, [second, call])
    )


@pytest.mark.requirement("live:continuity-fallback")
def test_a_message_of_another_form_is_not_split() -> None:
    played = play(WIRE, TWO, LAST)
    message = dump({"role": "assistant", "content": {"text": "Let me look."}})
    assert SPLIT_RULES.split([message], played.record) is None


@pytest.mark.requirement("live:continuity-refused")
@pytest.mark.parametrize(
    ("message", "is_refused"),
    [
        ("Item 'rs_1' of type 'reasoning' was provided without its required following item.", True),
        ("Item 'msg_1' of type 'message' was provided without its 'reasoning' item.", False),
        ("The encrypted content gAAA could not be verified.", False),
    ],
)
def test_an_error_about_reasoning_that_came_back_is_known(message: str, is_refused: bool) -> None:
    error = {"error": {"message": message, "type": "invalid_request_error"}}
    assert WIRE.dialect.replay_rules.refuses_reasoning(dump(error)) is is_refused
    assert not WIRE.dialect.replay_rules.refuses_reasoning(b"<html>")
