"""Runners that try again, and processes that die, at a desk."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing

from claw_mediate.core.http import RunnerResponse
from tests.turns.desk import Desk
from tests.waiting import happens


async def failed_after_a_trade(desk: Desk, words: str = "Buy") -> str:
    """Run a turn that trades and whose provider then fails; return its picture."""
    desk.service_answers("trade", {"order": 1}, {"order": 2})
    desk.model_says(("desk.trade", {"symbol": "X"}))
    desk.model_refuses(400, "invalid_request")
    return await desk.asks(words)


async def answer(desk: Desk) -> bytes:
    """Return the answer to one more runner that sends the same request."""
    exchange = await desk.mediator.exchange(desk.identity(), desk.request())
    assert isinstance(exchange, RunnerResponse)
    body = b"".join([chunk async for chunk in exchange.chunks])
    if exchange.on_delivered is not None:
        await exchange.on_delivered()
    return body


async def until_called(desk: Desk, *tools: str) -> None:
    await happens(lambda: set(tools) <= set(desk.services.calls), f"calls of {tools}")


def dies(desk: Desk) -> None:
    """Make the process of the running turn seem dead: only its records are known."""
    with closing(sqlite3.connect(desk.settings.state.shown, autocommit=True)) as database:
        database.execute(
            "UPDATE turns SET owner = 'elsewhere/1/life/0', seen = ?", (time.time() - 60,)
        )
    desk.services.gates.clear()
    desk.open()
