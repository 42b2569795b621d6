"""Hidden rounds of live turns in later requests, also where their record is gone or too long."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from claw_mediate.core.continuity import Evidence
from claw_mediate.core.reinjection import Reinjection, plan_reinjection
from claw_mediate.core.shown import LiveRecord, hides_key, live_name
from claw_mediate.core.split import leave_out_unexplained, summarize_record, weave_rounds
from claw_mediate.core.weave import Insert, Replace, Weaves
from claw_mediate.dialects.bodies import insert_messages
from claw_state.continuity import Anchor, StoredRounds
from tests.mediate.live_turns import Anthropic, Chat, ModelReply, PlayedTurn, Responses, dump, play

TWO = [ModelReply("Let me look.", "first"), ModelReply("And there.", "second")]
LAST = ModelReply("Nothing is there.", "third")
WIRES = [Chat(), Anthropic(), Responses()]
LIVE = pytest.mark.parametrize("wire", WIRES, ids=lambda wire: type(wire).__name__)


def stored(played: PlayedTurn, messages: bytes, *, evicted: bool = False) -> StoredRounds:
    name = live_name(played.wire.dialect.name)
    names = (*played.anchor.names, *map(hides_key, played.record.signed))
    anchor = Anchor(
        f"{name}:{played.anchor.key}",
        played.anchor.before,
        names=tuple(f"{name}:{each}" for each in names),
    )
    return StoredRounds(1, anchor, "", messages, evicted)


def plan_of(
    played: PlayedTurn, messages: list[Any], *known: StoredRounds
) -> tuple[Reinjection, Evidence, list[bytes]]:
    """Return the plan of a request's rounds, as ``turns.continuity`` makes it."""
    dialect = played.wire.dialect
    evidence = dialect.read_request(played.wire.request(messages)).evidence
    live = live_name(dialect.name)
    anchors = {index: replace_keys(anchor, live) for index, anchor in evidence.anchors.items()}
    gaps = {index: replace_keys(anchor, live) for index, anchor in evidence.gaps.items()}
    own = replace(evidence, anchors=anchors, gaps=gaps)
    summarize = partial(summarize_record, summarize=dialect.summarize, rules=dialect.split_rules)
    return plan_reinjection(own, known, "", summarize), own, list(map(dump, messages))


def replace_keys(anchor: Anchor, live: str) -> Anchor:
    names = tuple(f"{live}:{name}" for name in anchor.names)
    return Anchor(f"{live}:{anchor.key}", anchor.before, names=names)


def woven(
    played: PlayedTurn, messages: list[Any], *known: StoredRounds
) -> tuple[Weaves, list[Any]]:
    """Return the weaves of a request, and the transcript that its provider gets."""
    plan, evidence, raw = plan_of(played, messages, *known)
    weaves = weave_rounds(plan, evidence, lambda: raw, played.wire.dialect.split_rules)
    array = b"[" + b",".join(raw) + b"]"
    return weaves, json.loads(insert_messages(array, weaves))


def sent(played: PlayedTurn) -> list[Any]:
    wire = played.wire
    return [*wire.asked(), *wire.answer([*TWO, LAST]), wire.user("Thanks.")]


def reasoning_of(transcript: list[Any]) -> list[str]:
    """Return whose reasoning a transcript has, in order."""
    words = json.dumps(transcript)
    return [word for word in ("first", "second", "third") if f'"{word}"' in words]


@pytest.mark.requirement("live:continuity-hides")
@pytest.mark.parametrize("wire", WIRES[1:], ids=lambda wire: type(wire).__name__)
def test_signed_reasoning_of_rounds_that_were_evicted_leaves_the_runners_message(
    wire: Chat,
) -> None:
    played = play(wire, TWO, LAST)
    messages = sent(played)
    _, transcript = woven(played, messages, stored(played, b"", evicted=True))
    assert json.dumps(transcript).count("signature") + json.dumps(transcript).count("rs_") == 1
    texts = [said.text for said in (*TWO, LAST)]
    words = json.dumps(transcript)
    assert all(text in words for text in texts), "what was said stays"

    unknown, same = woven(played, messages)
    assert (unknown, same) == ({}, messages), "without any memory nothing is known of it"


@LIVE
@pytest.mark.requirement("live:continuity-fallback", "live:continuity-hides")
def test_rounds_that_were_shortened_go_before_the_answer_without_their_text(wire: Chat) -> None:
    played = play(wire, TWO, LAST)
    text = b"x" * 300_000
    match wire:
        case Responses():
            more = b'{"type":"function_call_output","call_id":"call_2","output":"%b"}' % text
        case Anthropic():
            block = b'{"type":"tool_result","tool_use_id":"toolu_2","content":"%b"}' % text
            more = b'{"role":"user","content":[%b]}' % block
        case _:
            more = b'{"role":"tool","tool_call_id":"call_2","content":"%b"}' % text
    first, second = played.record.messages
    one, two = played.record.shown
    longer = replace(two, messages=two.messages + 1)
    record = LiveRecord((one, longer), (first, b",".join([second, more])))

    weaves, transcript = woven(played, sent(played), stored(played, record.write()))
    assert len(weaves[1].hidden) < 5000
    assert b"claw" not in weaves[1].hidden
    words = json.dumps(transcript)
    assert [words.count(said.text) for said in (*TWO, LAST)] == [1, 1, 1]


@LIVE
@pytest.mark.requirement("live:continuity-record")
@pytest.mark.parametrize("record", [b"{}", b'{"claw":"live","shown":[]},{}', b'{"role":"tool"}'])
def test_a_record_that_can_not_be_read_is_never_sent(wire: Chat, record: bytes) -> None:
    played = play(wire, TWO, LAST)
    weaves, _ = woven(played, sent(played), stored(played, record))
    assert all(weave.hidden == b"" for weave in weaves.values())


@LIVE
@pytest.mark.requirement("live:continuity-anchor")
def test_where_the_runner_dropped_what_was_shown_the_rounds_keep_their_text(wire: Chat) -> None:
    played = play(wire, TWO, ModelReply())
    messages = [*wire.asked(), wire.user("And now?")]
    played.anchor = Anchor("text:x", played.anchor.before)
    plan, evidence, raw = plan_of(played, messages)
    gap = evidence.gaps[1]
    known = replace_stored(stored(played, played.record.write()), gap.key)
    weaves, _ = woven(played, messages, known)
    assert weaves == {1: Insert(played.record.hidden)}
    del plan, raw


def replace_stored(rounds: StoredRounds, key: str) -> StoredRounds:
    anchor = Anchor(key, rounds.anchor.before, names=rounds.anchor.names)
    return StoredRounds(rounds.id, anchor, rounds.session, rounds.messages, rounds.evicted)


@LIVE
@pytest.mark.requirement("live:continuity-split", "live:continuity-bytes")
def test_two_live_turns_in_one_conversation_are_each_woven(wire: Chat) -> None:
    first = play(wire, TWO, LAST)
    saids = [ModelReply("Once more.", "fourth"), ModelReply("It is here now.", "fifth")]
    other = type(wire)("b")
    second = play(other, saids[:1], saids[1])
    before = wire.dialect.read_request(wire.request(sent(first))).evidence.before
    second.anchor = replace(second.anchor, before=before)
    messages = [*sent(first), *other.answer(saids), wire.user("Good.")]
    later = StoredRounds(2, stored(second, b"").anchor, "", second.record.write())
    known = [stored(first, first.record.write()), later]
    weaves, transcript = woven(first, messages, *known)
    hidden = b",".join(weaves[index].hidden for index in sorted(weaves) if weaves[index].hidden)
    assert hidden == first.record.hidden + b"," + second.record.hidden
    words = json.dumps(transcript)
    texts = ("Let me look.", "And there.", LAST.text, "Once more.", "It is here now.")
    assert [words.count(text) for text in texts] == [1] * 5
    assert sorted(texts, key=words.index) == list(texts), "in the order in which they were said"


@pytest.mark.requirement("live:continuity-refused")
def test_a_second_try_goes_without_thinking_that_no_memory_explains() -> None:
    wire = Anthropic()
    played = play(wire, TWO, LAST)
    foreign = {"type": "thinking", "thinking": "?", "signature": "foreign"}
    said = {"type": "text", "text": "I was said elsewhere."}
    messages = [
        wire.user("Zero?"),
        {"role": "assistant", "content": [foreign, said]},
        *sent(played),
        {"role": "assistant", "content": [foreign]},
        wire.user("Go on."),
    ]
    known = stored(played, played.record.write())
    plan, evidence, raw = plan_of(played, messages, known)
    rules = wire.dialect.split_rules
    weaves = weave_rounds(plan, evidence, lambda: raw, rules)
    again = leave_out_unexplained(weaves, plan, evidence, lambda: raw, rules)
    changed = {index: weave for index, weave in again.items() if weave != weaves.get(index)}
    assert changed == {
        1: Replace(b"", dump({"role": "assistant", "content": [said]})),
        5: Replace(b"", b""),
    }
    array = b"[" + b",".join(raw) + b"]"
    assert reasoning_of(json.loads(insert_messages(array, again))) == ["first", "second", "third"]

    plain = plan_of(played, sent(played), known)
    explained = weave_rounds(plain[0], plain[1], lambda: plain[2], rules)
    same = leave_out_unexplained(explained, plain[0], plain[1], lambda: plain[2], rules)
    assert same == explained, "there is nothing to try"


@pytest.mark.requirement("live:continuity-refused")
def test_items_that_unexplained_reasoning_led_to_lose_their_ids() -> None:
    wire = Responses()
    played = play(wire, TWO, LAST)
    messages = sent(played)
    plan, evidence, raw = plan_of(played, messages)
    again = leave_out_unexplained({}, plan, evidence, lambda: raw, wire.dialect.split_rules)
    assert [index for index, weave in again.items() if weave == Replace(b"", b"")] == [1, 3, 5]
    rests = [weave.rest for weave in again.values() if isinstance(weave, Replace) and weave.rest]
    assert ["id" in json.loads(rest) for rest in rests] == [False] * 3
