"""The hidden rounds of a turn, found again by all that its runner may send back of the answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.turns.desk import WIRES, Desk, opened
from tests.wires import Body, responses


@pytest.fixture(params=["openai", "anthropic", "responses"])
async def live(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Desk]:
    async with opened(Desk(tmp_path, WIRES[request.param], stream=True, live=True)) as desk:
        desk.service_answers("balance", {"usd": 50})
        yield desk


def message(desk: Desk, text: str) -> Body:
    """Return an assistant's message of one text."""
    if desk.wire is responses:
        return responses.message(text, "msg_kept")
    return {"role": "assistant", "content": text}


async def results_later(desk: Desk) -> list[str]:
    """Return the ids of the calls whose results the next turn's request has."""
    desk.model_says("You are welcome.")
    await desk.asks("Thanks.")
    return [call for call, _ in desk.wire.answers(desk.model.messages())]


@pytest.mark.requirement("live:continuity-anchor")
@pytest.mark.parametrize("kept", ["all", "the last reply"])
async def test_an_answer_is_known_by_all_that_was_shown_and_by_its_last_reply(
    live: Desk, kept: str
) -> None:
    live.model_says("Let me look.", ("desk.balance", {}))
    live.model_says("You have fifty.")
    await live.asks("How much do I have?")
    if kept == "the last reply":
        live.messages[-1] = message(live, "You have fifty.")
    assert await results_later(live) == ["call_1"]


@pytest.mark.requirement("live:continuity-anchor")
@pytest.mark.parametrize("kept", ["Let me look.\n\nYou have", "Let me look. You have", ""])
async def test_a_turn_that_failed_is_known_by_what_it_has_shown_and_by_its_place(
    live: Desk, kept: str
) -> None:
    live.model_says("Let me look.", ("desk.balance", {}))
    live.model_breaks_off("You have fifty.", behind="have")
    await live.asks("How much do I have?")
    if kept:
        live.messages.append(message(live, kept))
    assert await results_later(live) == ["call_1"]
