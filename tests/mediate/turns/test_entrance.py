"""The way into turns, where several requests come at once or one leaves on the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from claw_state.journal import PreviousAttempt, RequestFingerprint
from tests.turns.desk import WIRES, Desk, opened
from tests.wires import Body, responses


@pytest.fixture(params=["openai", "anthropic", "responses"])
async def live(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Desk]:
    async with opened(Desk(tmp_path, WIRES[request.param], stream=True, live=True)) as desk:
        desk.service_answers("trade", {"order": 1})
        yield desk


def held(desk: Desk, text: str) -> Body:
    """Return the message that a runner makes of what it was shown."""
    if desk.wire is responses:
        return responses.message(text, "msg_held")
    return {"role": "assistant", "content": text}


@pytest.mark.requirement("live:settled-left")
async def test_a_runner_that_leaves_while_a_failed_turn_is_settled_leaves_it_to_the_next(
    live: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next request comes to another process, which must not wait for the lease's end."""
    live.remembers()
    live.model_says("Let me buy that for you.", ("desk.trade", {}))
    live.model_breaks_off("It was bought at fifty.", behind="bought")
    await live.asks("Buy")
    live.messages += [held(live, "Let me buy that for you."), live.wire.user("Go on.")]

    taken = asyncio.Event()
    journal = live.mediator.state.journal
    resume = journal.resume

    async def resume_and_hang(past: PreviousAttempt, known_by: RequestFingerprint) -> bool:
        assert await resume(past, known_by)
        taken.set()
        await asyncio.Event().wait()
        raise AssertionError

    with monkeypatch.context() as patched:
        patched.setattr(journal, "resume", resume_and_hang)
        leaving = asyncio.ensure_future(live.turn())
        await taken.wait()
        leaving.cancel()
        await asyncio.wait([leaving])

    live.open()
    live.model_says("It was bought before.")
    async with asyncio.timeout(5):
        await live.turn()
    assert live.shown.text == "It was bought before."
    assert len(live.wire.answers(live.model.messages())) == 1
    assert live.services.calls == ["desk.trade"]
