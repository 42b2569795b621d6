"""Messages, headers and events of the protocol, without a socket."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claw_mcp import protocol
from claw_mcp.protocol import MessageError, RpcError, read_messages
from claw_mcp.sse import EventTooLongError, SseEvent, SseReader, write_event

STREAM = b'\xef\xbb\xbf: hello\nid: 7\nevent: message\ndata: {"a":1}\ndata: {"b":2}\n\ndata\n\nretry: 5\n\ndata:x\n\ndata: half'
EVENTS = [
    SseEvent(b'{"a":1}\n{"b":2}', b"message", b"7"),
    SseEvent(b"", b"message", b"7"),
    SseEvent(b"x", b"message", b"7"),
]


@pytest.mark.requirement("mcp:sse-reader")
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
@settings(max_examples=50)
@given(cuts=st.lists(st.integers(0, len(STREAM) * 2), max_size=8))
def test_events_are_the_same_wherever_the_stream_is_cut(line_end: bytes, cuts: list[int]) -> None:
    stream = STREAM.replace(b"\n", line_end)
    reader = SseReader(1000)
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    found = [event for start, end in pairwise(places) for event in reader.feed(stream[start:end])]
    assert found == EVENTS


@pytest.mark.requirement("mcp:sse-reader")
@pytest.mark.parametrize(
    "stream", [b"data: " + b"x" * 200, b"data: x\n" * 40, b": " + b"c" * 200, b"x" * 200 + b"\n"]
)
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_an_event_above_the_limit_ends_the_stream(stream: bytes, size: int) -> None:
    reader = SseReader(100)
    pieces = (stream[start : start + size] for start in range(0, len(stream), size))
    with pytest.raises(EventTooLongError):
        print([event for piece in pieces for event in reader.feed(piece)])


@pytest.mark.requirement("mcp:sse-reader")
def test_many_events_are_not_one_long_one() -> None:
    assert len(list(SseReader(100).feed(b"data: x\n\n" * 1000))) == 1000


@pytest.mark.requirement("mcp:sse-reader")
def test_what_is_written_is_read() -> None:
    (event,) = SseReader(100).feed(write_event(b'{\n"a":1}', "e1"))
    assert (json.loads(event.data), event.id) == ({"a": 1}, b"e1")


@pytest.mark.requirement("mcp:messages")
def test_an_id_and_a_result_keep_their_bytes() -> None:
    text = b'{"jsonrpc":"2.0","id":9007199254740993,"x":1,"result":{"n":1e400,"m":12345678901234567890,"y":[1.10]}}'
    (message,) = read_messages(text)
    assert bytes(message.id) == b"9007199254740993"
    assert bytes(message.result) == b'{"n":1e400,"m":12345678901234567890,"y":[1.10]}'
    assert message.answers(b"9007199254740993")
    assert not message.answers(b"9007199254740992")


@pytest.mark.requirement("mcp:messages")
@pytest.mark.parametrize(
    ("document", "kinds"),
    [
        ({"id": 1, "method": "ping"}, "request"),
        ({"id": "a", "method": "ping"}, "request"),
        ({"method": "ping"}, "notification"),
        ({"id": None, "method": "ping"}, ""),
        ({"id": True, "method": "ping"}, ""),
        ({"id": {}, "method": "ping"}, ""),
        ({"id": 1, "result": None}, "response"),
        ({"id": None, "error": {"code": 1, "message": "m"}}, "response"),
        ({"id": 1}, ""),
        ({"id": 1, "method": "ping", "result": {}}, "request"),
    ],
)
def test_each_message_is_of_one_kind(document: dict[str, Any], kinds: str) -> None:
    (message,) = read_messages(json.dumps({"jsonrpc": "2.0", **document}).encode())
    found = [
        kind for kind in ("request", "notification", "response") if getattr(message, f"is_{kind}")
    ]
    assert found == ([kinds] if kinds else [])
    assert message.answers(b"1") is (kinds == "response" and document["id"] == 1)


@pytest.mark.requirement("mcp:messages")
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b'"x"',
        b"\xff",
        b'{"jsonrpc":"1.0","id":1,"result":1}',
        b'{"jsonrpc":"2.0","method":5}',
        b'{"jsonrpc":"2.0","method":"\xff"}',
        b"[" * 90000,
        b"[" + b",".join([b'{"jsonrpc":"2.0","method":"x"}'] * 101) + b"]",
    ],
)
def test_bytes_that_are_no_message_are_refused(body: bytes) -> None:
    with pytest.raises(MessageError, match=r"^this is no JSON-RPC (2\.0 )?message$"):
        read_messages(body)


@pytest.mark.requirement("mcp:messages")
def test_an_array_holds_messages_and_an_error_is_read_whatever_it_is() -> None:
    one = {"jsonrpc": "2.0", "id": 1, "error": {"code": -1, "message": "m", "data": [1]}}
    two = {"jsonrpc": "2.0", "id": 2, "error": "odd"}
    first, second = (
        message.rpc_error() for message in read_messages(json.dumps([one, two]).encode())
    )
    assert first is not None
    assert second is not None
    assert (first.code, first.message, first.data, second.code) == (
        -1,
        "m",
        [1],
        protocol.INTERNAL_ERROR,
    )


@pytest.mark.requirement("mcp:messages")
def test_what_is_written_is_a_message() -> None:
    request = protocol.write_request(b'"x"', "tools/call", b'{"a":1.0}')
    note = protocol.write_notification("notifications/initialized")
    result = protocol.write_result(b"5", b"{}")
    error = protocol.write_error(b"", RpcError(-32601, "no", {"a": 1}))
    read = [read_messages(each)[0] for each in (request, note, result, error)]
    assert [
        (message.is_request, message.is_notification, message.is_response) for message in read
    ] == [
        (True, False, False),
        (False, True, False),
        (False, False, True),
        (False, False, True),
    ]
    assert bytes(read[0].params) == b'{"a":1.0}'
    assert json.loads(error) == {
        "jsonrpc": "2.0",
        "id": None,
        "error": {"code": -32601, "message": "no", "data": {"a": 1}},
    }


@pytest.mark.requirement("mcp:stateless")
@pytest.mark.parametrize(
    "value",
    ["plain", "a b", "é", "", " x", "x ", "a\r\nb", "=?base64?YQ==?=", "=?base64?x", "\x7f"],
)
def test_a_header_value_comes_back_and_is_plain_ascii(value: str) -> None:
    header = protocol.write_header_value(value)
    assert all(0x20 <= ord(char) <= 0x7E for char in header)
    assert protocol.read_header_value(header) == value


@pytest.mark.requirement("mcp:stateless")
@pytest.mark.parametrize(
    "header", ["=?base64?YQ?=", "=?base64?YR==?=", "=?base64?/w==?=", "=?base64?*?="]
)
def test_broken_base64_is_no_value(header: str) -> None:
    assert protocol.read_header_value(header) is None


@pytest.mark.requirement("mcp:stateless")
def test_annotated_arguments_become_headers() -> None:
    schema = {
        "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "on": {"type": "boolean", "x-mcp-header": "On"},
            "deep": {"properties": {"n": {"type": "integer", "x-mcp-header": "N"}}},
            "absent": {"type": "string", "x-mcp-header": "Absent"},
            "null": {"type": "string", "x-mcp-header": "Null"},
            "bad": {"type": "string", "x-mcp-header": "a\r\nb"},
            "list": {"type": "array", "items": {"properties": {"x": {"x-mcp-header": "X"}}}},
        }
    }
    arguments = {
        "region": "Zürich",
        "on": True,
        "deep": {"n": 10**20},
        "null": None,
        "bad": "x",
        "list": [{"x": "y"}],
    }
    assert protocol.param_headers(schema, arguments) == [
        ("mcp-param-region", "=?base64?WsO8cmljaA==?="),
        ("mcp-param-on", "true"),
        ("mcp-param-n", "100000000000000000000"),
    ]


@pytest.mark.requirement("mcp:messages")
@pytest.mark.parametrize("raw", [b"", b"[]", b"{", b"5", b"[" * 90000])
def test_what_is_no_object_has_no_members(raw: bytes) -> None:
    assert protocol.read_object(raw) == {}
