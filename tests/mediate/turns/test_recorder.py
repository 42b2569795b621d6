"""Granted tools that the model was not offered: history has each with its reason."""

from __future__ import annotations

import pytest

from tests.turns.desk import Desk, tool


def withheld(desk: Desk) -> dict[str, str]:
    return {one["name"]: one["reason"] for one in desk.history()[-1]["tools_withheld"]}


@pytest.mark.requirement("history:withheld")
async def test_tools_without_room_and_tools_that_can_not_work_are_told_with_their_reasons(
    gpt: Desk,
) -> None:
    broken = tool("broken") | {"annotations": {"readOnly": "yes"}}
    gpt.grant(tool("balance"), broken, tool("quote"))
    gpt.model_says(("desk.balance", {}))
    gpt.model_says("Done.")
    await gpt.asks("Go", native=[f"own_{number}" for number in range(127)])
    told = withheld(gpt)
    assert told.pop("desk.broken").startswith("quarantined: annotations.readOnly: ")
    assert told == {"desk.quote": "over_limit"}
    assert gpt.history()[-1]["tools_offered"] == ["desk__balance"]


@pytest.mark.requirement("history:withheld")
async def test_a_turn_whose_model_was_shown_all_withholds_nothing(desk: Desk) -> None:
    desk.model_says(("desk.balance", {}))
    desk.model_says("Done.")
    await desk.asks("Go")
    assert withheld(desk) == {}
