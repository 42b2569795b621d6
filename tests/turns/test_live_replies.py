"""Any replies of a live turn: one stream that says what was shown, and requests as when buffered."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.turns.desk import KEYS, WIRES, Desk
from tests.turns.scripted import Part, Thought
from tests.turns.test_random_turns import CALL, ROUNDS, TOOLS, is_sound
from tests.wires import Body

NAMES = ("openai", "anthropic", "responses")
SECRET = KEYS["OPENAI_API_KEY"]
WORDS = st.sampled_from(["Well.", "Let me see. ", f"The key is {SECRET}.", SECRET, "sk-d", " "])
PARTS: st.SearchStrategy[list[Part]] = st.builds(
    lambda thought, words, calls: [*thought, *(words if calls else words or ["Done."]), *calls],
    st.lists(st.just(Thought("Hm.")), max_size=1),
    st.lists(WORDS, max_size=3),
    st.lists(CALL, max_size=3),
)
REPLIES = st.lists(PARTS, min_size=ROUNDS + 2, max_size=ROUNDS + 2)


async def check(name: str, replies: list[list[Part]], *, only_native: bool) -> None:
    with TemporaryDirectory() as home:
        desk = Desk(Path(home), WIRES[name], stream=True, live=True)
        try:
            await _check(desk, replies, desk.wire.choice("shell") if only_native else {})
        finally:
            await desk.mediator.close(0)


async def _check(desk: Desk, replies: list[list[Part]], choice: Body) -> None:
    desk.shows_preambles = False
    desk.grant(*TOOLS, max_rounds=ROUNDS)
    for parts in replies:
        desk.model_says(*parts)
    await desk.asks("Go", native=["shell", "edit"], **choice)
    if desk.status != 200:
        return

    assert SECRET.encode() not in desk.raw
    events = re.sub(rb"(?m)^: .*$", b"", desk.raw)
    assert all(entry["name"].replace(".", "__").encode() not in events for entry in TOOLS)
    recorded = json.dumps(desk.history()[-1]["response"]["json"]).encode()
    assert desk.wire.said(recorded) == desk.shown

    if desk.shown.calls and not all(is_sound(call.arguments) for call in desk.shown.calls):
        return
    before = _transcript(desk)
    desk.model.script.clear()
    desk.model_says("Done.")
    await (desk.runs_native("ok") if desk.shown.calls else desk.asks("Go on"))
    assert desk.status == 200
    is_plain = all(part != " " and SECRET not in str(part) for reply in replies for part in reply)
    if is_plain and not _was_corrected(desk):
        assert _transcript(desk)[: len(before)] == before


def _was_corrected(desk: Desk) -> bool:
    """Return whether the turn had replies or advice that later turns leave out."""
    entry = desk.history()[0]
    results = [call for past in entry["tool_trace"] for call in past["tool_calls"]]
    return not all(call.get("ran", True) for call in results)


def _transcript(desk: Desk) -> list[bytes]:
    body = msgspec.json.decode(desk.model.raw[-1], type=dict[str, msgspec.Raw])
    return [*map(bytes, msgspec.json.decode(body[desk.wire.TRANSCRIPT], type=list[msgspec.Raw]))]


@pytest.mark.requirement("live:any-replies")
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40)
@given(REPLIES, st.booleans())
def test_any_replies_are_one_answer(
    name: str, replies: list[list[Part]], only_native: bool
) -> None:
    """``only_native``: the model may call no managed tool, and yet may do so."""
    asyncio.run(check(name, replies, only_native=only_native))
