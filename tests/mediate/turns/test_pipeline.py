"""Requests that are mediated, and those that pass as they are."""

from __future__ import annotations

import pytest
from inline_snapshot import snapshot

from tests.turns.desk import Desk


@pytest.mark.requirement("injection:tool-choice-none")
async def test_a_runner_that_wants_no_tools_gets_none_and_no_loop(desk: Desk) -> None:
    assert await desk.asks("Go", native=["shell"], **desk.wire.choice("none")) == snapshot("""\

cllama → model    the runner's request, as it is
""")
    assert desk.interventions() == ["tool_choice_none"]


@pytest.mark.requirement("injection:without-grants")
async def test_an_agent_without_tools_is_passed_through_unread(desk: Desk) -> None:
    desk.grant()
    assert await desk.asks("Go", native=["shell"], **desk.wire.choice("required")) == snapshot("""\

cllama → model    the runner's request, as it is
""")
    assert desk.interventions() == []


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
