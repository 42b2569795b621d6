"""The copy of an answer that is read: either dialect, packed or not, cut anywhere, hostile."""

from __future__ import annotations

import json
import random
import tracemalloc
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_mediate.mitm.passthrough.answer_notes import AnswerNotes
from claw_mediate.mitm.passthrough.answer_tap import AnswerTap
from tests.contract.test_content_coding import PACKERS, nothing, packed

EVENTS, JSON = "text/event-stream; charset=utf-8", "application/json"
OPENAI = {
    "prompt_tokens": 9,
    "completion_tokens": 12,
    "total_tokens": 21,
    "prompt_tokens_details": {"cached_tokens": 4},
}


def sse(*documents: dict[str, Any], end: str = "\n\n") -> bytes:
    event = f"event: something{end[: len(end) // 2]}"
    return "".join(
        f"{event}data: {json.dumps(document, ensure_ascii=False)}{end}" for document in documents
    ).encode()


def openai_stream(end: str = "\n\n") -> bytes:
    chunk: dict[str, Any] = {
        "id": "c",
        "object": "chat.completion.chunk",
        "model": "m",
        "usage": None,
    }
    texts = [
        {**chunk, "choices": [{"index": 0, "delta": {"content": f'Ünd "usage": {n}'}}]}
        for n in range(5)
    ]
    return sse(*texts, {**chunk, "choices": [], "usage": OPENAI}, end=end) + b"data: [DONE]\n\n"


def anthropic_stream(end: str = "\n\n") -> bytes:
    begun = {"input_tokens": 25, "cache_read_input_tokens": 3, "output_tokens": 1}
    return sse(
        {
            "type": "message_start",
            "message": {"id": "m", "role": "assistant", "content": [], "usage": begun},
        },
        {"type": "ping"},
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": '"usage": {}'},
        },
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": 15, "input_tokens": None},
        },
        {"type": "message_stop"},
        end=end,
    )


BODIES: dict[str, tuple[str, bytes, dict[str, Any]]] = {
    "openai stream": (EVENTS, openai_stream(), OPENAI),
    "openai stream, crlf": (EVENTS, openai_stream("\r\n\r\n"), OPENAI),
    "openai stream, cr": (EVENTS, openai_stream("\r\r"), OPENAI),
    "openai stream, byte order mark": (
        EVENTS,
        b"\xef\xbb\xbf" + openai_stream().removeprefix(b"event: something\n"),
        OPENAI,
    ),
    "openai stream, marked": (
        EVENTS,
        b'\xef\xbb\xbfdata: {"usage": {"total_tokens": 3}}\r\r',
        {"total_tokens": 3},
    ),
    "openai stream, many lines": (
        EVENTS,
        b'data: {"usage":\r\ndata: {"total_tokens": 3}}\r\n\r\n',
        {"total_tokens": 3},
    ),
    "openai stream, no end of line": (
        EVENTS,
        openai_stream().removesuffix(b"data: [DONE]\n\n").rstrip(),
        OPENAI,
    ),
    "anthropic stream": (
        EVENTS,
        anthropic_stream(),
        {"input_tokens": 25, "cache_read_input_tokens": 3, "output_tokens": 15},
    ),
    "openai": (
        JSON,
        json.dumps({"choices": [{"message": {"content": "x"}}], "usage": OPENAI}).encode(),
        OPENAI,
    ),
    "anthropic": (
        "application/json; charset=utf-8",
        json.dumps(
            {"type": "message", "content": [], "usage": {"input_tokens": 1, "output_tokens": 2}}
        ).encode(),
        {"input_tokens": 1, "output_tokens": 2},
    ),
    "responses stream": (
        EVENTS,
        sse({"type": "response.completed", "response": {"usage": {"input_tokens": 7}}}),
        {"input_tokens": 7},
    ),
}


def run(tap: AnswerTap, body: bytes, places: list[int]) -> bytes:
    cuts = [0, *sorted(place for place in places if 0 < place < len(body)), len(body)]
    through = b"".join(tap(body[start:end]) for start, end in pairwise(cuts) if start < end)
    return through + tap(b"")


@pytest.mark.requirement("forward:usage-from-a-copy")
@pytest.mark.parametrize("name", BODIES)
@given(
    chain=st.lists(st.sampled_from(sorted(PACKERS)), max_size=2),
    places=st.lists(st.integers(1, 2000), max_size=9),
)
def test_usage_is_found_however_the_response_is_packed_and_cut(
    name: str, chain: list[str], places: list[int]
) -> None:
    content_type, body, usage = BODIES[name]
    tap = AnswerTap(content_type, tuple(chain))
    sent = packed(body, chain)
    assert run(tap, sent, places) == sent
    assert tap.usage == usage
    assert bytes(tap.body) == body


@pytest.mark.requirement("forward:usage-from-a-copy")
@pytest.mark.parametrize("coding", ["gzip", "br", "zstd"])
def test_every_byte_may_come_alone(coding: str) -> None:
    tap = AnswerTap(EVENTS, (coding,))
    sent = PACKERS[coding](anthropic_stream())
    assert run(tap, sent, list(range(len(sent)))) == sent
    assert tap.usage["output_tokens"] == 15


@pytest.mark.requirement("forward:usage-from-a-copy")
def test_usage_at_the_end_of_a_document_of_many_megabytes_is_found() -> None:
    vectors = [{"object": "embedding", "embedding": [0.123456789] * 1536}] * 600
    body = json.dumps(
        {"object": "list", "data": vectors, "model": "m", "usage": {"prompt_tokens": 8}}
    ).encode()
    assert len(body) > 9 << 20
    tap = AnswerTap(JSON, ())
    assert run(tap, body, list(range(0, len(body), 65535))) == body
    assert tap.usage == {"prompt_tokens": 8}


CREATED = {"type": "response.created", "response": {"id": "resp_1", "object": "response"}}
KEPT: dict[str, tuple[str, bytes]] = {
    "document": (
        JSON,
        json.dumps(
            {"id": "resp_1", "output": [{"id": "msg_1"}], "usage": {"input_tokens": 1}}
        ).encode(),
    ),
    "long document": (
        JSON,
        json.dumps({"id": "resp_1", "object": "response", "image": "x" * (9 << 20)}).encode(),
    ),
    "stream": (
        EVENTS,
        sse(
            {"type": "keepalive"},
            CREATED,
            {"type": "response.completed", "response": {"id": "resp_2"}},
        ),
    ),
    "cut stream": (EVENTS, sse(CREATED)),
    "conversation": (JSON, json.dumps({"id": "resp_1", "object": "conversation"}).encode()),
}


@pytest.mark.requirement("responses:paths-rows")
@pytest.mark.parametrize("name", KEPT)
@pytest.mark.parametrize("coding", ["", "gzip"])
def test_the_id_of_a_kept_object_is_told_once_before_its_bytes_go_on(
    name: str, coding: str
) -> None:
    content_type, body = KEPT[name]
    found: list[str] = []
    applied = (coding,) if coding else ()
    tap = AnswerTap(content_type, applied, AnswerNotes(found.append))
    sent = packed(body, applied)
    assert run(tap, sent, [7, 99, 5000]) == sent
    assert found == ["resp_1"]


@pytest.mark.requirement("responses:paths-rows")
@pytest.mark.parametrize(
    "body",
    [b'{"id": 7}', b'{"output": [{"id": "msg_1"}]}', b'{"id": ""}', b"[1]", b'{"id": "resp_1"'],
)
def test_what_has_no_id_is_not_kept(body: bytes) -> None:
    found: list[str] = []
    run(AnswerTap(JSON, (), AnswerNotes(found.append)), body, [3])
    assert found == []


@pytest.mark.requirement("forward:hostile-copy")
@given(
    content_type=st.sampled_from([EVENTS, JSON, "", "audio/mpeg"]),
    chain=st.lists(st.sampled_from([*PACKERS, "compress"]), max_size=3),
    body=st.binary(max_size=300)
    | st.sampled_from([b'{"usage": 1}', b"[" * 3000, b'{"usage":{"a":1e999}}']),
    places=st.lists(st.integers(1, 300), max_size=5),
)
def test_a_copy_that_is_garbage_harms_nothing(
    content_type: str, chain: list[str], body: bytes, places: list[int]
) -> None:
    tap = AnswerTap(content_type, tuple(chain))
    assert run(tap, body, places) == body
    assert isinstance(tap.usage, dict)


def endless_line() -> bytes:
    return b"data: " + b"x" * (24 << 20)


@pytest.mark.long
@pytest.mark.requirement("forward:hostile-copy")
@pytest.mark.parametrize(
    ("content_type", "chain", "body"),
    [
        (EVENTS, ("gzip",), lambda: nothing("gzip")),
        (JSON, ("br",), lambda: nothing("br")),
        (JSON, ("zstd",), lambda: nothing("zstd")),
        (EVENTS, (), endless_line),
        (JSON, (), endless_line),
        ("audio/mpeg", (), lambda: random.Random(3).randbytes(24 << 20)),
    ],
    ids=["gzip", "br", "zstd", "line", "document", "file"],
)
def test_a_copy_that_is_endless_or_a_bomb_costs_little_memory(
    content_type: str, chain: tuple[str, ...], body: Any
) -> None:
    sent = body()
    tap = AnswerTap(content_type, chain)
    tracemalloc.start()
    for start in range(0, len(sent), 65535):
        tap(sent[start : start + 65535])
    tap(b"")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 48 << 20
    assert tap.usage == {}
