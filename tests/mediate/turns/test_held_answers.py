"""Live turns that fail after they showed something, and how their runners go on
(docs/spec/live.md sections 6 and 9).
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.turns.desk import WIRES, Desk, opened
from tests.turns.retrying import dies
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


def forgets(desk: Desk) -> None:
    """Leave of a turn what a process leaves that was killed in its second reply."""
    with closing(sqlite3.connect(desk.settings.state.shown, autocommit=True)) as database:
        database.execute("UPDATE turns SET state = 'running'")
        database.execute("DELETE FROM steps WHERE place = -2")
        database.execute("DELETE FROM kept")
