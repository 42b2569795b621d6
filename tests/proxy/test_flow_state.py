"""The state of a flow belongs to that flow, and goes when nothing is left to do."""

from __future__ import annotations

import asyncio

import pytest

from claw_mediate.mitm import flow_state
from claw_mediate.mitm.flow_state import FlowRedaction, PendingRequest, state_of
from tests.proxy.looking import tflow


@pytest.mark.requirement("hidden:recorded")
def test_a_flow_of_a_file_shares_nothing_with_the_flow_of_its_id() -> None:
    live, loaded = tflow.tflow(), tflow.tflow()
    loaded.id, loaded.live = live.id, False
    flow_state.begin(live)
    flow_state.begin(loaded)
    state_of(live).awaited_turn = "turn_1"
    assert (state_of(live).is_recorded, state_of(loaded).is_recorded) == (False, True)
    assert flow_state.flows_awaiting("turn_1") == [live]


@pytest.mark.requirement("hidden:recorded")
def test_a_flow_that_is_sent_again_is_decided_about_anew() -> None:
    flow = tflow.tflow()
    state_of(flow).verdict, state_of(flow).runner_left = "forward", True
    flow.is_replay = "request"
    flow_state.begin(flow)
    assert state_of(flow) == flow_state.FlowState()


@pytest.mark.requirement("redaction:over")
async def test_a_state_goes_when_its_request_is_over_and_nothing_more_is_sent() -> None:
    flow = tflow.tflow()
    state = state_of(flow)
    pending = state.pending = PendingRequest(flow.client_conn.id)
    state.redaction = FlowRedaction()
    flow_state.end_pending(flow, state)
    assert not pending.done.done()
    pending.has_ended = True
    flow_state.end_pending(flow, state)
    await asyncio.wait_for(pending.done, 1)
    assert state_of(flow) is state
    state.redaction = None
    flow_state.release(flow, state)
    assert state_of(flow) is not state
