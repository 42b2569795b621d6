"""Answers of MCP servers on the wire: broken, huge, in pieces, or not ours."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest

from claw_mediate.tools import mcp_wire
from tests.mcp.scripted_server import Exchange, Script, ScriptedServer, says, streams
from tests.mediate.tools.mcp_calling import READ, Caller, envelope, error_of
from tests.waiting import eventually_async

UNKNOWN = "Its outcome is unknown: it may have taken effect."
BROKE = "The service broke off its answer."
NO_RESULT = "The service's answer is no result of a tool."


@pytest.mark.requirement("mcp:unreadable")
@pytest.mark.parametrize(
    "garbage",
    [
        says(b""),
        says(b"<html>", content_type="text/html"),
        says(b"{"),
        says(b"[]"),
        says(b"\xff\xfe"),
        says(b'{"jsonrpc":"2.0","id":"other","result":{}}'),
        says(b'{"jsonrpc":"2.0","id":null,"result":{}}'),
        says(b"", 202),
        says(b"[" * 100_000),
    ],
)
@pytest.mark.parametrize(
    ("annotations", "code"), [(READ, "request_failed"), ({}, "outcome_unknown")]
)
async def test_an_answer_that_is_no_message_is_a_clear_failure(
    server: ScriptedServer, caller: Caller, garbage: Script, annotations: dict[str, Any], code: str
) -> None:
    server.says("tools/call", garbage)
    result = await caller.call(annotations=annotations)
    assert error_of(result) == (code, NO_RESULT if annotations else f"{NO_RESULT} {UNKNOWN}")
    assert (await caller.call()).ok


@pytest.mark.requirement("mcp:unreadable")
@pytest.mark.parametrize(
    "result",
    ["5", "[]", "null", '{"content":5}', '{"content":[],"isError":"no"}', '{"content":{}}'],
)
async def test_an_answer_that_is_not_a_result_is_a_clear_failure(
    server: ScriptedServer, caller: Caller, result: str
) -> None:
    server.says(
        "tools/call", streams(b'data: {"jsonrpc":"2.0","id":ID,"result":%b}\n\n' % result.encode())
    )
    assert error_of(await caller.call(annotations=READ)) == ("request_failed", NO_RESULT)


@pytest.mark.requirement("mcp:line-ends")
@pytest.mark.parametrize("end", [b"\r", b"\n", b"\r\n"])
@pytest.mark.parametrize("ends", [True, False])
async def test_an_event_ends_at_its_blank_line_with_any_line_end(
    server: ScriptedServer, caller: Caller, end: bytes, ends: bool
) -> None:
    answer = b'{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"hi"}]}}'
    chunks = (b"\xef\xbb\xbfevent: message" + end, b"data: " + answer + end + end)
    server.says("tools/call", streams(*chunks, ends=ends))
    assert envelope(await caller.call(seconds=5)) == {"ok": True, "data": "hi"}


@pytest.mark.requirement("mcp:ignored")
async def test_messages_before_the_response_are_passed_over(
    server: ScriptedServer, caller: Caller
) -> None:
    server.says(
        "tools/call",
        streams(
            b"id: 1\ndata: \n\n: comment\n\n",
            b'data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"ID","progress":1}}\n\n',
            b'data: {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"working"}}\n\n',
            b'data: {"jsonrpc":"2.0","id":987654,"result":{"content":[{"type":"text","text":"wrong"}]}}\n\n',
            b'data: {"jsonrpc":"2.0","id":"ID","result":{"content":[{"type":"text","text":"wrong"}]}}\n\n',
            b'data: {"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"wrong"}}\n\n',
            b"data: garbage\n\ndata: [1,2]\n\ndata: \xff\n\n",
            b'event: ping\ndata: {"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"wrong"}]}}\n\n',
            b'data: {"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"right"}]}}\n\n',
            b'data: {"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"late"}]}}\n\n',
        ),
    )
    assert envelope(await caller.call()) == {"ok": True, "data": "right"}
    assert (await caller.call()).ok


@pytest.mark.requirement("mcp:ignored")
async def test_a_stream_that_stays_open_after_the_response_keeps_nobody_waiting(
    server: ScriptedServer, caller: Caller
) -> None:
    server.says(
        "tools/call",
        streams(b'data: {"jsonrpc":"2.0","id":ID,"result":{"content":[]}}\n\n', ends=False),
    )
    assert envelope(await caller.call()) == {"ok": True}
    assert (await caller.call()).ok


@pytest.mark.requirement("mcp:server-requests")
async def test_a_servers_own_request_is_answered_or_refused_and_is_not_the_result(
    server: ScriptedServer, caller: Caller
) -> None:
    async def ask(exchange: Exchange) -> None:
        await exchange.begin_stream()
        own = exchange.message["id"]
        for request_id, method in (
            (own, "ping"),
            ("r1", "roots/list"),
            (7.5, "sampling/createMessage"),
            (-1, "elicitation/create"),
        ):
            await exchange.event({"id": request_id, "method": method, "params": {}})
        await eventually_async(lambda: len(answers()) == 4, "all four are answered")
        await exchange.event({"id": own, "result": {"content": [{"type": "text", "text": "done"}]}})
        await exchange.end_stream()

    def answers() -> list[Exchange]:
        return [
            exchange
            for exchange in server.received
            if exchange.method == "POST" and not exchange.rpc
        ]

    server.says("tools/call", ask)
    assert envelope(await caller.call(seconds=10)) == {"ok": True, "data": "done"}
    own = server.of("tools/call")[0].message["id"]
    by_id = {json.dumps(exchange.message["id"]): exchange.message for exchange in answers()}
    assert by_id[str(own)]["result"] == {}
    assert by_id['"r1"']["result"] == {"roots": []}
    assert by_id["7.5"]["error"]["code"] == by_id["-1"]["error"]["code"] == -32601
    assert {exchange.session for exchange in answers()} == {"session-1-of-the-server"}


@pytest.mark.requirement("mcp:server-requests", "mcp:bounded")
async def test_a_flood_of_requests_is_not_answered_one_by_one(
    server: ScriptedServer, caller: Caller
) -> None:
    ping = b'data: {"jsonrpc":"2.0","id":"x","method":"ping"}\n\n'
    done = b'data: {"jsonrpc":"2.0","id":ID,"result":{"content":[]}}\n\n'
    server.says("tools/call", streams(*[ping * 1000] * 20, done))
    assert (await caller.call()).ok
    assert (
        len(
            [
                exchange
                for exchange in server.received
                if exchange.method == "POST" and not exchange.rpc
            ]
        )
        < 5000
    )


@pytest.mark.requirement("mcp:server-requests")
async def test_a_request_in_place_of_an_answer_is_a_failure(
    server: ScriptedServer, caller: Caller
) -> None:
    async def ask(exchange: Exchange) -> None:
        await exchange.reply({"id": exchange.message["id"], "method": "ping"})

    server.says("tools/call", ask)
    assert error_of(await caller.call(annotations=READ)) == ("request_failed", NO_RESULT)


@pytest.mark.requirement("mcp:bounded")
@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_huge_answer_is_given_up_in_bounded_memory(
    server: ScriptedServer, caller: Caller, is_stream: bool
) -> None:
    await caller.call()

    async def huge(exchange: Exchange) -> None:
        head = "content-type: text/event-stream" if is_stream else "content-type: application/json"
        await exchange.write(
            f"HTTP/1.1 200 OK\r\n{head}\r\ncontent-length: 100000000\r\n\r\n".encode()
        )
        await exchange.write(b'data: {"jsonrpc":"2.0","id":%d,"result":"' % exchange.message["id"])
        for _ in range(1600):
            await exchange.write(b"x" * 65536)

    server.says("tools/call", huge)
    tracemalloc.start()
    result = await caller.call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert error_of(result) == ("response_too_large", "The service's answer is too large.")
    assert result.ran
    assert peak < 5 * mcp_wire.MAX_MESSAGE_BYTES
    assert (await caller.call()).ok


@pytest.mark.requirement("mcp:bounded")
async def test_an_endless_stream_of_small_events_is_given_up(
    server: ScriptedServer, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_wire, "MAX_BODY_BYTES", 1_000_000)

    async def endless(exchange: Exchange) -> None:
        await exchange.begin_stream()
        while True:
            await exchange.chunk(b": still working\n\n" * 1000)

    server.says("tools/call", endless)
    assert (await caller.call()).code == "response_too_large"


@pytest.mark.requirement("mcp:bounded")
async def test_a_compressed_answer_is_not_unpacked(server: ScriptedServer, caller: Caller) -> None:
    server.says("tools/call", says(b"\x1f\x8b", 200, "application/json", "content-encoding: gzip"))
    assert error_of(await caller.call(annotations=READ)) == ("request_failed", BROKE)
    assert {exchange.headers["accept-encoding"] for exchange in server.received} == {"identity"}


@pytest.mark.requirement("mcp:bounded")
async def test_a_large_answer_below_the_limit_is_read_in_pieces(
    server: ScriptedServer, caller: Caller
) -> None:
    async def slow(exchange: Exchange) -> None:
        await exchange.begin_stream()
        text = json.dumps(
            {
                "jsonrpc": "2.0",
                "id": exchange.message["id"],
                "result": {"structuredContent": {"t": "x" * 3_000_000}},
            }
        )
        data = f"data: {text}\r\n\r\n".encode()
        for start in range(0, len(data), 50_001):
            await exchange.chunk(data[start : start + 50_001])
        await exchange.end_stream()

    server.says("tools/call", slow)
    read = envelope(await caller.call())
    assert read["truncated"]
    assert read["original_bytes"] == 3_000_009
