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
