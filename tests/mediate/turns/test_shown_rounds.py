"""The record of what was shown of a turn's rounds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from claw_mediate.turns.shown_rounds import LostText, describe_shown
from tests.mediate.turns.streamed_turn import StreamedTurn


@pytest.mark.requirement("live:continuation-remembered")
@pytest.mark.parametrize("name", ["openai", "anthropic", "responses"])
async def test_a_reply_that_broke_off_is_a_stretch_without_messages(name: str) -> None:
    turn = StreamedTurn(name)
    await turn.is_hidden("One.")
    turn.stream.shown.known_rounds = 1
    await turn.is_hidden("Two.")
    context: Any = SimpleNamespace(dialect=turn.dialect, view=turn.view, turn_id="turn_1")

    record = describe_shown(
        context, turn.rounds, turn.stream.shown, "Three.", lost=LostText("It broke", 1)
    )
    assert [each.number for each in record.shown] == [1, 2, 2]
    assert [each.text.characters for each in record.shown] == [4, 7, 4]
    assert not record.shown[1].is_woven

    late = describe_shown(context, turn.rounds[1:], turn.stream.shown, "Three.")
    assert [each.number for each in late.shown] == [2]
