"""Messages, headers and events of the protocol, without a socket."""

from __future__ import annotations

import json
from typing import Any

import pytest

from claw_mcp import protocol
from claw_mcp.protocol import MessageError, RpcError, read_messages


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
