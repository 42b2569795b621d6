"""MCP servers that fail, lie, or are slow: a clear result for the model, nothing
sent twice, and bounded memory.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import tracemalloc
from typing import Any

import pytest

from claw_mediate.tools import mcp_wire
from tests.mcp.calling import READ, Caller, envelope, error_of, tool, until
from tests.mcp.scripted_server import STATELESS, Exchange, Script, ScriptedServer
from tests.waiting import free_port, growing_times

UNKNOWN = "Its outcome is unknown: it may have taken effect."
BROKE = "The service broke off its answer."
NO_RESULT = "The service's answer is no result of a tool."


def says(
    body: bytes, status: int = 200, content_type: str = "application/json", *headers: str
) -> Script:
    async def say(exchange: Exchange) -> None:
        await exchange.respond(status, body, *headers, content_type=content_type)

    return say


def streams(*chunks: bytes, ends: bool = True) -> Script:
    async def say(exchange: Exchange) -> None:
        await exchange.begin_stream()
        for chunk in chunks:
            await exchange.chunk(chunk.replace(b"ID", str(exchange.message["id"]).encode()))
        if ends:
            await exchange.end_stream()
        else:
            await exchange.until_left()

    return say


async def resets(exchange: Exchange) -> None:
    exchange.reset()


async def breaks_in_the_body(exchange: Exchange) -> None:
    await exchange.write(
        b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n{"jsonrpc"'
    )
    exchange.reset()


async def breaks_in_an_event(exchange: Exchange) -> None:
    await exchange.begin_stream()
    await exchange.chunk(b'data: {"jsonrpc":"2.0","id":%d,"result":' % exchange.message["id"])
    exchange.reset()


async def silent(exchange: Exchange) -> None:
    await exchange.until_left()
    exchange.server.left.set()


@pytest.mark.requirement("mcp:broken", "mcp:once")
@pytest.mark.parametrize(
    "broken",
    [
        resets,
        breaks_in_the_body,
        breaks_in_an_event,
        streams(),
        streams(b'data: {"jsonrpc":"2.0","id":ID,"result":{}}'),
    ],
    ids=["at once", "in the body", "in an event", "before any event", "before the event's end"],
)
@pytest.mark.parametrize(
    ("annotations", "code"), [(READ, "request_failed"), ({}, "outcome_unknown")]
)
async def test_a_broken_connection_leaves_the_outcome_of_a_write_unknown(
    server: ScriptedServer, caller: Caller, broken: Script, annotations: dict[str, Any], code: str
) -> None:
    await caller.call()
    server.says("tools/call", broken)
    result = await caller.call(annotations=annotations)
    message = BROKE if annotations else f"{BROKE} {UNKNOWN}"
    assert error_of(result) == (code, message)
    assert (result.ran, result.ok) == (True, False)
    assert len(server.of("tools/call")) == 2
    assert (await caller.call()).ok
    assert len(server.of("initialize")) == 1


@pytest.mark.requirement("mcp:broken")
@pytest.mark.parametrize("annotations", [READ, {}])
async def test_a_call_that_was_never_sent_has_certainly_not_run(
    caller: Caller, annotations: dict[str, Any]
) -> None:
    nowhere = ScriptedServer(port=free_port())
    result = await caller.call(used=tool(nowhere, annotations=annotations))
    assert error_of(result) == ("request_failed", "The service can't be reached.")
    assert not result.ran


@pytest.mark.requirement("mcp:broken")
@pytest.mark.parametrize("method", ["initialize", "notifications/initialized", "tools/list"])
async def test_a_connection_that_breaks_while_the_session_is_opened_has_sent_no_call(
    server: ScriptedServer, caller: Caller, method: str
) -> None:
    server.says(method, resets)
    result = await caller.call()
    assert error_of(result) == ("request_failed", BROKE)
    assert not result.ran
    assert server.of("tools/call") == []
    assert caller.watcher.failures == ["request_failed"]
    assert (await caller.call()).ok


@pytest.mark.requirement("mcp:broken")
async def test_a_server_that_restarts_is_called_again(
    server: ScriptedServer, caller: Caller
) -> None:
    await caller.call()
    server.stop()
    assert error_of(await caller.call()) == ("request_failed", "The service can't be reached.")
    server.forget_sessions()
    server.start()
    assert (await caller.call()).ok


@pytest.mark.requirement("mcp:cancel")
async def test_a_call_whose_time_is_over_is_cancelled_by_a_notification(
    server: ScriptedServer, caller: Caller
) -> None:
    await caller.call()
    for seconds in growing_times(0.1):
        server.scripts.clear()
        server.says("tools/call", silent)
        result = await caller.call(seconds=seconds)
        if len(server.of("tools/call")) > 1:
            break
    assert result.code == "timeout"
    assert "outcome is unknown" in envelope(result)["error"]["message"]
    sent = server.of("tools/call")[-1].message["id"]

    def notes() -> list[Exchange]:
        return [
            each
            for each in server.of("notifications/cancelled")
            if each.message["params"]["requestId"] == sent
        ]

    await until(notes)
    (note,) = notes()
    assert note.session == "session-1-of-the-server"
    assert (await caller.call()).ok
    assert len(server.of("initialize")) == 1


@pytest.mark.requirement("mcp:cancel")
async def test_without_a_session_the_end_of_the_connection_cancels(
    server: ScriptedServer, caller: Caller
) -> None:
    server.versions = (STATELESS,)
    await caller.call()
    server.says("tools/call", streams(b": working\n\n", ends=False))
    assert (
        await caller.call(seconds=0.1, annotations={"x-claw.timeout_ms": 100})
    ).code == "timeout"
    for seconds in growing_times(0.1):
        server.scripts.clear()
        server.says("tools/call", silent)
        before = len(server.of("tools/call"))
        assert (await caller.call(seconds=seconds)).code == "timeout"
        if len(server.of("tools/call")) > before:
            break
    await until(server.left.is_set)
    assert server.of("notifications/cancelled") == []


@pytest.mark.requirement("mcp:cancel")
async def test_a_cancellation_that_a_server_does_not_take_keeps_nobody_waiting(
    server: ScriptedServer, caller: Caller
) -> None:
    await caller.call()
    server.says("tools/call", *([silent] * 20))
    server.says("notifications/cancelled", *([silent] * 20))
    results = await asyncio.gather(*(caller.call(seconds=0.1) for _ in range(20)))
    assert {result.code for result in results} == {"timeout"}
    server.scripts.clear()  # On a busy machine some calls were given up before they were sent
    assert (await caller.call()).ok
    assert len(server.of("notifications/cancelled")) <= mcp_wire.MAX_NOTES


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


@pytest.mark.requirement("mcp:unreadable")
@pytest.mark.parametrize(
    "garbage",
    [says(b"<html>"), says(b'{"jsonrpc":"2.0","id":1,"result":[]}'), streams(b"data: {\n\n")],
)
@pytest.mark.parametrize("method", ["initialize", "tools/list"])
async def test_garbage_while_the_session_is_opened_is_a_clear_failure(
    server: ScriptedServer, caller: Caller, garbage: Script, method: str
) -> None:
    server.says(method, garbage)
    result = await caller.call()
    assert (result.code, result.ran) == ("request_failed", False)
    assert server.of("tools/call") == []


@pytest.mark.requirement("mcp:unreadable")
@pytest.mark.parametrize("session", ["a b", "é", "x" * 8193])
async def test_an_invalid_session_id_is_not_used(
    server: ScriptedServer, caller: Caller, session: str
) -> None:
    async def odd(exchange: Exchange) -> None:
        await exchange.result(
            {"protocolVersion": "2025-11-25", "capabilities": {}}, f"mcp-session-id: {session}"
        )

    server.says("initialize", odd)
    assert error_of(await caller.call()) == (
        "request_failed",
        "The service opened a session without a valid id.",
    )


@pytest.mark.requirement("mcp:long-session")
@pytest.mark.parametrize("length", [1025, 8192])
async def test_a_session_id_may_be_as_long_as_a_token(
    server: ScriptedServer, caller: Caller, length: int
) -> None:
    session = "x" * length
    server.sessions.add(session)

    async def opens(exchange: Exchange) -> None:
        await exchange.result(
            {"protocolVersion": "2025-11-25", "capabilities": {}}, f"mcp-session-id: {session}"
        )

    server.says("initialize", opens)
    assert (await caller.call()).ok
    assert server.of("tools/call")[0].headers["mcp-session-id"] == session


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
        await until(lambda: len(answers()) == 4)
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


@pytest.mark.requirement("mcp:statuses", "mcp:once")
@pytest.mark.parametrize("status", [401, 403, 405, 429, 500, 503])
async def test_an_error_status_is_the_result_of_the_call(
    server: ScriptedServer, caller: Caller, status: int
) -> None:
    server.says("tools/call", says(b'{"error":"no"}', status))
    result = await caller.call()
    assert (result.code, result.status_code, result.ran) == (f"http_{status}", status, True)
    assert envelope(result)["error"]["details"] == {"error": "no"}
    assert len(server.of("tools/call")) == 1
    assert (await caller.call()).ok


@pytest.mark.requirement("mcp:statuses")
@pytest.mark.parametrize("method", ["initialize", "notifications/initialized", "tools/list"])
@pytest.mark.parametrize("status", [401, 403, 404, 503])
async def test_an_error_status_while_the_session_is_opened_is_the_result(
    server: ScriptedServer, caller: Caller, status: int, method: str
) -> None:
    server.says(method, says(b"no", status, "text/plain"))
    result = await caller.call()
    assert (result.code, result.status_code, result.ran) == (f"http_{status}", status, False)
    assert server.of("tools/call") == []
    assert (await caller.call()).ok


@pytest.mark.requirement("mcp:refused-words")
@pytest.mark.parametrize("method", ["initialize", "notifications/initialized", "tools/list"])
async def test_what_a_server_says_when_it_refuses_a_session_is_told_without_secrets(
    server: ScriptedServer, caller: Caller, method: str
) -> None:
    auth = {"type": "bearer", "token": "t0k3n-of-the-tool"}
    server.says(method, says(b'{"error":"quota of t0k3n-of-the-tool is used up"}', 403))
    result = await caller.call(auth=auth)
    assert (result.code, result.status_code, result.ran) == ("http_403", 403, False)
    said = envelope(result)["error"]["details"]["error"]
    assert said.startswith("quota of ")
    assert said.endswith(" is used up")
    (event,) = [each for each in caller.events if each["type"] == "intervention"]
    assert event["intervention"] == "mcp_session_refused:desk"
    assert "is used up" in event["reason"]
    assert b"t0k3n-of-the-tool" not in result.content + json.dumps(caller.events).encode()


@pytest.mark.requirement("mcp:refused-words")
async def test_the_words_of_an_error_for_a_session_are_told(
    server: ScriptedServer, caller: Caller
) -> None:
    async def refuse(exchange: Exchange) -> None:
        await exchange.error(-32001, "the licence has ended")

    server.says("initialize", refuse)
    result = await caller.call()
    assert error_of(result) == (
        "request_failed",
        "The service refused to open a session (error -32001).",
    )
    assert envelope(result)["error"]["details"] == "the licence has ended"


@pytest.mark.requirement("mcp:refused-words")
@pytest.mark.parametrize("code", [-32000, -32602])
async def test_the_first_refusal_counts_if_the_other_era_fails_too(
    server: ScriptedServer, caller: Caller, code: int
) -> None:
    async def refuse(exchange: Exchange) -> None:
        await exchange.error(code, "the licence has ended", status=400)

    server.says("initialize", refuse)
    result = await caller.call()
    assert (result.code, result.status_code, result.ran) == ("http_400", 400, False)
    assert envelope(result)["error"]["details"] == "the licence has ended"
    assert (await caller.call()).ok


@pytest.mark.requirement("mcp:refused-words", "mcp:odd-answers")
@pytest.mark.parametrize(
    "error",
    [
        b'{"code":"E_LICENCE","message":"the licence has ended"}',
        b'{"message":"the licence has ended"}',
        b'"the licence has ended"',
    ],
)
@pytest.mark.parametrize("method", ["initialize", "tools/call"])
async def test_the_words_of_an_odd_error_are_told(
    server: ScriptedServer, caller: Caller, error: bytes, method: str
) -> None:
    async def refuse(exchange: Exchange) -> None:
        await exchange.respond(
            200, b'{"jsonrpc":"2.0","id":%d,"error":%b}' % (exchange.message["id"], error)
        )

    server.says(method, refuse)
    result = await caller.call()
    assert result.ran == (method == "tools/call")
    assert "the licence has ended" in json.dumps(envelope(result)["error"]["details"])


@pytest.mark.requirement("mcp:statuses")
@pytest.mark.parametrize("method", ["initialize", "tools/list", "tools/call"])
async def test_a_refusal_that_is_packed_unasked_has_its_status(
    server: ScriptedServer, caller: Caller, method: str
) -> None:
    server.says(method, says(gzip.compress(b"no"), 401, "text/plain", "content-encoding: gzip"))
    result = await caller.call()
    assert (result.code, result.status_code) == ("http_401", 401)


@pytest.mark.requirement("mcp:refused-words", "mcp:bounded")
async def test_a_long_refusal_is_cut(server: ScriptedServer, caller: Caller) -> None:
    server.says("initialize", says("é".encode() * 100_000, 503, "text/plain"))
    result = await caller.call()
    assert result.code == "http_503"
    assert len(result.content) < 5000
    assert len(caller.events[-1]["reason"].encode()) < 700


@pytest.mark.requirement("mcp:statuses")
@pytest.mark.parametrize("method", ["initialize", "tools/call"])
async def test_a_redirect_is_not_followed(
    server: ScriptedServer, caller: Caller, method: str
) -> None:
    server.says(method, says(b"", 307, "text/plain", f"location: {server.url}/elsewhere"))
    result = await caller.call()
    assert error_of(result) == (
        "redirect_refused",
        "The service answered with a redirect, which is not followed.",
    )
    assert (result.status_code, result.ran) == (307, method == "tools/call")
    assert len(server.of(method)) == 1


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


@pytest.mark.requirement("mcp:bounded")
async def test_a_huge_answer_while_the_session_is_opened_is_given_up(
    server: ScriptedServer, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_wire, "MAX_MESSAGE_BYTES", 1000)
    server.says("tools/list", says(b" " * 2000))
    assert error_of(await caller.call()) == ("request_failed", "The service's answer is too large.")


@pytest.mark.requirement("mcp:credentials")
@pytest.mark.parametrize("token", ["a\r\nX-Evil: 1", "tök€n-of-the-tool", "a\0bcdefgh"])
async def test_a_credential_that_no_header_can_hold_is_a_failed_call(
    server: ScriptedServer, caller: Caller, token: str
) -> None:
    result = await caller.call(auth={"type": "bearer", "token": token})
    assert error_of(result) == (
        "request_failed",
        "The service can't be called as it is configured.",
    )
    assert (result.ran, server.received) == (False, [])


@pytest.mark.requirement("mcp:unreadable")
async def test_a_list_of_tools_that_is_no_object_has_no_tools(
    server: ScriptedServer, caller: Caller
) -> None:
    async def odd(exchange: Exchange) -> None:
        await exchange.result([1])

    server.says("tools/list", odd)
    result = await caller.call()
    assert (result.code, result.ran) == ("request_failed", False)
