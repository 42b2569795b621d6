"""Any model and any order of calls, over several turns: requests stay valid, and every dialect
draws the same picture.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.turns.desk import Desk, tool
from tests.turns.scripted import ExactName, Part, Thought
from tests.wires import Wire, anthropic, openai

WAYS: list[tuple[Wire, bool]] = [
    (openai, False),
    (openai, True),
    (anthropic, False),
    (anthropic, True),
]
TOOLS = (
    tool("balance"),
    tool("quote", schema={"type": "object", "properties": {"n": {"type": "integer"}}}),
    tool("trade", write=True),
    tool("end", write=True, **{"x-claw.terminalOnSuccess": True}),
)
ROUNDS = 3

OFFERED = ("desk.balance", "desk.quote", "desk.trade", "desk.end", "desk.typo", "shell", "edit")
NAME = st.sampled_from(
    [*OFFERED, ExactName("desk.balance"), ExactName("multi.tool use"), ExactName("")]
)
ARGUMENTS = st.sampled_from(
    ["{}", '{"n": 1}', '{"n": 1.0}', '{"n": "x"}', '{"n":', "[]", '{"n": 1, "n": 2}']
)
type Reply = tuple[list[Part], bool]
type Turns = list[list[Reply]]
CALL = st.tuples(NAME, ARGUMENTS)
WORDS = st.sampled_from(["Well.", "Let me see. "])
REPLY: st.SearchStrategy[Reply] = st.tuples(
    st.builds(
        lambda thought, words, calls: [*thought, *(words if calls else words or ["Done."]), *calls],
        st.lists(st.just(Thought("Hm.")), max_size=1),
        st.lists(WORDS, max_size=1),
        st.lists(CALL, max_size=4),
    ),
    st.sampled_from([False, False, False, True]),
)
TURNS = st.lists(st.lists(REPLY, min_size=ROUNDS + 2, max_size=ROUNDS + 2), min_size=1, max_size=4)


async def played(desk: Desk, turns: Turns) -> list[str]:
    """Return each turn's picture.

    Native calls are answered; a call that the runner could not read ends the conversation.
    """
    desk.grant(*TOOLS, max_rounds=ROUNDS)
    pictures: list[str] = []
    for replies in turns:
        desk.model.script.clear()
        for parts, cut in replies:
            desk.model_says(*parts, cut=cut)
        handed = bool(pictures) and bool(desk.answer.calls)
        pictures.append(
            await (
                desk.runs_native("ok") if handed else desk.asks("Go on", native=["shell", "edit"])
            )
        )
        if desk.status != 200 or not all(is_sound(call.arguments) for call in desk.answer.calls):
            break
    return pictures


def is_sound(arguments: str) -> bool:
    """Return True if a runner can read a call's arguments and send the call back."""
    return arguments.endswith("}")


async def everywhere(turns: Turns) -> list[list[str]]:
    pictures = []
    for wire, stream in WAYS:
        with TemporaryDirectory() as home:
            desk = Desk(Path(home), wire, stream=stream)
            try:
                pictures.append(await played(desk, turns))
            finally:
                await desk.mediator.close(0)
    return pictures


@pytest.mark.requirement("transcript:valid")
@settings(max_examples=60)
@given(TURNS)
def test_whatever_a_model_calls_every_request_is_valid_and_every_dialect_draws_the_same(
    turns: Turns,
) -> None:
    first, *others = asyncio.run(everywhere(turns))
    assert others == [first] * 3
