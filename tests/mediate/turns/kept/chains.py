"""Chains of kept responses at a desk of the Responses protocol."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from claw_mediate.core.http import Forward, RunnerResponse
from claw_state.ownership import KeptObject
from tests.turns.desk import Desk
from tests.wires import Body
from tests.wires.responses import response

once = pytest.mark.parametrize("codex", ["json"], indirect=True)
"""For what does not depend on how the answer is told."""


async def owned(desk: Desk, object_id: str) -> KeptObject:
    found = await desk.mediator.state.ownership.find(desk.agent, object_id)
    assert found is not None
    return found


async def chains(desk: Desk, words: str, previous: str, **more: Any) -> str:
    """Send only what is new, as a runner does that leaves the rest to the provider."""
    desk.messages = []
    return await desk.asks(words, **{"store": True, "previous_response_id": previous, **more})


def says(desk: Desk, response_id: str, *output: Body, **more: Any) -> None:
    desk.model_answers(
        json.dumps(response(*output, **{"id": response_id, "store": True, **more})).encode()
    )


async def asked(desk: Desk, body: Body | bytes) -> RunnerResponse | Forward:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return await desk.mediator.exchange(desk.identity(), replace(desk.request(), body=raw))


async def refused(desk: Desk, previous: str) -> str:
    exchange = await asked(
        desk, {"model": "gpt-test", "input": "Go on", "previous_response_id": previous}
    )
    assert isinstance(exchange, RunnerResponse)
    told = json.loads(b"".join([chunk async for chunk in exchange.chunks]))["error"]
    return f"{exchange.status} {told['code']}: {told['message']}"
