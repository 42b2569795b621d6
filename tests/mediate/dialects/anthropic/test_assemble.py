"""A streamed message of Anthropic's API, put together again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claw_contract.sse import SseEvent, SseReader
from claw_mediate.core.reply_events import ReplyEvent
from claw_mediate.core.types import ModelResponse, UnreadableArguments
from claw_mediate.dialects.anthropic.assemble import MessageAssembler
from claw_mediate.dialects.anthropic.response import read_response
from claw_mediate.dialects.base import MAX_PARTS, UnreadableResponseError
from tests.mediate.cut_message import (
    MAX_EVENT_BYTES,
    Event,
    cut_events,
    read_events,
    wire_bytes,
    write_events,
)
from tests.mediate.made import JSON_TEXT, catalog, granted
from tests.wires.anthropic import message

CATALOG = catalog(granted("desk.get"), native=["shell"])
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
INPUT = st.one_of(st.just("{}"), JSON_TEXT.map(lambda text: f'{{"a":{text}}}'))
CITATION = {"type": "char_location", "cited_text": "c", "document_index": 0}
BLOCKS = st.lists(
    st.one_of(
        TEXT.map(lambda text: {"type": "text", "text": text}),
        st.tuples(TEXT, st.integers(1, 3)).map(
            lambda pair: {"type": "text", "text": pair[0], "citations": [CITATION] * pair[1]}
        ),
        TEXT.map(lambda text: {"type": "thinking", "thinking": text, "signature": "sig=="}),
        st.just({"type": "redacted_thinking", "data": "x" * 9}),
        st.sampled_from(["shell", "desk__get"]).map(
            lambda name: {"type": "tool_use", "id": f"t-{name}", "name": name, "input": {}}
        ),
        st.just({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}),
        st.just({"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"n": 1}]}),
        st.just({"type": "x_novel", "n": 1.0}),
    ),
    max_size=5,
)

START: Event = {"type": "message_start", "message": {**message(), "stop_reason": None}}
STOP: list[Event] = [
    {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": None},
        "usage": {"output_tokens": 7},
    },
    {"type": "message_stop"},
]


def block(index: int, started: Any, *deltas: Any) -> list[Event]:
    return [
        {"type": "content_block_start", "index": index, "content_block": started},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def text(index: int, *parts: str) -> list[Event]:
    deltas = [{"type": "text_delta", "text": part} for part in parts]
    return block(index, {"type": "text", "text": ""}, *deltas)


def call(index: int, name: str, *parts: str) -> list[Event]:
    deltas = [{"type": "input_json_delta", "partial_json": part} for part in parts]
    started = {"type": "tool_use", "id": f"toolu_{index}", "name": name, "input": {}}
    return block(index, started, *deltas)


def feed(*events: Event) -> tuple[MessageAssembler, list[ReplyEvent]]:
    assembler = MessageAssembler()
    told = [told for event in read_events(write_events(events)) for told in assembler.feed(event)]
    return assembler, told


def assemble(*events: Event) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(feed(START, *events, *STOP)[0].body())
    return body


def view(response: ModelResponse) -> Any:
    calls = [(called.id, called.name, called.owner, called.arguments) for called in response.calls]
    return calls, json.loads(response.message), response.usage


@pytest.mark.requirement("live:anthropic-put-together")
@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_message_cut_in_any_way_is_put_together_as_it_was(data: st.DataObject) -> None:
    blocks = data.draw(BLOCKS)
    said = message(*blocks, stop_reason=data.draw(st.sampled_from(["end_turn", "max_tokens"])))
    inputs = [data.draw(INPUT) for part in blocks if "input" in part]
    spellings = iter(inputs)
    parts = [
        json.dumps(part | {"input": 0}).replace('"input": 0', f'"input": {next(spellings)}')
        if "input" in part
        else json.dumps(part)
        for part in blocks
    ]
    body = json.dumps(said | {"content": 0}).replace(
        '"content": 0', f'"content": [{",".join(parts)}]'
    )

    assembler = MessageAssembler()
    reader = SseReader(MAX_EVENT_BYTES)
    events = data.draw(cut_events(said, inputs))
    for chunk in data.draw(wire_bytes(events)):
        for event in reader.feed(chunk):
            assembler.feed(event)

    assert assembler.is_whole
    whole = read_response(assembler.body(), CATALOG)
    assert view(whole) == view(read_response(body.encode(), CATALOG))
    for spelled in inputs:
        assert spelled.encode() in assembler.body()
    assert json.loads(assembler.body()).keys() == said.keys()


@pytest.mark.requirement("live:anthropic-kinds")
@pytest.mark.parametrize(
    ("started", "kind"),
    [
        ({"type": "text", "text": ""}, "content"),
        ({"type": "thinking", "thinking": "", "signature": ""}, "reasoning"),
        ({"type": "redacted_thinking", "data": "x"}, "reasoning"),
        ({"type": "server_tool_use", "id": "s", "name": "n", "input": {}}, "content"),
        ({"type": "web_search_tool_result", "tool_use_id": "s", "content": []}, "content"),
        ({"type": "mcp_tool_use", "id": "s", "name": "n", "input": {}}, "content"),
        ({"type": "mcp_tool_result", "tool_use_id": "s", "content": []}, "content"),
        ({"type": "x_novel"}, "content"),
        ({"type": "tool_use", "id": "c", "name": "shell", "input": {}}, "call"),
    ],
)
def test_the_type_of_a_block_says_whether_it_may_be_a_call(started: Any, kind: str) -> None:
    delta = {"type": "x_delta", "n": 1}
    _, (opening, *told) = feed(START, *block(0, started, delta))
    assert opening.kind == "opening"
    stop = "call" if kind == "call" else "closing"
    assert [event.kind for event in told if event.channel != "input"] == [kind, kind, stop]


def test_each_delta_is_told_at_once_under_its_channel() -> None:
    started = {"type": "text", "text": "", "citations": []}
    deltas: list[Event] = [
        {"type": "text_delta", "text": "Hel"},
        {"type": "text_delta", "text": "lo", "x": 1.0},
        {"type": "citations_delta", "citation": CITATION},
    ]
    _, told = feed(START, *block(3, started, *deltas)[:-1])
    assert [(event.piece, event.channel, event.text) for event in told] == [
        (0, "", ""),
        (0, "start", ""),
        (0, "text", "Hel"),
        (0, "text", "lo"),
        (0, "citations", ""),
    ]


@pytest.mark.requirement("live:anthropic-channels")
def test_a_block_may_start_with_what_its_deltas_would_bring() -> None:
    thinking = {"type": "thinking", "thinking": "h", "signature": "SIG"}
    called = {"type": "tool_use", "id": "c", "name": "shell", "input": {"a": 1}}
    events = [
        *block(0, thinking, {"type": "thinking_delta", "thinking": "m"}),
        *block(1, {"type": "text", "text": "Hel"}, {"type": "text_delta", "text": "lo"}),
        *block(2, called),
    ]
    _, told = feed(START, *events)
    assert [(event.piece, event.channel, event.text) for event in told[1:]] == [
        (0, "start", ""),
        (0, "thinking", "h"),
        (0, "thinking", "m"),
        (0, "signature", ""),
        (0, "stop", ""),
        (1, "start", ""),
        (1, "text", "Hel"),
        (1, "text", "lo"),
        (1, "stop", ""),
        (2, "start", ""),
        (2, "input", '{"a": 1}'),
        (2, "stop", ""),
    ]
    assert assemble(*events)["content"] == [
        thinking | {"thinking": "hm"},
        {"type": "text", "text": "Hello"},
        called,
    ]


def test_of_several_signatures_the_last_counts_as_in_the_sdks() -> None:
    started = {"type": "thinking", "thinking": "", "signature": ""}
    signatures = [{"type": "signature_delta", "signature": each} for each in ("AB", "CD")]
    events = block(0, started, *signatures)
    assert assemble(*events)["content"][0]["signature"] == "CD"
    _, told = feed(START, *events)
    assert [event.channel for event in told] == ["", "start", "signature", "stop"]


@pytest.mark.requirement("live:anthropic-inputs")
@pytest.mark.parametrize("parts", [(), ("",), ("", "{}")])
def test_a_call_without_an_input_has_an_empty_one(parts: tuple[str, ...]) -> None:
    assert assemble(*call(0, "desk__get", *parts))["content"][0]["input"] == {}


@pytest.mark.requirement("live:anthropic-inputs")
@pytest.mark.parametrize(
    "parts",
    [('{"a"', ":"), ("[1", "]"), ("not JSON",), ('"{}"',), ("{}", "{}"), ('{"a":1,"a":2}',)],
)
def test_an_input_that_is_no_object_is_judged_whole_and_never_run(parts: tuple[str, ...]) -> None:
    assembler, _ = feed(START, *call(0, "desk__get", *parts), *STOP)
    (called,) = read_response(assembler.body(), CATALOG).calls
    assert called.owner == "managed"
    assert isinstance(called.arguments, UnreadableArguments)


def test_blocks_may_go_on_beside_each_other() -> None:
    first = call(0, "shell", '{"p":', "1}")
    second = call(1, "shell", '{"q":', "2}")
    mixed = [event for pair in zip(first, second, strict=True) for event in pair]
    inputs = [part["input"] for part in assemble(*mixed)["content"]]
    assert inputs == [{"p": 1}, {"q": 2}]


def test_blocks_that_are_open_at_the_end_are_closed() -> None:
    events = [*text(0, "a")[:-1], *text(2, "b")[:-1]]
    assembler, told = feed(START, *events, *STOP)
    assert [event.kind for event in told[-4:]] == ["closing", "closing", "end", "end"]
    assert [part["text"] for part in json.loads(assembler.body())["content"]] == ["a", "b"]


@pytest.mark.requirement("live:anthropic-end")
def test_the_end_is_told_once_with_the_whole_usage() -> None:
    container = {"id": "c1", "expires_at": "2026-01-01T00:00:00Z"}
    details = {"type": "refusal"}
    start = {
        **START["message"],
        "usage": {"input_tokens": 10, "cache_read_input_tokens": 3, "output_tokens": 1},
    }
    events: list[Event] = [
        {"type": "message_start", "message": start},
        {"type": "message_delta", "delta": {"container": container}, "usage": None},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "refusal", "stop_sequence": None, "stop_details": details},
            "usage": {"input_tokens": None, "output_tokens": 30, "server_tool_use": {"n": 1}},
            "context_management": {"applied_edits": []},
        },
        {"type": "message_stop"},
    ]
    assembler, told = feed(*events)
    usage = {
        "input_tokens": 10,
        "cache_read_input_tokens": 3,
        "output_tokens": 30,
        "server_tool_use": {"n": 1},
    }
    body = json.loads(assembler.body())
    assert body == {
        **start,
        "container": container,
        "stop_reason": "refusal",
        "stop_details": details,
        "context_management": {"applied_edits": []},
        "usage": usage,
    }
    assert json.loads(assembler.usage() or b"") == usage
    assert [event.kind for event in told] == ["opening", "end", "end"]
    assert {name: json.loads(bytes(raw)) for name, raw in told[1].data["usage"].items()} == usage


def test_the_end_changes_neither_content_nor_identity() -> None:
    delta = {"stop_reason": "end_turn", "content": [{"type": "text", "text": "x"}], "id": "other"}
    end = {"type": "message_delta", "delta": delta, "usage": {}, "model": "other"}
    body = json.loads(feed(START, end, STOP[-1])[0].body())
    assert (body["content"], body["id"], body["model"]) == ([], "msg_1", START["message"]["model"])


@pytest.mark.requirement("live:anthropic-whole")
@pytest.mark.parametrize("count", range(6))
def test_a_message_without_its_stop_is_not_whole(count: int) -> None:
    events = [START, *text(0, "a"), STOP[0]][:count]
    assembler, _ = feed(*events)
    assert not assembler.is_whole
    with pytest.raises(UnreadableResponseError):
        assembler.body()


def test_an_empty_message_and_a_pause_are_whole() -> None:
    pause = {**STOP[0], "delta": {"stop_reason": "pause_turn", "stop_sequence": None}}
    body = json.loads(feed(START, pause, STOP[1])[0].body())
    assert (body["content"], body["stop_reason"]) == ([], "pause_turn")


@pytest.mark.requirement("live:anthropic-failed")
@pytest.mark.parametrize(
    ("error", "status"),
    [
        ({"type": "overloaded_error", "message": "x"}, 529),
        ({"type": "rate_limit_error", "message": "x"}, 429),
        ({"type": "api_error", "message": "x"}, 500),
        ({"type": "invalid_request_error", "message": "x"}, 400),
        ({"type": "authentication_error", "message": "x"}, 401),
        ({"type": "of another kind"}, 500),
        ({"type": []}, 500),
        ("words", 500),
        (None, 500),
    ],
)
@pytest.mark.parametrize("before", [[], [START], [START, *text(0, "a")]])
def test_an_error_event_is_the_failure_that_it_means(
    error: Any, status: int, before: Sequence[Event]
) -> None:
    assembler, _ = feed(*before, {"type": "error", "error": error, "request_id": "r"}, *STOP)
    failure = assembler.error
    assert failure is not None
    assert failure.status == status
    told = json.loads(failure.body)
    assert (told["type"], told["request_id"]) == ("error", "r")
    assert told["error"]["message"]
    assert not assembler.is_whole


@pytest.mark.requirement("live:anthropic-swallowed")
def test_pings_and_events_of_nothing_tell_nothing() -> None:
    ping: Event = {"type": "ping"}
    novel: Event = {"type": "x_event", "n": 1}
    for events in ([ping], [ping, START, ping, novel], [START, {**novel, "index": 0}]):
        assert [event.kind for event in feed(*events)[1]] in ([], ["opening"])
    assert MessageAssembler().feed(SseEvent(b"not JSON", b"ping")) == ()
    assert MessageAssembler().feed(SseEvent(b"[DONE]")) == ()


@pytest.mark.requirement("live:anthropic-swallowed")
def test_an_unknown_event_of_a_block_passes_with_its_members() -> None:
    events = text(5, "a")
    events.insert(1, {"type": "x_event", "index": 5, "n": 1})
    _, told = feed(START, *events)
    (novel,) = [event for event in told if event.channel == "x_event"]
    assert (novel.kind, novel.piece) == ("content", 0)
    assert novel.data.keys() == {"type", "n"}


@pytest.mark.requirement("live:anthropic-swallowed")
def test_unknown_members_pass_with_their_event() -> None:
    events = [{**event, "x": "1"} for event in text(0, "a")]
    _, (_, *told) = feed(START, *events)
    assert all(bytes(event.data["x"]) == b'"1"' for event in told)


def test_an_unknown_delta_never_changes_a_call() -> None:
    delta = {"type": "x_delta", "name": "desk__get", "id": "other", "n": 1}
    events = call(0, "shell", "{}")
    events.insert(1, {"type": "content_block_delta", "index": 0, "delta": delta})
    assert assemble(*events)["content"][0] == events[0]["content_block"]


def test_a_compaction_is_put_together_as_the_sdks_do_it() -> None:
    delta = {"type": "compaction_delta", "content": "short", "encrypted_content": "E"}
    (made,) = assemble(*block(0, {"type": "compaction", "content": ""}, delta))["content"]
    assert made == {"type": "compaction", "content": "short", "encrypted_content": "E"}


DELTA = b'{"type":"content_block_delta","index":0,"delta":%b}'
OPEN = [START, *text(0, "a")[:-1]]


@pytest.mark.requirement("live:anthropic-damaged")
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"[" * 100_000,
        b"{}",
        b'{"type":7}',
        b'{"type":"x","type":"message_stop"}',
        b'{"type":"message_stop","\\u0074ype":"x"}',
        b'{"type":"content_block_delta","index":0}',
        b'{"type":"content_block_delta","index":0,"delta":[]}',
        b'{"type":"content_block_delta","index":0,"index":1,"delta":{"type":"text_delta","text":""}}',
        DELTA.replace(b"0", b"1") % b'{"type":"text_delta","text":"x"}',
        DELTA.replace(b"0", b"-1") % b'{"type":"text_delta","text":"x"}',
        DELTA.replace(b"0", b"true") % b'{"type":"text_delta","text":"x"}',
        DELTA.replace(b"0", b"9" * 5000) % b'{"type":"text_delta","text":"x"}',
        DELTA % b"{}",
        DELTA % b'{"type":"text_delta"}',
        DELTA % b'{"type":"text_delta","text":7}',
        DELTA % b'{"type":"text_delta","text":"x","text":"y"}',
        DELTA % b'{"type":"text_delta","text":"\\ud800"}',
        DELTA % b'{"type":"text_delta","text":"\xff"}',
        DELTA % b'{"type":"text_delta","text":"a\nb"}',
        DELTA % b'{"type":"signature_delta","signature":7}',
        DELTA % b'{"type":"citations_delta"}',
        b'{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}',
        b'{"type":"content_block_start","content_block":{"type":"text","text":""}}',
        b'{"type":"content_block_start","index":1,"content_block":{"text":""}}',
        b'{"type":"content_block_start","index":1,"content_block":{"type":"a","type":"tool_use"}}',
        (
            b'{"type":"content_block_start","index":1,"content_block":{"type":"text","text":"",'
            b'"citations":[}}'
        ),
        b'{"type":"content_block_stop","index":1}',
        b'{"type":"message_start","message":{"content":[]}}',
        b'{"type":"message_delta","delta":7}',
    ],
)
def test_what_parsers_could_read_in_several_ways_is_not_read(data: bytes) -> None:
    assembler, _ = feed(*OPEN)
    with pytest.raises(UnreadableResponseError):
        assembler.feed(SseEvent(data))


@pytest.mark.parametrize(
    "events",
    [
        text(0, "a"),
        STOP,
        [{"type": "message_start", "message": {**START["message"], "content": [{"type": "x"}]}}],
        [START, *text(0, "a"), text(0, "a")[1]],
        [START, *text(0, "a"), text(0, "a")[-1]],
        [START, *STOP, *text(0, "a")],
        [START, *STOP, STOP[0]],
    ],
)
def test_events_out_of_order_are_not_read(events: list[Event]) -> None:
    with pytest.raises(UnreadableResponseError):
        feed(*events)


def test_the_name_of_an_event_is_its_type_or_absent() -> None:
    data = json.dumps(START).encode()
    assert MessageAssembler().feed(SseEvent(data))
    assert MessageAssembler().feed(SseEvent(data, b"message_start"))
    for name in (b"message_stop", b"\xff"):
        with pytest.raises(UnreadableResponseError):
            MessageAssembler().feed(SseEvent(data, name))
    assembler = MessageAssembler()
    assembler.feed(SseEvent(b'{"error":{"type":"overloaded_error"}}', b"error"))
    assert assembler.error is not None


def test_a_repeated_usage_is_not_read() -> None:
    usage = b'{"type":"message_start","message":{"usage":{"output_tokens":1,"output_tokens":2}}}'
    with pytest.raises(UnreadableResponseError):
        MessageAssembler().feed(SseEvent(usage))


def test_a_message_has_no_more_blocks_than_a_body_may_have() -> None:
    assembler, _ = feed(START)
    start = '{"type":"content_block_start","index":%d,"content_block":{"type":"x"}}'
    for index in range(MAX_PARTS):
        assembler.feed(SseEvent((start % index).encode()))
    with pytest.raises(UnreadableResponseError, match=str(MAX_PARTS)):
        assembler.feed(SseEvent((start % MAX_PARTS).encode()))


def test_quotes_and_colons_in_a_text_are_no_members() -> None:
    sharp = '"type":"x","index":1, \\"a\\": ":":'
    assert assemble(*text(0, sharp, '"', ":"))["content"][0]["text"] == sharp + '":'
