"""The replay of a recorded turn, with numbers that no computer holds: a peer may say them, and
history has them verbatim.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from claw_contract.metadata import Metadata
from claw_contract.secret import Secret
from claw_mediate.agents.directory import Agent
from claw_mediate.dialects.openai import DIALECT
from claw_mediate.turns.replay import RecordedResponse, RecordedTurn, replay_turn
from tests.mediate.made import granted, limits

pytestmark = pytest.mark.requirement("web:replay")

AGENT = Agent(
    "a",
    Metadata(service="a", pod="p", type="generic", token=Secret("a:one")),
    (granted(),),
    limits(),
    "digest",
)


@pytest.mark.parametrize("odd", ["1e400", "9" * 5000])
@pytest.mark.parametrize("whole", [False, True], ids=["of a service", "as the model was told it"])
async def test_a_turn_is_replayed_whatever_number_a_peer_has_said(odd: str, whole: bool) -> None:
    calls = [{"id": "c1", "type": "function", "function": {"name": "desk__get", "arguments": "{}"}}]
    asked = {"messages": [{"role": "user", "content": "Go"}], "model": "m"}
    data = b'{"ok":true,"data":%b}' % odd.encode() if whole else odd.encode()
    trace = [{"round": 1, "wall_time_ms": 1, "tool_calls": [{"name": "desk.get"}]}]
    recording = RecordedTurn(
        {"turn_id": "t1", "tool_trace": trace},
        "/v1/chat/completions",
        json.dumps(asked).encode(),
        {1: _said({"content": None, "tool_calls": calls}), 2: _said({"content": "Done"})},
        {(1, "desk.get"): [_recorded(data, whole=whole)]},
    )
    again = await replay_turn(recording, AGENT, DIALECT)
    assert (again.status, again.missing) == (200, ())
    assert again.entry["tool_trace"][0]["tool_calls"][0]["result"]["data"] == odd


async def test_a_reply_that_flowed_for_longer_than_its_turn_may_take_costs_no_time_again() -> None:
    """The clock of a live turn stood still meanwhile: a round's time is that of the clock."""
    calls = [{"id": "c1", "type": "function", "function": {"name": "desk__get", "arguments": "{}"}}]
    flowed = _said({"content": None, "tool_calls": calls})._replace(latency_ms=1_200_000)
    recording = RecordedTurn(
        {
            "turn_id": "t1",
            "tool_trace": [{"round": 1, "wall_time_ms": 9, "tool_calls": [{"name": "desk.get"}]}],
        },
        "/v1/chat/completions",
        json.dumps({"messages": [{"role": "user", "content": "Go"}], "model": "m"}).encode(),
        {1: flowed, 2: _said({"content": "Done"})},
        {(1, "desk.get"): [_recorded(b"1")]},
    )
    again = await replay_turn(recording, AGENT, DIALECT)
    assert (again.status, again.missing) == (200, ())


async def test_a_tool_may_take_as_long_as_it_took_behind_a_reply_that_flowed() -> None:
    """Of a round's time, a flowing reply took only what its call left."""
    calls = [{"id": "c1", "type": "function", "function": {"name": "desk__get", "arguments": "{}"}}]
    brief = replace(AGENT, limits=limits(total_seconds=30.0, soft_seconds=25.0))
    took = 20_000
    call = {"name": "desk.get", "latency_ms": took}
    recording = RecordedTurn(
        {
            "turn_id": "t1",
            "tool_trace": [{"round": 1, "wall_time_ms": took + 500, "tool_calls": [call]}],
        },
        "/v1/chat/completions",
        json.dumps({"messages": [{"role": "user", "content": "Go"}], "model": "m"}).encode(),
        {
            1: _said({"content": None, "tool_calls": calls})._replace(latency_ms=1_200_000),
            2: _said({"content": "Done"}),
        },
        {(1, "desk.get"): [_recorded(b"1")._replace(latency_ms=took)]},
    )
    again = await replay_turn(recording, brief, DIALECT)
    assert (again.status, again.missing) == (200, ())
    assert again.entry["tool_trace"][0]["tool_calls"][0]["status"] == "ok"


def _said(message: dict[str, Any]) -> RecordedResponse:
    return _recorded(
        json.dumps({"choices": [{"message": {"role": "assistant", **message}}]}).encode()
    )


def _recorded(body: bytes, *, whole: bool = False) -> RecordedResponse:
    return RecordedResponse(200, "application/json", body, len(body), 1, whole)
