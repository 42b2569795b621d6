"""A stream of several replies of Anthropic's: one message for the real SDK."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import anthropic
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claw_mediate.core.reply_events import ReplyEvent
from claw_mediate.dialects.anthropic.stream import MessageWriter
from tests.mediate.anthropic_sdk import final
from tests.mediate.cut_message import Event, cut_events, read_events
from tests.mediate.live_message import ASKED, OWN, encoded, fed, live, shown, told
from tests.wires import anthropic as wire
from tests.wires.anthropic import message

CITATION = {"type": "char_location", "cited_text": "c", "document_index": 0}
RESULT = {"type": "web_search_result", "url": "http://u", "title": "t", "encrypted_content": "E"}
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=99)

FLOWS = st.one_of(
    TEXT.map(lambda text: {"type": "text", "text": text}),
    TEXT.map(lambda text: {"type": "text", "text": text, "citations": [CITATION]}),
    TEXT.map(lambda text: {"type": "thinking", "thinking": text, "signature": f"sig{len(text)}"}),
    st.just({"type": "redacted_thinking", "data": "x" * 9}),
    TEXT.map(
        lambda text: {
            "type": "server_tool_use",
            "id": "srvtoolu_1",
            "name": "web_search",
            "input": {"query": text},
        }
    ),
    st.just({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [RESULT]}),
)
CALLS = st.lists(
    st.sampled_from(["toolu_1", "toolu_2"]).map(
        lambda name: {"type": "tool_use", "id": name, "name": "shell", "input": {"cmd": name}}
    ),
    max_size=2,
)
REPLIES = st.tuples(st.lists(FLOWS, max_size=3), CALLS).map(lambda both: [*both[0], *both[1]])


def outline(events: Iterable[ReplyEvent]) -> dict[tuple[int, str], tuple[str, str, int]]:
    """Return of each channel its kind, its text, and how many events it has without one."""
    found: dict[tuple[int, str], tuple[str, str, int]] = {}
    for event in events:
        place = event.piece, f"{event.kind == 'end'}{event.channel}"
        _, text, count = found.get(place, ("", "", 0))
        is_text = event.channel in {"text", "thinking", "input"}
        found[place] = event.kind, text + event.text, count + (not is_text)
    return {place: what for place, what in found.items() if what[1:] != ("", 0)}


@pytest.mark.requirement("live:anthropic-channels")
@settings(max_examples=100, deadline=None)
@given(st.data(), REPLIES)
def test_a_reply_has_the_same_pieces_and_channels_from_its_stream_and_of_its_body(
    data: st.DataObject, blocks: list[Event]
) -> None:
    said = message(*blocks)
    inputs = [json.dumps(block["input"]) for block in blocks if "input" in block]
    assert outline(fed(data.draw(cut_events(said, inputs)))) == outline(told(said))


@pytest.mark.requirement("live:anthropic-lifecycle")
@settings(max_examples=100, deadline=None)
@given(st.data(), st.lists(REPLIES, max_size=3), REPLIES)
def test_the_sdk_puts_together_what_several_replies_have_shown(
    data: st.DataObject, hidden: list[list[Event]], last: list[Event]
) -> None:
    ended = message(*last, id="msg_last", usage={"input_tokens": 77, "output_tokens": 30})
    inputs = [json.dumps(block["input"]) for block in last if "input" in block]
    of_last = data.draw(st.sampled_from([told(ended), fed(data.draw(cut_events(ended, inputs)))]))
    rounds = [told(message(*blocks)) for blocks in hidden]
    writer, stream = live(*rounds, last=of_last)

    got = final(stream).model_dump(mode="json", exclude_unset=True, warnings=False)
    wanted = shown(*hidden, last=last)
    content = [
        {name: value for name, value in block.items() if name in expected}
        for block, expected in zip(got["content"], wanted, strict=True)
    ]
    assert content == wanted
    assert got["stop_reason"] == ended["stop_reason"]
    assert (got["usage"]["input_tokens"], got["usage"]["output_tokens"]) == (77, 30)
    assert got["id"] == writer.id == ("msg_1" if hidden else "msg_last")

    answer = json.loads(writer.answer(encoded(ended)))
    assert answer == {**ended, "id": writer.id, "content": wanted}
    again, _ = live(last=told(answer))
    assert json.loads(again.answer(encoded(answer))) == answer


@pytest.mark.requirement("live:anthropic-lifecycle")
@settings(max_examples=50, deadline=None)
@given(st.lists(REPLIES, max_size=3), REPLIES)
def test_a_stream_of_several_replies_has_one_lifecycle(
    hidden: list[list[Event]], last: list[Event]
) -> None:
    _, stream = live(*(told(message(*blocks)) for blocks in hidden), last=told(message(*last)))
    assert json.loads(wire.assembled(stream))["content"] == shown(*hidden, last=last)


@pytest.mark.requirement("live:anthropic-lifecycle")
def test_a_later_opening_adds_nothing() -> None:
    writer = MessageWriter(ASKED, OWN)
    first, second = told(message("a"))[0], told(message("b", id="msg_other"))[0]
    assert writer.write(first)
    writer.begin_reply()
    assert writer.write(second) == b""
    assert writer.id == "msg_1"


def told_at_end(said: Event) -> Event:
    """Return the members of ``message_delta`` behind an earlier reply."""
    _, stream = live(told(message("before")), last=told(said))
    (end,) = [
        json.loads(event.data) for event in read_events(stream) if event.name == b"message_delta"
    ]
    delta: Event = end["delta"]
    return delta


@pytest.mark.requirement("live:anthropic-last-reply")
def test_the_end_is_the_last_replys() -> None:
    late = {"container": {"id": "c", "expires_at": "2026-01-01T00:00:00Z"}, "stop_details": None}
    said = message("x", stop_reason="stop_sequence", stop_sequence="#", **late)
    assert told_at_end(said) == {"stop_reason": "stop_sequence", "stop_sequence": "#", **late}

    (opening, *rest) = told(said)
    writer = MessageWriter(ASKED, OWN)
    assert b'"container":{' in writer.write(opening)
    ends = b"".join(map(writer.write, rest))
    assert b"container" not in ends, "it is told once"


def test_a_container_that_is_known_at_the_end_only_is_told_there() -> None:
    container = {"id": "c", "expires_at": "2026-01-01T00:00:00Z"}
    start = {"type": "message_start", "message": {**message(), "container": None}}
    delta = {"stop_reason": "end_turn", "container": container}
    end = {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 1}}
    _, stream = live(last=fed([start, end, {"type": "message_stop"}]))
    got = final(stream).container
    assert got is not None
    assert got.id == "c"


@pytest.mark.requirement("live:anthropic-last-reply")
def test_what_came_behind_the_opening_is_told_at_the_end() -> None:
    writer = MessageWriter(ASKED, OWN)
    start = {"type": "message_start", "message": {**message(), "x_start": 1}}
    shown_opening, *_ = fed([start])
    assert b'"x_start":1' in writer.write(shown_opening)

    edits = {"applied_edits": []}
    said = message(x_start=1, context_management=edits, container={"id": "c"})
    *_, end, _ = told(said)
    (written,) = read_events(writer.write(end))
    data = json.loads(written.data)
    assert data["context_management"] == edits
    assert data["delta"]["container"] == {"id": "c"}
    assert "x_start" not in data


@pytest.mark.requirement("live:anthropic-end")
@pytest.mark.parametrize("usage", [None, {}, {"output_tokens": 4}])
def test_a_usage_that_is_missing_is_zero(usage: Any) -> None:
    start = {"type": "message_start", "message": {**message(), "usage": usage}}
    end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}
    _, stream = live(last=fed([start, end, {"type": "message_stop"}]))
    got = final(stream).usage
    assert (got.input_tokens, got.output_tokens) == (0, (usage or {}).get("output_tokens", 0))


def test_the_usage_of_the_end_is_what_the_turn_gives_it() -> None:
    *before, end, stop = told(message("x"))
    usage = {"input_tokens": 1, "output_tokens": 99, "cache_read_input_tokens": 3}
    counted = msgspec.structs.replace(end, data={**end.data, "usage": usage})
    _, stream = live(last=[*before, counted, stop])
    got = final(stream).usage
    assert (got.input_tokens, got.output_tokens, got.cache_read_input_tokens) == (1, 99, 3)


@pytest.mark.requirement("live:anthropic-lifecycle")
def test_beats_may_stand_anywhere_and_open_nothing() -> None:
    writer = MessageWriter(ASKED, OWN)
    beats = [writer.beat("claw\ndata: no", kind) for kind in ("comment", "native")]
    stream = b"".join(beats)
    assert writer.id == ""
    for event in told(message({"type": "thinking", "thinking": "hm", "signature": "S"}, "x")):
        stream += writer.write(event) + b"".join(beats)
    assert [block.type for block in final(stream).content] == ["thinking", "text"]
    assert b"\ndata: no" not in stream


@pytest.mark.requirement("live:anthropic-failed")
@pytest.mark.parametrize("count", [0, 1, 3])
def test_an_error_is_raised_by_the_sdk_wherever_it_comes(count: int) -> None:
    writer = MessageWriter(ASKED, OWN)
    stream = b"".join(map(writer.write, told(message("words"))[:count]))
    error = b'{"type":"error","error":{"type":"overloaded_error","message":"it broke"}}'
    with pytest.raises(anthropic.APIStatusError, match="it broke"):
        final(stream + writer.error(error))


def test_content_without_an_opening_gets_one_of_ours() -> None:
    _, *rest = told(message("words"))
    writer = MessageWriter(ASKED, OWN)
    got = final(b"".join(map(writer.write, rest)))
    assert (got.id, got.model, got.role, writer.id) == ("msg_own", "model-own", "assistant", OWN.id)
    assert wire.said(msgspec.json.encode(got.model_dump(warnings=False))).text == "words"


def test_blocks_that_go_on_beside_each_other_keep_their_places() -> None:
    first, second = ({"type": "text", "text": "", "n": index} for index in range(2))
    start = {"type": "message_start", "message": message()}
    between: list[Event] = [
        {"type": "content_block_start", "index": 3, "content_block": first},
        {"type": "content_block_start", "index": 7, "content_block": second},
        *(
            {
                "type": "content_block_delta",
                "index": index,
                "delta": {"type": "text_delta", "text": text},
            }
            for index, text in ((3, "a"), (7, "b"), (3, "c"))
        ),
    ]
    end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {}}
    _, stream = live(
        told(message("before")), last=fed([start, *between, end, {"type": "message_stop"}])
    )
    assert [block.text for block in final(stream).content if block.type == "text"] == [
        "before",
        "ac",
        "b",
    ]
