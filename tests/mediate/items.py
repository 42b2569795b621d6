"""Items of the Responses protocol: what a script gives as a response, and what the
desk's model was sent.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from claw_mediate.core.http import RunnerResponse
from tests.turns.desk import Desk
from tests.wires import Body
from tests.wires.responses import function_call, response

BALANCE = function_call("call_1", "desk__balance", "{}")
SEARCH = {
    "type": "web_search_call",
    "id": "ws_1",
    "status": "completed",
    "action": {"type": "search", "query": "NVDA"},
}
NEW = {"type": "hologram", "id": "ho_1", "beam": {"n": 9007199254740993}}
PATCH = {
    "type": "custom_tool_call",
    "id": "ctc_1",
    "call_id": "call_p",
    "name": "apply_patch",
    "input": "*** Begin Patch",
}


def answers(desk: Desk, *output: Body, **more: Any) -> None:
    desk.model_answers(json.dumps(response(*output, **more)).encode())


def sent(desk: Desk) -> list[Body]:
    """Return the items of the last request behind the user's first one."""
    return desk.model.messages()[1:]


def types(items: list[Body]) -> list[str]:
    return [item["type"] for item in items]


async def streamed(
    desk: Desk, called: str, opens: Callable[[bytes], bool]
) -> tuple[RunnerResponse, bytes]:
    """Send the desk's request; the called tool answers once ``opens`` is true of what has come.

    Return response and stream.
    """
    gate = desk.services.gates[called] = asyncio.Event()
    exchange = await desk.mediator.exchange(desk.identity(), desk.request())
    assert isinstance(exchange, RunnerResponse)
    chunks = b""
    async for chunk in exchange.chunks:
        chunks += chunk
        if opens(chunks):
            gate.set()
    return exchange, chunks
