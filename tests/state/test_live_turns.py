"""Live turns that fail at one process, and whose runners go on at another one that has the same
state (docs/spec/live.md sections 6 and 9).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from claw_mediate.core.held_text import MAX_SHOWN_BYTES
from claw_mediate.turns.checkpoint import SHOWN_STEP
from claw_state.url import File, Place
from tests.state.server import SharedState
from tests.turns.desk import WIRES, Desk, opened
from tests.wires import Body, responses

STATES = ("sqlite", "valkey")
PROTOCOLS = ("openai", "anthropic", "responses")
FIRST = "Let me buy that for you."
HALF = "It was bought"


@pytest.fixture(params=[f"{state} {wire}" for state in STATES for wire in PROTOCOLS])
async def desk(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Desk]:
    """Yield a desk for each state and protocol."""
    state, protocol = request.param.split()
    async with opened(Desk(tmp_path, WIRES[protocol], stream=True, live=True)) as made:
        place: Place = File(str(tmp_path / "state.db"))
        if state == "valkey":
            server: SharedState = request.getfixturevalue("shared")
            place = server.place
        made.settings = replace(made.settings, state=place)
        made.service_answers("trade", {"order": 1}, {"order": 2})
        made.open()
        yield made


async def fails(desk: Desk, reply: str = f"{HALF} at fifty.", behind: str = "bought") -> None:
    """Run a turn that trades and breaks off in its next reply; go on at another process."""
    desk.model_says(FIRST, ("desk.trade", {}))
    desk.model_breaks_off(reply, behind=behind)
    await desk.asks("Buy")
    assert behind.encode() in desk.raw
    desk.open()
    desk.model_says("All is done.")


def held(desk: Desk, text: str) -> Body:
    """Return an assistant's message that a runner makes of what it was shown."""
    if desk.wire is responses:
        return responses.message(text, "msg_held")
    return {"role": "assistant", "content": text}


def turns(desk: Desk) -> int:
    return len({line["turn_id"] for line in desk.history()})


def sent(desk: Desk) -> str:
    """Return the transcript of the last request to the model."""
    return str(desk.model.messages())


def assert_traded_once(desk: Desk) -> None:
    assert desk.services.calls == ["desk.trade"]
    assert [call for call, _ in desk.wire.answers(desk.model.messages())] == ["call_1"]
    assert sent(desk).count(FIRST) == 1


@pytest.mark.requirement("live:goes-on-elsewhere")
async def test_the_same_request_is_resumed_at_another_process(desk: Desk) -> None:
    await fails(desk)
    await desk.turn()
    assert "".join(desk.shown.text.split()) == "".join(f"{FIRST}All is done.".split())
    assert HALF not in sent(desk)
    assert turns(desk) == 1
    assert_traded_once(desk)


@pytest.mark.requirement("live:goes-on-elsewhere")
@pytest.mark.parametrize("text", [f"{FIRST}\n\n{HALF}", FIRST])
async def test_what_the_runner_holds_is_not_shown_again_at_another_process(
    desk: Desk, text: str
) -> None:
    await fails(desk)
    desk.messages.append(held(desk, text))
    await desk.turn()
    assert desk.shown.text == "All is done."
    assert HALF not in sent(desk)
    assert turns(desk) == 1
    assert_traded_once(desk)


@pytest.mark.requirement("live:goes-on-elsewhere")
async def test_words_behind_the_users_resume_the_turn_at_another_process(desk: Desk) -> None:
    await fails(desk)
    desk.messages[-1] = desk.wire.user("Buy\n\n[Queued user message] Continue the current task")
    await desk.turn()
    assert "".join(desk.shown.text.split()) == "".join(f"{FIRST}All is done.".split())
    assert turns(desk) == 1
    assert_traded_once(desk)


@pytest.mark.requirement("live:goes-on-elsewhere")
async def test_new_words_behind_a_part_begin_a_turn_at_another_process_that_knows_what_ran(
    desk: Desk,
) -> None:
    await fails(desk)
    desk.messages.append(held(desk, f"{FIRST}\n\n{HALF}"))
    await desk.asks("You were cut off. Go on.")
    assert desk.shown.text == "All is done."
    assert HALF in sent(desk), "the user's words are about it"
    assert turns(desk) == 2
    assert_traded_once(desk)


@pytest.mark.requirement("live:goes-on-elsewhere", "live:settled-answered")
@pytest.mark.parametrize("is_delivered", [False, True])
@pytest.mark.parametrize("text", [FIRST, f"{FIRST}\n\nAll is"])
async def test_new_words_behind_a_part_of_a_whole_answer_know_what_ran_at_another_process(
    desk: Desk, text: str, *, is_delivered: bool
) -> None:
    desk.listens = is_delivered
    desk.model_says(FIRST, ("desk.trade", {}))
    desk.model_says("All is done.")
    await desk.asks("Buy")
    desk.listens = True
    desk.open()
    desk.messages = [desk.messages[0], held(desk, text)]
    desk.model_says("It was bought before.")
    await desk.asks("Sure?")
    assert turns(desk) == 2
    assert_traded_once(desk)
    assert ("All is" in sent(desk)) == ("All is" in text)


@pytest.mark.requirement("live:goes-on-elsewhere", "live:shown-record")
@pytest.mark.parametrize("desk", [f"{state} openai" for state in STATES], indirect=True)
async def test_of_a_long_text_the_first_64_kib_decide_at_another_process(desk: Desk) -> None:
    text = "Much was bought: " + "more," * 20_000
    await fails(desk, f"{text} and the end.", behind="the")
    turn_id = desk.history()[-1]["turn_id"]
    record = await desk.mediator.state.journal.call_record(turn_id, *SHOWN_STEP)
    assert record is not None
    assert len(record) == MAX_SHOWN_BYTES
    desk.messages.append(held(desk, f"{FIRST}\n\n{text[:90_000]}"))
    await desk.turn()
    assert desk.shown.text == "All is done."
    assert turns(desk) == 1
    assert_traded_once(desk)
