"""Turns with hidden rounds, and what a later model call gets of them."""

from __future__ import annotations

import msgspec

from tests.turns.desk import Desk


class SentBody(msgspec.Struct):
    messages: list[msgspec.Raw] = []
    input: list[msgspec.Raw] = []


async def said(desk: Desk, question: str, tool: str, answer: str) -> None:
    """Run a turn with one hidden round."""
    desk.model_says((tool, {}))
    desk.model_says(answer)
    await desk.asks(question)


async def told(desk: Desk, question: str = "Sure?") -> list[str]:
    """Run another turn; return the names of the hidden calls that its model gets."""
    desk.model_says("Yes.")
    await desk.asks(question)
    return desk.wire.called(desk.model.bodies[-1])


def sent(raw: bytes) -> list[bytes]:
    """Return the bytes of each message: the messages of one request must begin
    those of the next, for prompt caches.
    """
    request = msgspec.json.decode(raw, type=SentBody)
    return [bytes(message) for message in request.messages or request.input]
