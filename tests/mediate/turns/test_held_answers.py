"""Live turns that fail after they showed something, and how their runners go on
(docs/spec/live.md sections 6 and 9).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from claw_mediate.core.http import Forward, RunnerResponse
from tests.turns.desk import WIRES, Desk, opened
from tests.turns.retrying import dies
from tests.turns.scripted import Thought
from tests.waiting import eventually_async
from tests.wires import Body, anthropic, openai, responses


@pytest.fixture(params=["openai", "anthropic", "responses"])
async def live(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Desk]:
    async with opened(Desk(tmp_path, WIRES[request.param], stream=True, live=True)) as desk:
        desk.service_answers("trade", {"order": 1}, {"order": 2})
        yield desk


async def fails_after_a_trade(desk: Desk) -> None:
    """Run a turn that says something, trades, and breaks off in its next reply."""
    desk.model_says("Let me buy that for you.", ("desk.trade", {}))
    desk.model_breaks_off("It was bought at fifty.", behind="bought")
    await desk.asks("Buy")
    assert b"bought" in desk.raw
    assert b"fifty" not in desk.raw


HELD = "Let me buy that for you.\n\nIt was bought"


def held(desk: Desk, text: str) -> Body:
    """Return an assistant's message that a runner makes of what it was shown."""
    if desk.wire is responses:
        return responses.message(text, "msg_held")
    return {"role": "assistant", "content": text}


def sent(desk: Desk) -> str:
    """Return the transcript of the last request to the model."""
    return str(desk.model.messages())


@pytest.mark.requirement("live:resumed")
async def test_the_same_request_is_resumed_and_shown_again(live: Desk) -> None:
    await fails_after_a_trade(live)
    assert live.logged_error() == "provider_broke_off"
    live.model_says("All is done.")
    await live.turn()
    assert live.services.calls == ["desk.trade"]
    shown = "Let me buy that for you. All is done."
    assert "".join(live.shown.text.split()) == shown.replace(" ", "")
    assert len({line["turn_id"] for line in live.history()}) == 1
    assert "bought" not in sent(live)


@pytest.mark.requirement("live:continuation")
@pytest.mark.parametrize("text", [HELD, HELD.replace("\n\n", " "), "Let me buy that for you."])
async def test_what_the_runner_holds_is_not_shown_again(live: Desk, text: str) -> None:
    await fails_after_a_trade(live)
    live.messages.append(held(live, text))
    live.model_says("All is done.")
    await live.turn()
    assert live.services.calls == ["desk.trade"]
    assert live.shown.text == "All is done."
    assert sent(live).count("Let me buy") == 1
    assert "bought" not in sent(live)
    assert len({line["turn_id"] for line in live.history()}) == 1


@pytest.mark.requirement("live:continuation")
async def test_the_rest_of_a_round_is_shown_to_a_runner_that_holds_its_beginning(
    live: Desk,
) -> None:
    await fails_after_a_trade(live)
    live.messages.append(held(live, "Let me buy"))
    live.model_says("All is done.")
    await live.turn()
    assert live.services.calls == ["desk.trade"]
    rest = "Let me buy that for you." if live.wire is responses else "that for you."
    assert "".join(live.shown.text.split()) == "".join(f"{rest} All is done.".split())
    assert sent(live).count("Let me buy") == 1


@pytest.mark.requirement("live:continuation-remembered")
@pytest.mark.parametrize("joins", [False, True])
async def test_the_turn_after_a_continued_one_has_each_round_once(live: Desk, joins: bool) -> None:
    """``joins``: the runner makes one message of both parts of the answer."""
    await fails_after_a_trade(live)
    live.messages.append(held(live, HELD))
    live.model_says("Let me look once more.", ("desk.balance", {}))
    live.model_says("All is done.")
    await live.turn()
    assert "".join(live.shown.text.split()) == "Letmelookoncemore.Allisdone."

    if live.wire is anthropic or (joins and live.wire is openai):
        # Anthropic takes no two messages of the model's in a row.
        whole = f"{HELD} {live.shown.text}" if joins else [*parts_of(live.messages[-2:])]
        live.messages[-2:] = [{"role": "assistant", "content": whole}]
    live.model_says("Yes.")
    await live.asks("Sure?")
    assert [call for call, _ in live.wire.answers(live.model.messages())] == ["call_1", "call_2"]
    assert sent(live).count("Let me buy") == 1
    assert sent(live).count("Let me look once more.") == 1
    assert sent(live).count("All is done.") == 1
    assert live.services.calls == ["desk.trade", "desk.balance"]


@pytest.mark.requirement("live:continuation-remembered")
@pytest.mark.parametrize("live", ["responses"], indirect=True)
@pytest.mark.parametrize("thinks", [False, True])
@pytest.mark.parametrize("lost", ["", "It was bought"])
async def test_a_runner_that_keeps_items_has_each_round_once(
    live: Desk, lost: str, *, thinks: bool
) -> None:
    """``lost``: what it has of the reply that broke off. ``thinks``: the first one has reasoning."""
    live.model_says(
        *([Thought("First.")] if thinks else []), "Let me buy that for you.", ("desk.trade", {})
    )
    live.model_breaks_off("It was bought at fifty.", behind="bought")
    await live.asks("Buy")
    live.messages.append(
        {
            "items": [
                *([responses.reasoning("First.")] if thinks else []),
                responses.message("Let me buy that for you.", "msg_1"),
                *([responses.message(lost, "msg_lost")] if lost else []),
            ]
        }
    )
    live.model_says("Let me look once more.", ("desk.balance", {}))
    live.model_says("All is done.")
    await live.turn()
    assert "".join(live.shown.text.split()) == "Letmelookoncemore.Allisdone."

    live.model_says("Yes.")
    await live.asks("Sure?")
    assert [call for call, _ in live.wire.answers(live.model.messages())] == ["call_1", "call_2"]
    for text in ("Let me buy", "Let me look once more.", "All is done."):
        assert sent(live).count(text) == 1
    assert "It was bought" not in sent(live)
    assert live.services.calls == ["desk.trade", "desk.balance"]


@pytest.mark.requirement("live:continuation-remembered")
@pytest.mark.parametrize(
    ("live", "joins"),
    [("openai", False), ("openai", True), ("anthropic", True), ("responses", False)],
    indirect=["live"],
)
async def test_a_call_of_the_runners_behind_a_continued_answer_has_the_rounds_before_it(
    live: Desk, joins: bool
) -> None:
    """Items are never joined, and Anthropic takes no two messages of the model's in a row."""
    await fails_after_a_trade(live)
    live.messages.append(held(live, HELD))
    live.model_says("Let me list.", ("shell", {}))
    live.native = ["shell"]
    await live.turn()
    if joins:
        rest = live.messages.pop()
        parts = [*parts_of([live.messages.pop(), rest])]
        whole = parts if live.wire is anthropic else f"{HELD} {live.shown.text}"
        live.messages.append(rest | {"content": whole})
    live.model_says("There.")
    await live.runs_native("a file")
    assert [call for call, _ in live.wire.answers(live.model.messages())] == ["call_1", "call_2"]
    assert live.services.calls == ["desk.trade"]


@pytest.mark.requirement("live:continuation-remembered")
@pytest.mark.parametrize("trades", [False, True])
@pytest.mark.parametrize(
    ("live", "joins"),
    [("openai", False), ("openai", True), ("anthropic", True), ("responses", False)],
    indirect=["live"],
)
async def test_the_beginning_of_a_first_reply_is_gone_on_with(
    live: Desk, joins: bool, trades: bool
) -> None:
    live.model_breaks_off("Let me buy that for you.", behind="buy")
    await live.asks("Buy")
    live.messages.append(held(live, "Let me buy"))
    if trades:
        live.model_says("Let me buy it.", ("desk.trade", {}))
    live.model_says("All is done.")
    await live.turn()
    said = "Let me buy it. All is done." if trades else "All is done."
    assert "".join(live.shown.text.split()) == said.replace(" ", "")
    assert len({line["turn_id"] for line in live.history()}) == 1

    if joins:
        parts = [*parts_of(live.messages[-2:])]
        whole = parts if live.wire is anthropic else f"Let me buy {live.shown.text}"
        live.messages[-2:] = [{"role": "assistant", "content": whole}]
    live.model_says("Yes.")
    await live.asks("Sure?")
    assert len(live.wire.answers(live.model.messages())) == trades
    if joins or live.wire is responses:  # A message of its own stays as it is
        assert sent(live).count("Let me buy") == 1
    assert live.services.calls == ["desk.trade"] * trades


@pytest.mark.requirement("live:settled-joined")
@pytest.mark.parametrize("then", ["", "call", "round"])
async def test_a_settled_answer_that_its_runner_joins_with_the_next_one_keeps_its_rounds(
    live: Desk, then: str
) -> None:
    """qwen-code asks for the rest, makes one answer of both, and drops what it asked with."""
    await fails_after_a_trade(live)
    asked = [*live.messages]
    live.messages += [held(live, HELD), live.wire.user("It was cut off. Resume.")]
    if then == "round":
        live.model_says("Let me see.", ("desk.balance", {}))
    live.native = ["shell"] * (then == "call")
    live.model_says("All is done.", *[("shell", {})] * (then == "call"))
    await live.turn()

    answer = live.messages.pop()
    live.messages = [*asked, *parts_joined(live, f"{HELD} {live.shown.text}", answer)]
    live.model_says("Yes.")
    await (live.runs_native("a file") if then == "call" else live.asks("Sure?"))
    ids = [call for call, _ in live.wire.answers(live.model.messages())]
    names = {"call": ["shell"], "round": ["desk.balance"]}.get(then, [])
    assert [live.model.names[call] for call in ids] == ["desk.trade", *names]


@pytest.mark.requirement("live:settled-joined")
async def test_an_answer_that_is_joined_and_breaks_off_again_has_its_rounds(live: Desk) -> None:
    await fails_after_a_trade(live)
    asked = [*live.messages]
    live.messages += [held(live, HELD), live.wire.user("It was cut off. Resume.")]
    live.model_breaks_off("bought at noon, or so.", behind="noon")
    await live.turn()
    live.messages = [*asked, held(live, f"{HELD} bought at noon,"), live.wire.user("Resume.")]
    live.model_says("All is done.")
    await live.turn()
    assert [call for call, _ in live.wire.answers(live.model.messages())] == ["call_1"]


def parts_joined(desk: Desk, text: str, answer: Body) -> list[Body]:
    """Return an answer with another text, as a runner keeps it that knows no items or blocks."""
    if desk.wire is responses:
        calls = [item for item in answer["items"] if item["type"] == "function_call"]
        return [held(desk, text), *calls]
    if desk.wire is anthropic:
        calls = [block for block in answer["content"] if block["type"] == "tool_use"]
        return [{"role": "assistant", "content": [{"type": "text", "text": text}, *calls]}]
    return [answer | {"content": text}]


def parts_of(messages: list[Body]) -> Iterator[Body]:
    for message in messages:
        content = message["content"]
        yield from [{"type": "text", "text": content}] if isinstance(content, str) else content


@pytest.mark.requirement("live:continuation-other")
@pytest.mark.parametrize("text", ["Let me sell", "Bought."])
async def test_another_text_is_no_part_of_that_turn(live: Desk, text: str) -> None:
    await fails_after_a_trade(live)
    live.messages.append(held(live, text))
    live.model_says("All is done.")
    await live.turn()
    assert len({line["turn_id"] for line in live.history()}) == 2


@pytest.mark.requirement("live:continuation-fails")
async def test_a_continued_turn_that_fails_again_is_continued_again(live: Desk) -> None:
    await fails_after_a_trade(live)
    live.messages.append(held(live, HELD))
    live.model_says("Let me look.", ("desk.balance", {}))
    live.model_breaks_off("The price is high.", behind="price")
    await live.turn()
    live.messages.append(held(live, "Let me look. The price"))
    live.model_says("All is done.")
    await live.turn()
    assert live.services.calls == ["desk.trade", "desk.balance"]
    assert live.shown.text == "All is done."
    assert len({line["turn_id"] for line in live.history()}) == 1


@pytest.mark.requirement("live:settled")
@pytest.mark.parametrize("text", [HELD, "Let me buy that for you.", "Let me buy that for you. It"])
async def test_new_words_behind_a_part_of_an_answer_begin_a_turn_that_knows_what_ran(
    live: Desk, text: str
) -> None:
    await fails_after_a_trade(live)
    live.messages.append(held(live, text))
    live.model_says("It was bought before.")
    await live.asks("You were cut off. Go on.")
    assert live.services.calls == ["desk.trade"]
    assert live.shown.text == "It was bought before."
    transcript = live.model.messages()
    assert len([*live.wire.answers(transcript)]) == 1
    assert sent(live).count("Let me buy") == 1
    assert ("It" in sent(live)) == ("It" in text)
    assert len({line["turn_id"] for line in live.history()}) == 2


@pytest.mark.requirement("live:settled-after-a-kill")
@pytest.mark.parametrize("words", ["", "Go on."])
async def test_a_turn_whose_process_died_is_known_by_what_it_recorded(
    live: Desk, words: str
) -> None:
    """``words``: the runner's own behind what it holds."""
    live.remembers()
    await fails_after_a_trade(live)
    forgets(live)
    dies(live)
    live.messages.append(held(live, HELD))
    live.model_says("All is done.")
    await (live.asks(words) if words else live.turn())
    assert live.services.calls == ["desk.trade"]
    assert live.shown.text == "All is done."
    assert len([*live.wire.answers(live.model.messages())]) == 1
    assert sent(live).count("Let me buy") == 1


@pytest.mark.requirement("live:continuation-done")
async def test_an_answer_that_was_not_delivered_is_given_without_what_the_runner_holds(
    live: Desk,
) -> None:
    live.listens = False
    live.model_says("Let me buy that for you.", ("desk.trade", {}))
    live.model_says("All is done.")
    await live.asks("Buy")
    live.messages = [live.messages[0], held(live, "Let me buy that for you.")]
    live.listens = True
    await live.turn()
    assert live.shown.text.strip() == "All is done."
    assert live.services.calls == ["desk.trade"]
    assert len(live.history()) == 1


PARTS = (
    "Let me buy",
    "Let me buy that for you.",
    "Let me buy that for you.\n\nAll is",
    "Let me buy that for you. All is",
)
"""Parts of an answer that a runner may have kept. Its first sentence stood before a trade."""


@pytest.fixture(params=["openai", "anthropic", "responses"])
async def buffered(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Desk]:
    async with opened(Desk(tmp_path, WIRES[request.param], stream=True)) as desk:
        yield desk


def keeps_a_part(desk: Desk, text: str) -> None:
    """Leave of the last answer a part in the runner's hands."""
    desk.messages = [desk.messages[0], held(desk, text)]
    desk.listens = True


def traded(desk: Desk) -> list[str]:
    """Return the ids of the calls that the last request to the model tells of."""
    return [call for call, _ in desk.wire.answers(desk.model.messages())]


@pytest.mark.requirement("live:settled-answered")
@pytest.mark.parametrize("listens", [False, True])
@pytest.mark.parametrize("text", PARTS)
async def test_new_words_behind_a_part_of_a_whole_answer_know_what_ran(
    live: Desk, text: str, *, listens: bool
) -> None:
    """``listens``: the kernel took all of the answer, and its runner kept a part."""
    live.listens = listens
    live.model_says("Let me buy that for you.", ("desk.trade", {}))
    live.model_says("All is done.")
    await live.asks("Buy")
    keeps_a_part(live, text)
    live.model_says("It was bought before.")
    await live.asks("Sure?")
    assert traded(live) == ["call_1"]
    assert sent(live).count("Let me buy") == 1
    assert ("All is" in sent(live)) == ("All is" in text)
    assert live.shown.text == "It was bought before."

    live.model_says("Yes.")
    await live.asks("Really?")
    assert traded(live) == ["call_1"], "the part is remembered"
    assert live.services.calls == ["desk.trade"]


@pytest.mark.requirement("live:settled-answered")
async def test_rounds_behind_what_the_runner_holds_are_told_too(live: Desk) -> None:
    live.listens = False
    live.model_says("Let me buy that for you.", ("desk.trade", {}))
    live.model_says("Let me look.", ("desk.balance", {}))
    live.model_says("All is done.")
    await live.asks("Buy")
    keeps_a_part(live, "Let me buy that for you.\n\nLet me")
    live.model_says("It was bought before.")
    await live.asks("Sure?")
    assert traded(live) == ["call_1", "call_2"]
    assert sent(live).count("Let me buy") == 1


@pytest.mark.requirement("live:settled-answered")
async def test_rounds_that_showed_nothing_are_told_behind_a_part_of_their_answer(
    live: Desk,
) -> None:
    live.listens = False
    live.model_says(("desk.trade", {}))
    live.model_says(("desk.balance", {}))
    live.model_says("All is done.")
    await live.asks("Buy")
    keeps_a_part(live, "All is")
    live.model_says("It was bought before.")
    await live.asks("Sure?")
    assert traded(live) == ["call_1", "call_2"]
    assert sent(live).count("All is") == 1


@pytest.mark.requirement("live:settled-answered")
async def test_the_text_of_an_answer_whose_call_was_not_kept_has_its_rounds(live: Desk) -> None:
    live.listens = False
    live.model_says("Let me buy that for you.", ("desk.trade", {}))
    live.model_says("Let me list.", ("shell", {}))
    await live.asks("Buy", native=["shell"])
    keeps_a_part(live, "Let me buy that for you. Let me list.")
    live.model_says("It was bought before.")
    await live.asks("No list. Was it bought?")
    assert traded(live) == ["call_1"]
    assert live.services.calls == ["desk.trade"]


@pytest.mark.requirement("live:settled-answered")
async def test_the_words_of_another_conversation_have_no_rounds(live: Desk) -> None:
    live.listens = False
    live.model_says("Let me buy that for you.", ("desk.trade", {}))
    live.model_says("All is done.")
    await live.asks("Buy")
    keeps_a_part(live, "Let me buy")
    live.messages[0] = live.wire.user("Sell")
    live.model_says("It was not bought.")
    await live.asks("Sure?")
    assert traded(live) == []


@pytest.mark.requirement("live:settled-answered")
@pytest.mark.parametrize("live", ["openai"], indirect=True)
async def test_a_shorter_answer_to_the_same_words_keeps_its_own_rounds(live: Desk) -> None:
    """The first answer hid nothing; the second one begins with the same words, and hid a trade."""
    live.model_says("Yes.")
    await live.asks("Buy")
    first = [*live.messages]
    live.messages = first[:1]
    live.model_says("Yes. ", ("desk.trade", {}))
    live.model_says("All is done.")
    await live.turn()
    live.messages = first
    live.model_says("No.")
    await live.asks("Sure?")
    assert traded(live) == []


@pytest.mark.requirement("live:settled-answered")
async def test_a_part_of_a_delivered_answer_begins_a_turn_that_knows_what_ran(live: Desk) -> None:
    live.model_says("Let me buy that for you.", ("desk.trade", {}))
    live.model_says("All is done.")
    await live.asks("Buy")
    keeps_a_part(live, "Let me buy that for you. All")
    live.model_says("is well.")
    await live.turn()
    assert traded(live) == ["call_1"]
    assert live.shown.text == "is well."
    assert live.services.calls == ["desk.trade"]


@pytest.mark.requirement("live:settled-answered")
@pytest.mark.parametrize("listens", [False, True])
async def test_a_part_of_a_buffered_answer_has_its_rounds(buffered: Desk, *, listens: bool) -> None:
    buffered.listens = listens
    buffered.model_says("Let me buy that for you.", ("desk.trade", {}))
    buffered.model_says("All is done.")
    await buffered.asks("Buy")
    keeps_a_part(buffered, "All is")
    buffered.model_says("It was bought before.")
    await buffered.asks("Sure?")
    assert traded(buffered) == ["call_1"]
    assert sent(buffered).count("All is") == 1
    assert buffered.services.calls == ["desk.trade"]


@pytest.mark.requirement("live:settled-answered")
async def test_the_rest_of_a_buffered_answer_is_given_to_who_holds_a_part(buffered: Desk) -> None:
    buffered.listens = False
    buffered.model_says(("desk.trade", {}))
    buffered.model_says("All is done.")
    await buffered.asks("Buy")
    keeps_a_part(buffered, "All is")
    await buffered.turn()
    rest = "All is done." if buffered.wire is responses else "done."
    assert buffered.shown.text.strip() == rest
    assert buffered.services.calls == ["desk.trade"]
    assert len(buffered.history()) == 1


@pytest.mark.requirement("live:settled-joined")
async def test_an_answer_that_breaks_off_again_and_again_has_all_rounds_in_the_next_turn(
    live: Desk,
) -> None:
    """qwen-code asks for the rest each time, and keeps one answer of all parts."""
    await fails_after_a_trade(live)
    asked, resume = [*live.messages], live.wire.user("It was cut off. Resume.")
    parts = [HELD, "Let me see. Bought at noon,", "One quote. It is seven"]
    live.messages = [*asked, held(live, parts[0]), resume]
    live.model_says("Let me see.", ("desk.balance", {}))
    live.model_breaks_off("Bought at noon, or so.", behind="noon")
    await live.turn()
    live.messages = [*asked, held(live, " ".join(parts[:2])), resume]
    live.model_says("One quote.", ("desk.quote", {}))
    live.model_breaks_off("It is seven or so.", behind="seven")
    await live.turn()
    assert traded(live) == ["call_1", "call_2", "call_3"]
    live.messages = [*asked, held(live, " ".join(parts)), resume]
    live.model_says("All is done.")
    await live.turn()
    assert traded(live) == ["call_1", "call_2", "call_3"]

    live.messages = [*asked, held(live, " ".join([*parts, "All is done."]))]
    live.model_says("Yes.")
    await live.asks("Sure?")
    assert traded(live) == ["call_1", "call_2", "call_3"]
    for words in ("Let me buy", "Let me see.", "One quote.", "All is done."):
        assert sent(live).count(words) == 1
    assert live.services.calls == ["desk.trade", "desk.balance", "desk.quote"]


def thought(desk: Desk) -> Body:
    """Return a message that has no more than the reasoning of the last stream's first reply."""
    if desk.wire is responses:
        items = [
            event["item"]
            for event in events_of(desk.raw)
            if event["type"] == "response.output_item.done" and event["item"]["type"] == "reasoning"
        ]
        return {"items": items[:1]}
    if desk.wire is openai:
        return {"role": "assistant", "content": "", "reasoning_content": "First."}
    deltas = [event.get("delta", {}) for event in events_of(desk.raw) if event.get("index") == 0]
    (signature,) = (each["signature"] for each in deltas if "signature" in each)
    block = {"type": "thinking", "thinking": "First.", "signature": signature}
    return {"role": "assistant", "content": [block]}


def events_of(stream: bytes) -> list[Body]:
    lines = stream.split(b"\n")
    return [json.loads(line[6:]) for line in lines if line.startswith(b"data: {")]


@pytest.mark.requirement("live:continuation-thought")
@pytest.mark.parametrize("dies_then", [False, True])
@pytest.mark.parametrize(
    ("live", "words"),
    [
        ("openai", ""),  # It takes no empty message before other ones
        ("anthropic", ""),
        ("anthropic", "Go on."),
        ("responses", ""),
        ("responses", "Go on."),
    ],
    indirect=["live"],
)
async def test_a_runner_that_has_kept_a_thought_only_goes_on_with_the_turn(
    live: Desk, words: str, *, dies_then: bool
) -> None:
    """``words``: the runner's own behind the thought. ``dies_then``: the proxy is killed."""
    live.remembers()
    live.more = {"store": False} if live.wire is responses else {}
    live.model_says(Thought("First."), ("desk.trade", {}))
    live.model_breaks_off(Thought("Second, and more."), "It was bought.", behind="econd")
    await live.asks("Buy", **live.more)
    if dies_then:
        forgets(live)
        dies(live)
    live.messages.append(thought(live))
    if words:
        live.messages.append(live.wire.user(words))
    live.model_says("All is done.")
    await live.turn()
    assert traded(live) == ["call_1"]
    assert live.services.calls == ["desk.trade"]
    assert live.shown.text == "All is done."
    assert len({line["turn_id"] for line in live.history()}) == 1 + bool(words)


@pytest.mark.requirement("live:settled-answered")
@pytest.mark.parametrize("listens", [False, True])
async def test_an_answer_of_which_its_runner_kept_nothing_has_its_rounds(
    live: Desk, *, listens: bool
) -> None:
    live.listens = listens
    live.model_says("Let me buy that for you.", ("desk.trade", {}))
    live.model_says("All is done.")
    await live.asks("Buy")
    live.messages, live.listens = live.messages[:1], True
    live.model_says("It was bought before.")
    await live.asks("Sure?")
    assert traded(live) == ["call_1"]
    assert live.services.calls == ["desk.trade"]


def with_much_more(stream: bytes) -> bytes:
    """Return a stream whose word comes in 32 large parts."""
    events = stream.split(b"\n\n")
    place = next((at for at, event in enumerate(events) if b"Much-more" in event), None)
    if place is None:
        return stream
    parts = [events[place].replace(b"Much-more", b"x" * (1 << 17))] * 32
    return b"\n\n".join([*events[:place], *parts, *events[place + 1 :]])


@pytest.mark.requirement("live:unread")
async def test_a_runner_that_takes_one_chunk_and_no_more_does_not_hold_its_turn(live: Desk) -> None:
    live.settings = replace(live.settings, live_max=0.05)
    live.open()
    live.messages.append(live.wire.user("Buy"))
    live.model_says("Let me buy that for you.", ("desk.trade", {}))
    live.model_says("Much-more")
    live.model.rewrite = with_much_more
    exchange = await live.mediator.exchange(live.admitted(), live.request())
    assert isinstance(exchange, RunnerResponse)
    chunks = aiter(exchange.chunks)
    await anext(chunks)
    await eventually_async(lambda: bool(live.told("live_cut")), "its turn is over")
    assert live.logged_error() == "runner_not_reading"
    await exchange.chunks.aclose()

    live.model.rewrite = lambda stream: stream
    live.model_says("All is done.")
    await live.turn()
    assert live.services.calls == ["desk.trade"]
    assert len({line["turn_id"] for line in live.history()}) == 1


@pytest.mark.requirement("live:settled-answered")
async def test_an_answer_that_is_given_to_longer_words_has_its_rounds_behind_them(
    live: Desk,
) -> None:
    """OpenClaw adds a note to the user's words when it asks again, and keeps it."""
    live.remembers()
    live.listens = False
    live.model_says("Let me buy.", ("desk.trade", {}))
    live.model_says("Done.")
    await live.asks("Buy")
    await live.mediator.close(0)  # Nobody delivers the answer any more.
    live.open()
    live.messages = [live.wire.user("Buy\n\n[Queued user message] Continue the current task")]
    live.listens = True
    await live.turn()
    assert len(live.history()) == 1, "the recorded answer"
    live.model_says("Yes.")
    await live.asks("Sure?")
    assert traded(live) == ["call_1"]
    assert sent(live).count("Let me buy.") == 1


TITLE = "You are a title generator. You output ONLY a thread title."


@pytest.mark.requirement("live:continuity-hides")
@pytest.mark.parametrize("live", ["anthropic", "responses"], indirect=True)
@pytest.mark.parametrize("thinks", [False, True])
async def test_a_side_request_has_no_reasoning_of_hidden_rounds(
    live: Desk, *, thinks: bool
) -> None:
    """It gets no rounds, and a provider refuses their reasoning without them."""
    first, last = ([Thought(each)] if thinks else [] for each in ("First.", "Second."))
    live.model_says(*first, "Let me buy that for you.", ("desk.trade", {}))
    live.model_says(*last, "All is done.")
    await live.asks("Buy", **({"store": False} if live.wire is responses else {}))
    live.messages.append(live.wire.user("Title?"))
    live.more["system" if live.wire is anthropic else "instructions"] = TITLE

    request = live.request()
    forward = await live.mediator.exchange(live.admitted(), request)
    assert isinstance(forward, Forward)
    assert live.interventions()[-1] == "housekeeping:opencode-title"
    if not thinks:
        assert forward.body is None, "it goes byte for byte"
        return

    assert forward.body is not None
    asked, going = json.loads(request.body), json.loads(forward.body)
    assert "First." in str(asked)
    assert "First." not in str(going)
    assert "Second." in str(going), "it is the answer's own"
    for text in ("Let me buy that for you.", "All is done."):
        assert str(going).count(text) == 1


def forgets(desk: Desk) -> None:
    """Leave of a turn what a process leaves that was killed in its second reply."""
    with closing(sqlite3.connect(desk.settings.state.shown, autocommit=True)) as database:
        database.execute("UPDATE turns SET state = 'running'")
        database.execute("DELETE FROM steps WHERE place = -2")
        database.execute("DELETE FROM kept")
