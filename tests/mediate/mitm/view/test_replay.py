"""Flows of the view that can't be replayed, and why; whole replays are in ``tests/web``."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from mitmproxy import http
from mitmproxy.test import tflow

from claw_mediate.agents.directory import AgentDirectory
from claw_mediate.mitm.view import hidden_flows
from claw_mediate.mitm.view.replay import REPLAY_OF, NotReplayableError, replay


def of(**metadata: Any) -> http.HTTPFlow:
    made = tflow.tflow(resp=True)
    made.metadata |= {f"claw.{name}": value for name, value in metadata.items()}
    return made


@pytest.mark.requirement("web:replay")
@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({}, "this flow is no finished turn: it has no line of history"),
        ({"entry": "{"}, "this flow is no finished turn: it has no line of history"),
        ({"entry": "[1]"}, "this flow is no finished turn: it has no line of history"),
        ({"entry": 7}, "this flow is no finished turn: it has no line of history"),
        (
            {"entry": json.dumps({"delivery": "native"})},
            "this is a call that the runner made itself: no model was asked",
        ),
        (
            {"entry": json.dumps({"claw_id": "../\x1b[2J"})},
            "can be read in the context directory",
        ),
        ({"parent": "gone"}, "the runner's request that this flow is part of is not there"),
        ({"replay_of": "gone"}, "the runner's request that this flow is part of is not there"),
    ],
)
def test_what_can_not_be_replayed_is_told_in_one_line(
    tmp_path: Path, metadata: dict[str, Any], reason: str
) -> None:
    (tmp_path / "analyst").mkdir()
    flow = of(**metadata)
    with pytest.raises(NotReplayableError) as raised:
        asyncio.run(replay(flow, [flow], AgentDirectory(tmp_path)))
    assert reason in str(raised.value)
    assert str(raised.value).isprintable()


@pytest.mark.requirement("web:replay")
def test_a_hidden_request_and_a_replay_lead_to_the_turn_they_are_of(tmp_path: Path) -> None:
    """The refusal is that of the runner's flow, which has the line of history."""
    parent = of(entry=json.dumps({"delivery": "native"}))
    for name in (hidden_flows.PARENT, REPLAY_OF):
        part = of()
        part.metadata[name] = parent.id
        with pytest.raises(NotReplayableError, match="no model was asked"):
            asyncio.run(replay(part, [part, parent], AgentDirectory(tmp_path)))
