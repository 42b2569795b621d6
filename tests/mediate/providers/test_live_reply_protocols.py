"""Live replies of each protocol, cut at every event, and as long as they may be."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from claw_mediate.core.types import ModelResponse
from claw_mediate.dialects.anthropic.assemble import MessageAssembler
from claw_mediate.dialects.openai.assemble import ChatAssembler
from claw_mediate.dialects.responses.assemble import ResponseAssembler
from claw_mediate.dialects.streams import Assembler
from claw_mediate.providers.client import CutReply
from claw_mediate.providers.live_reply import LiveReply
from tests.mediate.any_reply import DIALECTS, WIRES
from tests.mediate.providers.crossroads import Crossroads
from tests.mediate.providers.live import (
    UNLIMITED,
    Sink,
    breaks_off,
    post,
    stream,
)
from tests.wires import MadeCall

ASSEMBLERS: dict[str, Callable[[], Assembler]] = {
    "openai": ChatAssembler,
    "anthropic": MessageAssembler,
    "responses": ResponseAssembler,
}


class RealSink(Sink):
    """A sink of a real protocol."""

    def __init__(self, name: str, *, shows: bool) -> None:
        super().__init__(shows=shows)
        self.name = name

    def begin(self) -> Assembler:  # type: ignore[override]
        super().begin()
        return ASSEMBLERS[self.name]()


def speaking(tmp_path: Path, name: str) -> Crossroads:
    """Return two providers of a protocol."""
    made = Crossroads(
        tmp_path, "anthropic" if name == "anthropic" else "openai", {"one": 1, "two": 1}
    )
    made.wire, made.dialect = WIRES[name], DIALECTS[name]
    body = made.wire.request([made.wire.user("Hi")], [], stream=True, more={"model": "m-one"})
    made.body = json.dumps(body)
    made.turn()
    return made


@pytest.mark.requirement("live:cut-at-every-event")
@pytest.mark.parametrize("name", ASSEMBLERS)
@pytest.mark.parametrize("shows", [True, False])
async def test_in_each_protocol_a_reply_is_cut_or_asked_again_at_every_event(
    tmp_path: Path, name: str, *, shows: bool
) -> None:
    roads = speaking(tmp_path, name)
    calls = [MadeCall("call_1", "desk__get", '{"a": "b"}')]
    whole = [
        told + b"\n\n"
        for told in roads.wire.streamed(roads.wire.reply("Hello", calls, {})).split(b"\n\n")[:-1]
    ]
    kinds: list[str] = []
    for sent in range(len(whole) + 1):
        roads.turn()
        for peer in roads.peers.values():
            peer.forget_script()
            peer.received.clear()
        roads.peers["one"].says(stream(*whole[:sent], ends=breaks_off))
        roads.peers["two"].says(stream(*whole))
        sink = RealSink(name, shows=shows)
        result = await post(roads, LiveReply(sink, UNLIMITED))

        if isinstance(result, CutReply):
            assert (result.code, result.is_cut) == ("provider_broke_off", True)
            # A block or an item is shown when it begins.
            assert "".join(sink.shown) in {"", "Hello"}
            assert sink.shown
            assert roads.times() == [1, 0]
        else:
            assert isinstance(result, ModelResponse), result
            said = roads.wire.said(result.body)
            assert (said.text, [call.name for call in said.calls]) == ("Hello", ["desk__get"])
        kinds.append("cut" if isinstance(result, CutReply) else str(roads.times()))

    first, last = kinds[0], kinds[-1]
    assert (first, last) == ("[1, 1]", "[1, 0]"), "a reply that is over is whole"
    assert sorted(set(kinds)) == sorted({"[1, 1]", "[1, 0]", *(["cut"] if shows else [])})
    assert kinds == sorted(kinds, key=["[1, 1]", "cut", "[1, 0]"].index), "in this order"
    await roads.close()


@pytest.mark.requirement("live:too-large")
@pytest.mark.parametrize("name", ASSEMBLERS)
async def test_a_text_of_5_mb_flows_however_often_its_protocol_says_it_again(
    tmp_path: Path, name: str
) -> None:
    roads = speaking(tmp_path, name)
    text = ("word" * 1024 + " ") * 1280
    streamed = roads.wire.streamed(roads.wire.reply(text, [], {}))
    roads.peers["one"].says(stream(streamed))
    result = await post(roads, LiveReply(RealSink(name, shows=True), UNLIMITED))
    assert isinstance(result, ModelResponse), result
    assert roads.wire.said(result.body).text == text
    await roads.close()
