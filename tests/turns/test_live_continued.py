"""Turns that failed and were answered later: each hidden round is in a later request once
(docs/spec/live.md section 6).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from tests.turns.desk import WIRES, Desk, opened
from tests.turns.retrying import failed_after_a_trade
from tests.wires import Body, anthropic, anthropic_rules, responses

NAMES = ("openai", "anthropic", "responses")


@pytest.fixture(params=NAMES)
async def live(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Desk]:
    """Yield a desk for each dialect, whose agent's streams are live."""
    async with opened(Desk(tmp_path, WIRES[request.param], stream=True, live=True)) as desk:
        yield desk


def of_model(desk: Desk, text: str) -> Body:
    """Return a message of the model's as a runner keeps it that was told of an error."""
    if desk.wire is responses:
        return responses.message(text, f"msg_kept_{len(desk.messages)}")
    return {"role": "assistant", "content": text or "(no content)"}


def results(desk: Desk) -> list[str]:
    """Return the ids of the calls whose results are in the last request to the model."""
    return [call for call, _ in desk.wire.answers(desk.model.messages())]


@pytest.fixture
def taken_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Anthropic's rules take messages of the model's in a row, which its API joins.

    The proxy makes no such messages, but a runner may.
    """
    plain = anthropic_rules._taken

    def taken(messages: Sequence[Body]) -> list[Body]:
        joined: list[Body] = []
        for one in plain(messages):
            if joined and one["role"] == joined[-1]["role"]:
                both = [block for each in (joined.pop(), one) for block in blocks_of(each)]
                joined.append({"role": one["role"], "content": both})
            else:
                joined.append(one)
        return joined

    monkeypatch.setattr(anthropic_rules, "_taken", taken)


def blocks_of(message: Body) -> list[Body]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


@pytest.mark.requirement("live:failed-then-answered")
@pytest.mark.parametrize("text", ["", "Let me buy that for you. It was bought"])
@pytest.mark.usefixtures("taken_together")
async def test_a_message_of_the_failure_before_the_answer_doubles_no_round(
    live: Desk, text: str
) -> None:
    live.model_says("Let me buy that for you.", ("desk.trade", {}))
    live.model_breaks_off("It was bought at fifty.", behind="bought")
    await live.asks("Buy")
    live.model_says("All is done.")
    await live.turn()
    live.messages.insert(1, of_model(live, text))
    live.model_says("Yes.")
    await live.asks("Sure?")
    assert results(live) == ["call_1"]
    assert live.services.calls == ["desk.trade"]


@pytest.mark.requirement("live:failed-then-answered")
@pytest.mark.parametrize("text", ["", "Let me buy that for you. It was bought"])
@pytest.mark.usefixtures("taken_together")
async def test_messages_of_two_failures_before_the_answer_double_no_round(
    live: Desk, text: str
) -> None:
    live.model_says("Let me buy that for you.", ("desk.trade", {}))
    live.model_breaks_off("It was bought at fifty.", behind="bought")
    await live.asks("Buy")
    live.model_says("Let me look.", ("desk.balance", {}))
    live.model_breaks_off("You have less now.", behind="less")
    await live.turn()
    live.model_says("All is done.")
    await live.turn()
    live.messages[1:1] = [
        of_model(live, text),
        of_model(live, text and "Let me buy that for you. Let me look. You have less"),
    ]
    live.model_says("Yes.")
    await live.asks("Sure?")
    assert results(live) == ["call_1", "call_2"]
    assert live.services.calls == ["desk.trade", "desk.balance"]


@pytest.mark.requirement("live:failed-then-answered")
@pytest.mark.parametrize("joins", [False, True])
@pytest.mark.parametrize("unfinished", ["It was bought", ""])
async def test_a_turn_that_was_continued_twice_has_each_round_once(
    live: Desk, joins: bool, unfinished: str
) -> None:
    """``joins``: the runner makes one message of all parts of the answer.

    ``unfinished``: what it keeps of the first reply that broke off.
    """
    live.model_says("Let me buy that for you.", ("desk.trade", {}))
    live.model_says("Let me look.", ("desk.balance", {}))
    live.model_breaks_off("It was bought at fifty.", behind="bought")
    await live.asks("Buy")
    holds(live, "Let me buy that for you.", "Let me look.", unfinished, joins=joins)
    live.model_says("One more look.", ("desk.quote", {}))
    live.model_breaks_off("You have less now.", behind="less")
    await live.turn()
    holds(live, "One more look.", "You have less", joins=joins)
    live.model_says("And the last.", ("desk.quote", {"n": 2}))
    live.model_says("All is done.")
    await live.turn()
    assert "".join(live.shown.text.split()) == "Andthelast.Allisdone."

    if live.wire is not responses:
        live.messages.pop()
        holds(live, live.shown.text, "", joins=joins)
    live.model_says("Yes.")
    await live.asks("Sure?")
    assert results(live) == ["call_1", "call_2", "call_3", "call_4"]
    said = str(live.model.messages())
    words = ("Let me buy", "Let me look.", "One more look.", "And the last.", "All is done.")
    assert [said.count(each) for each in words] == [1] * len(words)


def holds(desk: Desk, *texts: str, joins: bool) -> None:
    """Let the runner keep what it was shown since its last request.

    The last text is that of an unfinished reply; Codex keeps no such item. ``joins``: it makes one
    message, or block, of all that it has of the answer.
    """
    if desk.wire is responses:
        desk.messages += [of_model(desk, text) for text in texts[:-1]]
        return

    earlier = [one for one in desk.messages[1:] if one.get("role") == "assistant"]
    if desk.wire is anthropic:
        blocks = [block for one in earlier for block in blocks_of(one)]
        blocks += [{"type": "text", "text": text} for text in texts if text]
        if joins:
            blocks = [{"type": "text", "text": "\n\n".join(block["text"] for block in blocks)}]
        desk.messages[1:] = [{"role": "assistant", "content": blocks}]
        return

    text = "\n\n".join(filter(None, texts))
    if joins:
        text = "\n\n".join([*(one["content"] for one in earlier), text])
        del desk.messages[1:]
    desk.messages.append(of_model(desk, text))


@pytest.mark.requirement("live:failed-then-answered")
async def test_a_continued_turn_that_ends_with_a_native_call_has_each_round_once(
    live: Desk,
) -> None:
    live.model_says("Let me buy that for you.", ("desk.trade", {}))
    live.model_says("Let me look.", ("desk.balance", {}))
    live.model_breaks_off("It was bought at fifty.", behind="bought")
    await live.asks("Buy", native=["shell"])
    holds(live, "Let me buy that for you.", "Let me look.", "", joins=live.wire is anthropic)
    live.model_says("One more look.", ("desk.quote", {}))
    live.model_says("Listing.", ("shell", {"cmd": "ls"}))
    await live.turn()
    if live.wire is anthropic:
        held, rest = map(blocks_of, live.messages[-2:])
        live.messages[-2:] = [{"role": "assistant", "content": [*held, *rest]}]

    live.model_says("All is done.")
    await live.runs_native("a file")
    assert results(live) == ["call_1", "call_2", "call_3", "call_4"]
    said = str(live.model.messages())
    words = ("Let me buy", "Let me look.", "One more look.", "Listing.")
    assert [said.count(each) for each in words] == [1] * len(words)


@pytest.mark.requirement("live:failed-then-answered")
@pytest.mark.usefixtures("taken_together")
async def test_an_empty_message_of_a_buffered_failure_doubles_no_round(desk: Desk) -> None:
    await failed_after_a_trade(desk)
    desk.model_says("All is done.")
    await desk.turn()
    desk.messages.insert(1, of_model(desk, ""))
    desk.model_says("Yes.")
    await desk.asks("Sure?")
    assert results(desk) == ["call_1"]
    assert desk.services.calls == ["desk.trade"]


@pytest.mark.requirement("continuity:placeholders")
@pytest.mark.parametrize(
    "text",
    [
        (
            "[This turn failed before it completed. "
            "Do not redo its work without confirming with the user first.]"
        ),
        "[assistant turn failed before producing content]",
    ],
)
async def test_openclaws_words_for_a_failed_answer_have_the_rounds_of_that_turn(
    live: Desk, text: str
) -> None:
    """As OpenClaw 2026.9.6 sent it when its user went on behind an event that tells an error."""
    live.model_says("Let me buy.", ("desk.trade", {}))
    live.model_breaks_off("It was bought at fifty.", behind="bought")
    await live.asks("[Sat 2026-11-28 22:07 UTC] Buy")

    live.messages.append(of_model(live, text))
    live.model_says("Bought.")
    await live.asks("[Sat 2026-11-28 22:08 UTC] Go on")
    assert len(results(live)) == 1
    live.model_says("One.")
    await live.asks("[Sat 2026-11-28 22:09 UTC] How many?")
    assert len(results(live)) == 1
    assert live.services.calls == ["desk.trade"]
