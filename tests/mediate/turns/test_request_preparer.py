"""The tools that a request has when it is sent."""

from __future__ import annotations

import pytest

from tests.turns.desk import Desk


@pytest.mark.requirement("names:room")
async def test_managed_tools_without_room_are_left_out_from_the_end_and_told(
    gpt: Desk,
) -> None:
    gpt.model_says(("desk.balance", {}))
    gpt.model_says("Done.")
    await gpt.asks("Go", native=[f"own_{number}" for number in range(127)])
    assert [list(gpt.wire.tools(body))[127:] for body in gpt.model.bodies] == [
        ["desk__balance"]
    ] * 2
    left_out = next(
        event for event in gpt.events if event["intervention"] == "managed_tools_over_limit"
    )
    assert left_out["tools"] == ["desk.quote", "desk.trade"]
