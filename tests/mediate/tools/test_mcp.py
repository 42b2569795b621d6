"""The model's view of an MCP server's answer."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from claw_mediate.core.types import Arguments, Image, ModelResponse, Round, ToolCall, ToolResult
from claw_mediate.dialects.anthropic import DIALECT
from claw_mediate.tools import mcp, mcp_wire
from tests.mcp.scripted_server import STATELESS, Exchange, Script, ScriptedServer
from tests.mediate.tools.mcp_calling import READ, Caller, envelope, error_of, tool

PIXEL = base64.b64encode(b"x" * 100).decode()
TOKEN = "t0k3n-of-the-tool"


def result(answer: Any) -> Script:
    async def say(exchange: Exchange) -> None:
        await exchange.result(answer)

    return say


def raw_result(text: str) -> Script:
    """A result in its own spelling."""

    async def say(exchange: Exchange) -> None:
        await exchange.respond(
            200, b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (exchange.message["id"], text.encode())
        )

    return say


@pytest.mark.requirement("mcp:results", "mcp:parts", "mcp:answers")
@pytest.mark.parametrize(
    ("answer", "data"),
    [
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "{b}"}]}, "a\n{b}"),
        ({"content": [{"type": "text", "text": '{"a": 1}'}]}, '{"a": 1}'),
        (
            {"content": [{"type": "text", "text": "seen"}], "structuredContent": {"n": [1, None]}},
            {"n": [1, None]},
        ),
        ({"content": [{"type": "text", "text": "seen"}], "structuredContent": None}, "seen"),
        (
            {"content": [{"type": "image", "data": PIXEL, "mimeType": "image/png"}]},
            "[image, image/png, 100 bytes]",
        ),
        (
            {
                "content": [
                    {"type": "text", "text": "look"},
                    {"type": "audio", "data": PIXEL, "mimeType": "audio/wav"},
                ]
            },
            "look\n[audio, audio/wav, 100 bytes]",
        ),
        (
            {
                "content": [
                    {
                        "type": "resource_link",
                        "name": "log",
                        "uri": "file:///a.log",
                        "size": 7,
                        "mimeType": "text/plain",
                    }
                ]
            },
            "[resource_link, log, file:///a.log, text/plain, 7 bytes]",
        ),
        (
            {
                "content": [
                    {
                        "type": "resource",
                        "resource": {"uri": "file:///a", "mimeType": "text/plain", "text": "é!"},
                    }
                ]
            },
            "[resource, file:///a, text/plain, 3 bytes]\né!",
        ),
        (
            {
                "content": [
                    {
                        "type": "resource",
                        "resource": {
                            "uri": "file:///a",
                            "blob": base64.b64encode(b"abcd").decode(),
                        },
                    }
                ]
            },
            "[resource, file:///a, 4 bytes]",
        ),
        ({"content": [{"type": "hologram", "voxels": 7}]}, "[hologram]"),
        (
            {"content": [{"text": "typeless"}, 5, {"type": "text", "text": 5}]},
            "[part]" + "\n[a part that can't be read]" * 2,
        ),
    ],
)
@pytest.mark.parametrize("streams", [False, True])
async def test_each_kind_of_content_is_shown(
    server: ScriptedServer, caller: Caller, answer: dict[str, Any], data: Any, streams: bool
) -> None:
    server.streams = streams
    server.says("tools/call", result(answer))
    called = await caller.call()
    assert envelope(called) == {"ok": True, "data": data}
    assert (called.ok, called.ran, called.code) == (True, True, None)


def image(data: str = PIXEL, kind: str = "image/png", part: str = "image") -> dict[str, Any]:
    return {"type": part, "data": data, "mimeType": kind}


@pytest.mark.requirement("mcp:images")
@pytest.mark.parametrize(
    ("answer", "limit", "found"),
    [
        (
            {"content": [image(), {"type": "text", "text": "a"}, image(kind="image/webp")]},
            16384,
            ["image/png", "image/webp"],
        ),
        ({"content": [image()], "structuredContent": {"a": 1}}, 16384, ["image/png"]),
        ({"content": [image()], "isError": True}, 16384, []),
        (
            {
                "content": [
                    image(kind="image/svg+xml"),
                    image(part="audio"),
                    image(data="no base64"),
                ]
            },
            16384,
            [],
        ),
        (
            {"content": [image(), image()]},
            2 * len("[image, image/png, 100 bytes]") + 1 + len(PIXEL),
            ["image/png"],
        ),
        ({"content": [image()]}, len(PIXEL), []),
        ({"content": [image(data=base64.b64encode(TOKEN.encode() * 3).decode())]}, 16384, []),
    ],
)
async def test_images_that_fit_follow_the_text(
    server: ScriptedServer, caller: Caller, answer: Any, limit: int, found: list[str]
) -> None:
    server.says("tools/call", result(answer))
    called = await caller.call(result_bytes=limit, auth={"type": "bearer", "token": TOKEN})
    assert called.images == tuple((kind, PIXEL) for kind in found)


@pytest.mark.requirement("mcp:images")
def test_a_summary_leaves_images_out() -> None:
    call = ToolCall(
        "toolu_1", "desk__echo", "managed", Arguments({}, {}, "{}"), tool(ScriptedServer(port=1))
    )
    answer = ToolResult(
        call, b'{"ok":true,"data":"[image]"}', ok=True, images=(Image("image/png", PIXEL),)
    )
    message = b'[{"type":"tool_use","id":"toolu_1","name":"desk__echo","input":{}}]'
    hidden = DIALECT.write_hidden_rounds(
        [Round(1, ModelResponse(b"", message, (call,)), (answer,))], replayed=True
    )
    (block,) = json.loads(hidden[1])["content"]
    assert [part["type"] for part in block["content"]] == ["text", "image"]
    assert block["content"][1]["source"] == {
        "type": "base64",
        "media_type": "image/png",
        "data": PIXEL,
    }
    short = DIALECT.summarize(b",".join(hidden))
    assert PIXEL.encode() not in short
    assert "tool_result" in short.decode()


@pytest.mark.requirement("mcp:results")
@pytest.mark.parametrize("answer", [{"content": []}, {}])
async def test_an_empty_answer_is_a_success(
    server: ScriptedServer, caller: Caller, answer: Any
) -> None:
    server.says("tools/call", result(answer))
    assert envelope(await caller.call()) == {"ok": True}


@pytest.mark.requirement("mcp:exact")
async def test_numbers_keep_their_spelling_in_both_directions(
    server: ScriptedServer, caller: Caller
) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "number"}}}
    server.tools = [{"name": "echo", "inputSchema": schema}]
    server.says(
        "tools/call", raw_result('{"structuredContent":{"n":9007199254740993,"m":1e30,"d":1.10}}')
    )
    called = await caller.call('{"n": 12345678901234567890.10}', schema=schema)
    assert called.content == b'{"ok":true,"data":{"n":9007199254740993,"m":1e30,"d":1.10}}'
    assert b'"arguments":{"n":12345678901234567890.10}' in server.of("tools/call")[0].body


@pytest.mark.requirement("mcp:tool-error")
@pytest.mark.parametrize(
    ("answer", "details"),
    [
        (
            {"isError": True, "content": [{"type": "text", "text": "no such file"}]},
            {"details": "no such file"},
        ),
        (
            {"isError": True, "content": [], "structuredContent": {"why": 7}},
            {"details": {"why": 7}},
        ),
        ({"isError": True, "content": []}, {}),
    ],
)
async def test_an_error_of_the_tool_is_told_with_its_words(
    server: ScriptedServer, caller: Caller, answer: Any, details: dict[str, Any]
) -> None:
    server.says("tools/call", result(answer))
    called = await caller.call()
    error = {"code": "tool_error", "message": "The tool reports an error.", **details}
    assert envelope(called) == {"ok": False, "error": error}
    assert (called.ok, called.ran, called.code) == (False, True, "tool_error")


NO_FUNDS = {
    "isError": True,
    "content": [{"type": "text", "text": "no funds"}],
    "structuredContent": {"balance": 0.10},
}


@pytest.mark.requirement("mcp:error-words")
@pytest.mark.parametrize("streams", [False, True])
async def test_the_text_of_an_error_is_its_message_and_its_structure_the_details(
    server: ScriptedServer, caller: Caller, streams: bool
) -> None:
    server.streams = streams
    server.says("tools/call", result(NO_FUNDS))
    error = {"code": "tool_error", "message": "no funds", "details": {"balance": 0.10}}
    assert envelope(await caller.call()) == {"ok": False, "error": error}


@pytest.mark.requirement("mcp:error-words")
async def test_text_that_repeats_the_structure_is_told_once(
    server: ScriptedServer, caller: Caller
) -> None:
    server.says(
        "tools/call",
        result({**NO_FUNDS, "content": [{"type": "text", "text": '{ "balance": 0.10 }'}]}),
    )
    error = {
        "code": "tool_error",
        "message": "The tool reports an error.",
        "details": {"balance": 0.10},
    }
    assert envelope(await caller.call()) == {"ok": False, "error": error}


@pytest.mark.requirement("mcp:error-words", "mcp:truncation")
@pytest.mark.parametrize(("length", "details"), [(10, '{"n":"yyy'), (19, None), (25, None)])
async def test_text_and_structure_share_the_limit(
    server: ScriptedServer, caller: Caller, length: int, details: str | None
) -> None:
    words = "x" * length
    server.says(
        "tools/call",
        raw_result(
            json.dumps({**NO_FUNDS, "content": [{"type": "text", "text": words}]}).replace(
                '{"balance": 0.1}', '{"n":"' + "y" * 50 + '"}'
            )
        ),
    )
    read = envelope(await caller.call(result_bytes=19))
    assert read["error"]["message"] == words[:19]
    assert read["error"].get("details") == details
    assert (read["truncated"], read["original_bytes"]) == (True, length + 58)


@pytest.mark.requirement("mcp:tool-error")
@pytest.mark.parametrize(
    ("result_type", "words"), [("input_required", "asks for more input"), ("odd", "'odd'")]
)
async def test_a_tool_that_wants_more_input_is_an_error_that_says_so(
    server: ScriptedServer, caller: Caller, result_type: str, words: str
) -> None:
    server.versions = (STATELESS,)
    server.says("tools/call", result({"resultType": result_type, "inputRequests": []}))
    code, message = error_of(await caller.call())
    assert code == "tool_error"
    assert words in message


@pytest.mark.requirement("mcp:rpc-error")
@pytest.mark.parametrize(
    ("version", "status"),
    [("2025-11-25", 200), (STATELESS, 200), (STATELESS, 400), (STATELESS, 404)],
)
async def test_an_error_of_the_protocol_is_told_with_code_and_message(
    server: ScriptedServer, caller: Caller, version: str, status: int
) -> None:
    server.versions = (version,)

    async def refuse(exchange: Exchange) -> None:
        await exchange.error(-32602, "Unknown tool: echo", {"secret": "stack trace"}, status=status)

    server.says("tools/call", refuse)
    called = await caller.call()
    message = "The server refused the call, or failed in it."
    details = {"code": -32602, "message": "Unknown tool: echo"}
    assert envelope(called)["error"] == {
        "code": "mcp_error",
        "message": message,
        "details": details,
    }
    assert (called.ok, called.ran, called.code) == (False, True, "mcp_error")
    assert (await caller.call()).ok
    assert len(server.of("initialize")) == 1, "the session is kept"


@pytest.mark.requirement("mcp:truncation")
@pytest.mark.parametrize("is_error", [False, True])
async def test_a_long_text_is_cut_between_characters(
    server: ScriptedServer, caller: Caller, is_error: bool
) -> None:
    parts = [
        {"type": "text", "text": "é" * 10},
        {"type": "image", "data": PIXEL, "mimeType": "image/png"},
    ]
    server.says("tools/call", result({"content": parts, "isError": is_error}))
    read = envelope(await caller.call(result_bytes=7))
    assert (read["error"]["details"] if is_error else read["data"]) == "ééé"
    assert (read["truncated"], read["original_bytes"]) == (
        True,
        20 + 1 + len("[image, image/png, 100 bytes]"),
    )


@pytest.mark.requirement("mcp:truncation")
async def test_long_structured_content_is_cut_as_text(
    server: ScriptedServer, caller: Caller
) -> None:
    server.says("tools/call", raw_result('{"structuredContent":{"text": "' + "x" * 100 + '"}}'))
    read = envelope(await caller.call(result_bytes=20))
    assert (read["data"], read["original_bytes"]) == ('{"text": "xxxxxxxxxx', 112)


@pytest.mark.requirement("mcp:truncation")
async def test_an_answer_of_exactly_the_limit_is_whole(
    server: ScriptedServer, caller: Caller
) -> None:
    server.says("tools/call", result({"content": [{"type": "text", "text": "x" * 20}]}))
    assert envelope(await caller.call(result_bytes=20)) == {"ok": True, "data": "x" * 20}


@pytest.mark.requirement("mcp:claw-id")
@pytest.mark.parametrize("declares", [True, False])
async def test_claw_id_is_the_agent_and_nobody_else(
    server: ScriptedServer, caller: Caller, declares: bool
) -> None:
    schema = {"type": "object", "properties": {"claw_id": {"type": "string"}} if declares else {}}
    server.tools = [{"name": "echo", "inputSchema": schema}]
    assert (await caller.call('{"claw_id":"trader"}', schema=schema)).ok
    sent = server.of("tools/call")[0].message["params"]["arguments"]
    assert sent == ({"claw_id": "analyst"} if declares else {})


@pytest.mark.requirement("mcp:credentials")
@pytest.mark.parametrize(
    ("auth", "header", "value"),
    [
        ({"type": "bearer", "token": TOKEN}, "authorization", f"Bearer {TOKEN}"),
        ({"type": "header", "header": "X-Key", "token": TOKEN}, "x-key", TOKEN),
        (
            {"type": "basic", "username": "u", "password": TOKEN},
            "authorization",
            "Basic " + base64.b64encode(f"u:{TOKEN}".encode()).decode(),
        ),
    ],
)
async def test_every_message_has_the_credential(
    server: ScriptedServer, caller: Caller, auth: dict[str, Any], header: str, value: str
) -> None:
    assert (await caller.call(auth=auth)).ok
    await caller.executor.close()
    assert [exchange.rpc for exchange in server.received][-1] == "DELETE"
    assert {exchange.headers[header] for exchange in server.received} == {value}


@pytest.mark.requirement("mcp:credentials")
@pytest.mark.parametrize(
    "answer",
    [
        {"content": [{"type": "text", "text": f"you sent {TOKEN}"}]},
        {"content": [{"type": "text", "text": json.dumps({"a": TOKEN})}]},
        {"content": [], "structuredContent": {TOKEN: [TOKEN]}},
        {"content": [{"type": "image", "mimeType": TOKEN, "data": ""}], "isError": True},
        {"content": [{"type": "resource_link", "name": TOKEN, "uri": f"http://{TOKEN}"}]},
        {"resultType": TOKEN},
    ],
)
@pytest.mark.parametrize("limit", [16384, 15])
async def test_a_credential_that_a_server_says_back_never_reaches_the_model(
    server: ScriptedServer, caller: Caller, answer: Any, limit: int
) -> None:
    server.says("tools/call", result(answer))
    called = await caller.call(auth={"type": "bearer", "token": TOKEN}, result_bytes=limit)
    assert TOKEN not in called.content.decode()
    assert TOKEN[:6] not in called.content.decode()
    assert "••" in called.content.decode() or limit == 15
    shown = [
        *(response.body for response in caller.watcher.responses),
        *(str(one).encode() for one in caller.watcher.requests),
    ]
    assert not any(TOKEN.encode() in text for text in shown)


@pytest.mark.requirement("mcp:credentials")
async def test_a_credential_in_an_error_never_reaches_the_model(
    server: ScriptedServer, caller: Caller
) -> None:
    async def refuse(exchange: Exchange) -> None:
        await exchange.error(-32000, f"bad token {TOKEN}")

    async def forbid(exchange: Exchange) -> None:
        await exchange.respond(403, f"bad token {TOKEN}".encode(), content_type="text/plain")

    server.says("tools/call", refuse, forbid)
    for _ in range(2):
        text = (await caller.call(auth={"type": "bearer", "token": TOKEN})).content.decode()
        assert TOKEN not in text
        assert "••" in text


@pytest.mark.requirement("mcp:credentials")
async def test_a_missing_credential_sends_nothing(server: ScriptedServer, caller: Caller) -> None:
    called = await caller.call(auth={"type": "bearer", "token": {"secret": "nowhere"}})
    assert error_of(called) == ("request_failed", "The tool's credential is not available.")
    assert server.received == []


@pytest.mark.requirement("mcp:records")
async def test_an_observer_sees_the_call_with_its_session_and_without_its_credential(
    server: ScriptedServer, caller: Caller
) -> None:
    server.streams = True
    used = tool(server, auth={"type": "bearer", "token": TOKEN}, annotations=READ)
    called = await caller.call(used=used)
    assert called.mcp is not None
    assert called.mcp.model_dump() == {
        "server": "scripted 1.2",
        "session": "session-…",
        "protocol": "2025-11-25",
    }
    (hidden,) = caller.watcher.requests
    assert hidden.subject[:3] == ("tool", 1, "desk.echo")
    assert (hidden.request.method, hidden.request.url) == ("POST", f"{server.url}/mcp")
    assert hidden.request.server == "scripted 1.2"
    headers = dict(hidden.request.headers)
    assert headers["authorization"] == "••••••"
    assert (headers["mcp-session-id"], headers["mcp-protocol-version"]) == (
        "session-…",
        "2025-11-25",
    )
    assert json.loads(hidden.request.body)["params"] == {
        "name": "echo",
        "arguments": {"text": "hi"},
    }
    (response,) = caller.watcher.responses
    assert (response.status, response.content_type) == (200, "application/json")
    assert json.loads(response.body)["result"]["content"][0]["text"] == 'you said {"text": "hi"}'


@pytest.mark.requirement("mcp:odd-answers")
@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        (
            '{"isError":null,"resultType":null,"structuredContent":null,"content":[{"type":"text","text":"done"}]}',
            "done",
        ),
        (
            '{"content":[{"type":"text","text":"done","mimeType":null,"name":null,"size":null,"resource":null}]}',
            "done",
        ),
        ('{"content":[{"type":"text","text":"done","size":"7"}]}', "done"),
        ('{"content":[{"type":"text","text":"cut \\ud83d"}]}', "cut \ufffd"),
        (
            '{"content":[{"type":"text","text":"\\ude00 \\ud83d\\ude00 \\\\ud83d"}]}',
            "\ufffd \U0001f600 \\ud83d",
        ),
        ('{"content":null,"structuredContent":{"n":1.10}}', {"n": 1.10}),
        (
            '{"content":[{"type":"resource","resource":{"uri":"file:///a","mimeType":null,"text":"words","blob":null}}]}',
            "[resource, file:///a, 5 bytes]\nwords",
        ),
    ],
)
@pytest.mark.parametrize("streams", [False, True])
async def test_a_slightly_odd_answer_still_tells_what_the_tool_did(
    server: ScriptedServer, caller: Caller, answer: str, shown: Any, streams: bool
) -> None:
    async def say(exchange: Exchange) -> None:
        message = b'{"jsonrpc":"2.0","id":%d,"error":null,"result":%b}' % (
            exchange.message["id"],
            answer.encode(),
        )
        if not streams:
            await exchange.respond(200, message)
            return
        await exchange.begin_stream()
        await exchange.event(message)
        await exchange.end_stream()

    server.says("tools/call", say)
    assert envelope(await caller.call()) == {"ok": True, "data": shown}


@pytest.mark.requirement("mcp:turns")
async def test_others_have_their_turn_while_a_huge_answer_is_read(
    server: ScriptedServer, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []
    read = mcp.read_call_result
    monkeypatch.setattr(
        mcp,
        "read_call_result",
        lambda *given: threads.append(threading.current_thread().name) or read(*given),
    )
    assert (await caller.call()).ok
    server.says("tools/call", result({"content": [{"type": "text", "text": "x" * (2 << 20)}]}))
    assert (await caller.call()).ok
    assert [name == threading.main_thread().name for name in threads] == [True, False]


@pytest.mark.requirement("mcp:turns")
async def test_others_have_their_turn_while_a_flood_of_events_is_read() -> None:
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async def flood() -> AsyncIterator[bytes]:
        """Pieces that are there already: nothing is waited for."""
        for _ in range(100):
            yield b": comment\n" * 2_000
        yield b'data: {"jsonrpc":"2.0","id":1,"result":{}}\n\n'

    class Flood:
        aiter_raw = staticmethod(flood)

    other = asyncio.create_task(take_turns())
    finder = mcp_wire._ResponseFinder(b"1", lambda _: None)
    _, message = await mcp_wire._read_stream(Flood(), finder)  # type: ignore[arg-type]
    other.cancel()
    assert bytes(message.result) == b"{}"
    assert turns >= 90
