"""A synthetic stream of Anthropic's: the real SDK puts the same message together."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claw_mediate.dialects.anthropic import DIALECT as ANTHROPIC_MESSAGES
from claw_mediate.dialects.streams import OwnOpening, write_stream
from tests.mediate.anthropic_sdk import final
from tests.mediate.made import JSON_TEXT, catalog
from tests.wires.anthropic import message

SHARP = [
    "data: x\n\n",
    "\r\n",
    "event: error\n",
    "\u2028\u2029\x85",
    "\ufeff",
    "😀" * 60,
    '"}',
    "\\u",
    "e\u0301" * 40,
]
TEXT = st.lists(
    st.one_of(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=70), st.sampled_from(SHARP)
    ),
    max_size=4,
).map("".join)
BLOCK = st.one_of(
    TEXT.map(lambda text: {"type": "text", "text": text}),
    st.tuples(TEXT, st.text("abc=", max_size=9)).map(
        lambda pair: {"type": "thinking", "thinking": pair[0], "signature": pair[1]}
    ),
    st.just({"type": "redacted_thinking", "data": "x" * 100}),
    st.tuples(st.from_regex(r"[A-Za-z0-9]{1,9}", fullmatch=True), TEXT).map(
        lambda pair: {"type": "tool_use", "id": pair[0], "name": "shell", "input": {"cmd": pair[1]}}
    ),
)
ASKED = ANTHROPIC_MESSAGES.read_request(b'{"messages":[]}')

OPENING = OwnOpening("unused", "unused", 0)


def streamed(body: Any) -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    ANTHROPIC_MESSAGES.read_response(data, catalog())
    return b"".join(write_stream(ANTHROPIC_MESSAGES, data, ASKED))


def events(stream: bytes) -> list[dict[str, Any]]:
    """Return the events; each one's name must be its type."""
    found = []
    for event in stream.split(b"\n\n")[:-1]:
        name, data = event.split(b"\n")
        document = json.loads(data.removeprefix(b"data: "))
        assert name == b"event: " + document["type"].encode()
        found.append(document)
    return found


@pytest.mark.requirement("stream:sdk-accepts")
@settings(max_examples=60)
@given(
    st.lists(BLOCK, max_size=5),
    st.sampled_from(["end_turn", "max_tokens", "tool_use", "refusal", "pause_turn"]),
)
def test_the_sdk_puts_the_same_message_together(
    blocks: list[dict[str, Any]], stop_reason: str
) -> None:
    said = message(*blocks, stop_reason=stop_reason)
    got = final(streamed(said)).model_dump(mode="json", exclude_unset=True, warnings=False)
    shown = [
        {name: value for name, value in block.items() if name in wanted}
        for block, wanted in zip(got["content"], blocks, strict=True)
    ]
    assert shown == said["content"]
    assert got["stop_reason"] == stop_reason
    assert (got["usage"]["input_tokens"], got["usage"]["output_tokens"]) == (10, 5)


@pytest.mark.requirement("stream:anthropic-lifecycle")
@settings(max_examples=60)
@given(st.lists(BLOCK, max_size=5))
def test_a_stream_has_one_message_whose_blocks_count_from_zero_without_gaps(
    blocks: list[Any],
) -> None:
    kinds = [(event["type"], event.get("index")) for event in events(streamed(message(*blocks)))]
    assert kinds[0] == ("message_start", None)
    assert kinds[-2:] == [("message_delta", None), ("message_stop", None)]
    open_block, seen = None, -1
    for kind, index in kinds[1:-2]:
        if kind == "content_block_start":
            assert (open_block, index) == (None, seen + 1)
            open_block = seen = index
        elif kind == "content_block_stop":
            assert index == open_block
            open_block = None
        else:
            assert (kind, index) == ("content_block_delta", open_block)
    assert (open_block, seen) == (None, len(blocks) - 1)


@pytest.mark.requirement("stream:citations")
def test_citations_reach_the_client_after_their_text() -> None:
    cited = {
        "type": "char_location",
        "cited_text": "c",
        "document_index": 0,
        "document_title": None,
    }
    cited |= {"start_char_index": 0, "end_char_index": 1, "file_id": None}
    (block,) = final(
        streamed(message({"type": "text", "text": "as said", "citations": [cited, cited]}))
    ).content
    assert block.type == "text"
    assert [citation.type for citation in block.citations or ()] == [
        "char_location",
        "char_location",
    ]


@pytest.mark.requirement("stream:unknown-fields")
@settings(max_examples=60)
@given(JSON_TEXT, JSON_TEXT, JSON_TEXT)
def test_unknown_members_and_blocks_are_streamed_as_they_are(
    top: str, block: str, arguments: str
) -> None:
    body = (
        f'{{"x_top":{top},"content":[{{"type":"x_block","n":{block}}},'
        f'{{"type":"tool_use","id":"a","name":"x","input":{{"a":{arguments}}}}}],"stop_reason":"tool_use"}}'
    )
    stream = streamed(body.encode())
    one_line = [text.replace("\n", " ").replace("\r", " ").encode() for text in (top, block)]
    assert b'"x_top":' + one_line[0].strip() in stream
    assert b'"n":' + one_line[1].strip() in stream
    made = [
        event["delta"]["partial_json"]
        for event in events(stream)
        if event["type"] == "content_block_delta"
    ]
    assert "".join(made) == f'{{"a":{arguments}}}'.replace("\n", " ").replace("\r", " ")


@pytest.mark.requirement("stream:usage-always")
@pytest.mark.parametrize(
    "usage", [None, {}, {"output_tokens": 4}, {"input_tokens": 3, "cache_read_input_tokens": 2}]
)
def test_a_stream_always_has_a_usage_because_the_sdk_breaks_without(usage: Any) -> None:
    stream = streamed(message(usage=usage))
    got = final(stream).usage
    wanted = {"input_tokens": 0, "output_tokens": 0} | (usage or {})
    assert (got.input_tokens, got.output_tokens) == (
        wanted["input_tokens"],
        wanted["output_tokens"],
    )
    start, delta = (
        event for event in events(stream) if "usage" in event or "usage" in event.get("message", {})
    )
    assert start["message"]["usage"] == wanted | {"output_tokens": 0}
    assert delta["usage"] == wanted


@pytest.mark.requirement("stream:keepalive-is-skipped")
@pytest.mark.parametrize("kind", ["native", "comment"])
def test_the_sdk_reads_on_after_keepalives(kind: Any) -> None:
    alive = ANTHROPIC_MESSAGES.writer(ASKED, OPENING).beat(
        "claw round=1 waiting=desk.x\ndata: no", kind
    )
    assert (
        final(alive * 3 + streamed(message({"type": "text", "text": "hello"}))).content[0].type
        == "text"
    )


@pytest.mark.requirement("stream:error-event")
def test_an_error_after_the_headers_is_raised_by_the_sdk() -> None:
    writer = ANTHROPIC_MESSAGES.writer(ASKED, OPENING)
    alive = writer.beat("k", "native")
    error = writer.error(b'{"type":"error","error":{"type":"api_error","message":"it broke"}}')
    with pytest.raises(anthropic.APIStatusError, match="it broke"):
        final(alive + error)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b'{"type":"error","error":{"type":"x","message":"m"},\n"request_id":"r"}', True),
        (b'{"error":{"message":"m"}}', True),
        (b"", False),
        (b"<html>", False),
        (b'{"error":null}', False),
        (b'{"error":"text"}', False),
        (b"[" * 100_000, False),
    ],
)
def test_a_providers_error_is_told_in_one_line_where_it_has_the_dialects_shape(
    body: bytes, told: bool
) -> None:
    line = ANTHROPIC_MESSAGES.error_body(body)
    assert (line is not None) is told
    if line is not None:
        assert b"\n" not in line
        assert json.loads(line)["type"] == "error"
