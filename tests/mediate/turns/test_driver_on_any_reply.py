"""Any bytes of a provider, in either dialect: the turn ends within its budgets, and every request
is a valid conversation.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claw_mediate.core import tool_result
from claw_mediate.core.turn import turn
from claw_mediate.core.types import Deliver, Refuse, ToolCall, ToolResult, TurnLimits
from claw_mediate.dialects.streams import write_stream
from claw_mediate.providers.client import ProviderResponse
from claw_mediate.providers.failover import ModelCall, ModelResult, parse_response
from claw_mediate.turns.checkpoint import TurnCheckpoint
from claw_mediate.turns.context import PreparedRequest
from claw_mediate.turns.driver import TurnDriver, drive
from claw_mediate.turns.ports import Ports
from claw_state.journal import RequestFingerprint
from claw_state.lease import LeaseOwner
from claw_state.sqlite.connection import Database
from claw_state.sqlite.journal import SqliteJournal
from tests.mediate.any_reply import CATALOG, DIALECTS, WIRES, bodies
from tests.mediate.made import limits
from tests.wires import Body, Wire

LIMITS = st.builds(
    limits,
    max_rounds=st.integers(1, 4),
    soft_seconds=st.sampled_from([10.0, 90.0]),
    max_parallel=st.integers(1, 3),
    on_budget=st.sampled_from(["finalize", "error"]),
)


@dataclass
class Peers:
    """Provider and services at the ports of a turn, which answer at random."""

    data: st.DataObject
    wire: Wire
    limits: TurnLimits
    clock: float = 0.0
    asked: list[Body] = field(default_factory=list)
    ran: list[ToolCall] = field(default_factory=list)

    async def model(self, call: ModelCall) -> ModelResult:
        self.asked.append(json.loads(call.body))
        assert len(self.asked) <= self.limits.max_rounds + 2
        self.clock += self.data.draw(st.sampled_from([0.0, 0.0, 0.0, 20.0, 95.0]))
        status = self.data.draw(st.sampled_from([200] * 9 + [503]))
        return parse_response(
            ProviderResponse(status, "application/json", self.data.draw(bodies(self.wire))),
            call.read,
        )

    async def tools(self, call: ToolCall, _key: str, seconds: float) -> ToolResult:
        assert 0 < seconds <= self.limits.tool_seconds
        self.ran.append(call)
        status = self.data.draw(st.sampled_from([200, 200, 404, 503]))
        return tool_result.read_http_response(call, status, b'{"a": 1.0}', 10, 100)


@pytest.mark.requirement("loop:terminates-on-the-wire")
@pytest.mark.parametrize("name", WIRES)
@settings(max_examples=150)
@given(st.data(), LIMITS)
async def test_any_bytes_end_a_turn_and_never_spoil_the_conversation(
    name: str, data: st.DataObject, limits: TurnLimits
) -> None:
    dialect, wire = DIALECTS[name], WIRES[name]
    peers = Peers(data, wire, limits)
    asked = wire.request([wire.user("Go")], ["shell"], stream=True, more={"x_mine": 1.5})
    view = dialect.read_request(json.dumps(asked).encode())
    write = dialect.build_request(view, CATALOG)
    journal = SqliteJournal(Database(""), LeaseOwner.current())
    await journal.begin("turn_1", "analyst", RequestFingerprint("request", "", "", ""))
    tape = TurnCheckpoint(journal, "turn_1", pytest.fail, "first")
    prepared = PreparedRequest(CATALOG, lambda _: write)
    ports = Ports(peers.model, peers.tools, lambda: peers.clock)
    world = TurnDriver(dialect, prepared, ports, tape)
    try:
        outcome = await drive(turn(limits, 0.0), world)
    finally:
        await journal.close()
    for before, request in zip([None, *peers.asked], peers.asked, strict=False):
        sent = request[wire.TRANSCRIPT]
        assert sent[: len(before[wire.TRANSCRIPT])] == before[wire.TRANSCRIPT] if before else True
        assert request["x_mine"] == 1.5
        assert sent[0] == asked[wire.TRANSCRIPT][0]
        calls_and_answers(wire, request)
    if isinstance(outcome, Deliver):
        body = dialect.write_response(outcome.response, view, {}, terminal=outcome.terminal)
        wire.assembled(b"".join(write_stream(dialect, body, view)))
        assert outcome.terminal or {call.owner for call in outcome.response.calls} <= {"native"}
    else:
        assert isinstance(outcome, Refuse)
        assert outcome.status in (502, 503)
    assert all(call.owner == "managed" for call in peers.ran)


def calls_and_answers(wire: Wire, request: Body) -> None:
    """Check that each call is answered once, right after its message, by an id that
    is unique among the calls made there.
    """
    made: list[str] = []
    answered: list[str] = []
    for message in request[wire.TRANSCRIPT]:
        if wire.parts([message]) == ["assistant"]:
            if answered:
                assert answered == made
                made, answered = [], []
            made += calls(message)
            assert len(set(made)) == len(made)
        else:
            answered += [call_id for call_id, _ in wire.answers([message])]
    assert answered == made


def calls(message: Body) -> list[str]:
    """Return the ids of the calls in an assistant's message or item, in any protocol."""
    if message.get("type") == "function_call":
        return [message["call_id"]]
    content: Any = message["content"] if isinstance(message.get("content"), list) else []
    blocks = [
        block["id"]
        for block in content
        if isinstance(block, dict) and block.get("type") == "tool_use"
    ]
    return blocks + [call["id"] for call in message.get("tool_calls") or ()]
