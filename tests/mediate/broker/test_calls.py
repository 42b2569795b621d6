"""Calls through the broker, in the process: what becomes of each, and what is written of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from claw_contract.history import HistoryEntry
from claw_mediate.broker import calls
from claw_mediate.telemetry.metrics import Metrics
from tests.mcp.scripted_server import ECHO, Exchange, ScriptedServer
from tests.mediate.broker.pod import (
    PROVIDER_KEY,
    TOOL_TOKEN,
    BrokerPod,
    Gate,
    McpClient,
    failure,
    token,
)
from tests.waiting import happens


@pytest.mark.requirement("broker:call", "broker:answer")
async def test_a_call_runs_and_its_answer_has_text_and_structured_content(
    pod: BrokerPod, client: McpClient
) -> None:
    assert await client.call("desk__trade", {"symbol": "X"}) == {
        "content": [{"type": "text", "text": '{"order":7}'}],
        "structuredContent": {"order": 7},
    }
    (asked,) = pod.service.received
    assert (asked.method, asked.path, asked.json) == ("POST", "/trade", {"symbol": "X"})
    assert asked.headers["authorization"] == f"Bearer {TOOL_TOKEN}"
    assert asked.headers["x-claw-id"] == "analyst"
    turn_id = asked.headers["x-claw-turn"]
    assert asked.headers["idempotency-key"] == f"{turn_id}.1.0"
    assert turn_id == pod.history()[0]["turn_id"]


@pytest.mark.requirement("broker:call")
async def test_claw_id_is_the_authenticated_agent_whatever_the_client_sends(pod: BrokerPod) -> None:
    schema = {"type": "object", "properties": {"claw_id": {"type": "string"}}}
    pod.agent("analyst", pod.tool("trade", write=True, schema=schema))
    await (await pod.client().open()).call("desk__trade", {"claw_id": "clerk"})
    assert pod.service.received[0].json == {"claw_id": "analyst"}


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    scripted = ScriptedServer().start()
    yield scripted
    scripted.stop()


@pytest.mark.requirement("broker:over-mcp")
async def test_an_answer_has_the_images_of_a_tool_over_mcp_and_history_its_session(
    pod: BrokerPod, server: ScriptedServer
) -> None:
    image = {"type": "image", "data": "eHg=", "mimeType": "image/png"}

    async def paint(exchange: Exchange) -> None:
        await exchange.result({"content": [{"type": "text", "text": "Look."}, image]})

    server.says("tools/call", paint)
    execution = {"transport": "mcp", "service": "desk", "base_url": server.url, "tool_name": "echo"}
    pod.agent("analyst", pod.tool("echo", schema=ECHO["inputSchema"], execution=execution))
    result = await (await pod.client().open()).call("desk__echo", {"text": "hi"})
    assert result == {
        "content": [{"type": "text", "text": "Look.\n[image, image/png, 2 bytes]"}, image]
    }
    (call,) = pod.history()[0]["tool_trace"][0]["tool_calls"]
    assert call["mcp"] == {
        "server": "scripted 1.2",
        "session": "session-…",
        "protocol": "2025-11-25",
    }


@pytest.mark.requirement("mcp:drift", "broker:over-mcp")
async def test_a_tool_that_its_server_changed_is_not_called_and_an_event_says_why(
    pod: BrokerPod, server: ScriptedServer
) -> None:
    execution = {"transport": "mcp", "service": "desk", "base_url": server.url, "tool_name": "echo"}
    pod.agent("analyst", pod.tool("echo", execution=execution))
    client = await pod.client().open()
    for _ in range(2):
        assert failure(await client.call("desk__echo"))["code"] == "request_failed"
    assert server.of("tools/call") == []
    (event,) = pod.logged("intervention")
    assert event["intervention"] == "managed_tool_quarantined:desk.echo"
    assert "it differs at 'properties'" in event["reason"]


@pytest.mark.requirement("broker:schema", "broker:failure")
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({}, "schema_validation"),
        ({"symbol": 1}, "schema_validation"),
        ([], "invalid_arguments"),
        ("X", "invalid_arguments"),
    ],
)
async def test_arguments_that_do_not_fit_are_not_run(
    pod: BrokerPod, client: McpClient, arguments: Any, code: str
) -> None:
    error = failure(await client.call("desk__trade", arguments))
    assert error["code"] == code
    assert error["message"].startswith("The call was not run")
    assert pod.service.received == []
    (line,) = pod.history()
    assert line["tool_trace"][0]["tool_calls"][0]["ran"] is False


@pytest.mark.requirement("broker:schema")
async def test_null_arguments_count_as_none(client: McpClient) -> None:
    reply = await client.ask("tools/call", {"name": "desk__balance", "arguments": None})
    assert reply.result["structuredContent"] == {"usd": 12}


@pytest.mark.requirement("broker:schema")
async def test_a_repeated_key_is_refused_and_numbers_keep_their_spelling(
    pod: BrokerPod, client: McpClient
) -> None:
    def body(arguments: bytes) -> bytes:
        return (
            b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"desk__trade","arguments":%s}}'
            % (
                len(arguments),
                arguments,
            )
        )

    twice = await client.post(body(b'{"symbol":"A","symbol":"B"}'))
    assert failure(twice.result)["code"] == "invalid_arguments"
    pod.agent("analyst", pod.tool("trade", write=True))
    await client.post(body(b'{"n":9007199254740993,"x":1.10}'))
    assert [asked.body for asked in pod.service.received] == [b'{"n":9007199254740993,"x":1.10}']


@pytest.mark.requirement("broker:limits")
async def test_a_native_call_is_cut_off_after_the_time_of_a_mediated_one(pod: BrokerPod) -> None:
    pod.agent("analyst", pod.tool("balance"), pod.tool("trade", write=True), timeout_per_tool_ms=50)
    pod.service.routes["GET", "/balance"] = pod.service.routes["POST", "/trade"] = Gate({})
    client = await pod.client().open()
    assert failure(await client.call("desk__balance"))["code"] == "timeout"
    assert "outcome is unknown" in failure(await client.call("desk__trade"))["message"]


@pytest.mark.requirement("broker:concurrency")
async def test_no_more_calls_run_at_once_than_in_a_turn(pod: BrokerPod) -> None:
    pod.agent("analyst", pod.tool("balance"), max_parallel=2)
    gate = pod.service.routes["GET", "/balance"] = Gate({"usd": 1})
    client = await pod.client().open()
    running = [client.begin("desk__balance") for _ in range(6)]
    await happens(lambda: gate.asked == 2, "two calls run")
    gate.is_open = True
    assert [(await call)["structuredContent"] for call in running] == [{"usd": 1}] * 6
    assert (gate.asked, gate.most) == (6, 2)


@pytest.mark.requirement("broker:concurrency")
async def test_a_call_that_finds_no_room_in_its_time_is_refused_and_not_run(pod: BrokerPod) -> None:
    pod.agent("analyst", pod.tool("balance"), max_parallel=1)
    gate = pod.service.routes["GET", "/balance"] = Gate({"usd": 1})
    client = await pod.client().open()
    first = client.begin("desk__balance")
    await happens(lambda: gate.asked == 1, "the first has the room")
    # Of two calls with the same time the first might give its room free before the other one is
    # refused.
    pod.agent(
        "analyst",
        pod.tool("balance"),
        max_parallel=1,
        timeout_per_tool_ms=500,
        total_timeout_ms=500,
    )
    assert failure(await client.call("desk__balance"))["code"] == "too_many_calls"
    gate.is_open = True
    assert (await first)["structuredContent"] == {"usd": 1}
    assert gate.asked == 1


@pytest.mark.requirement("broker:concurrency")
async def test_a_call_is_refused_where_too_many_wait(
    pod: BrokerPod, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert calls.MAX_CALLS == 128
    monkeypatch.setattr(calls, "MAX_CALLS", 2)
    pod.agent("analyst", pod.tool("balance"), max_parallel=1)
    gate = pod.service.routes["GET", "/balance"] = Gate({"usd": 1})
    client = await pod.client().open()
    running = [client.begin("desk__balance") for _ in range(3)]
    await happens(lambda: gate.asked == 1, "one runs, and two wait")
    assert failure(await client.call("desk__balance"))["code"] == "too_many_calls"
    gate.is_open = True
    assert [(await call)["structuredContent"] for call in running] == [{"usd": 1}] * 3


@pytest.mark.requirement("broker:budget")
async def test_a_spent_budget_neither_refuses_nor_counts_a_native_call(pod: BrokerPod) -> None:
    budget = {"max_requests": 1, "window": "1h", "behavior": "hard_stop"}
    pod.agent("analyst", pod.tool("balance"), metadata={"budget": budget})
    client = await pod.client().open()
    for _ in range(3):
        assert "structuredContent" in await client.call("desk__balance")
    assert pod.logged("intervention") == []


# What is written.


@pytest.mark.requirement("broker:history", "history:free-turns-short")
@pytest.mark.parametrize(
    ("name", "arguments"),
    [("desk__none", {"note": "x" * 200_000}), ("desk__trade", {"symbol": ["x" * 200_000]})],
    ids=["unknown", "unfit"],
)
async def test_history_has_only_the_beginning_of_a_call_that_did_not_run(
    pod: BrokerPod, client: McpClient, name: str, arguments: Any
) -> None:
    assert (await client.call(name, arguments))["isError"]
    (line,) = pod.history()
    assert line["tool_trace"][0]["tool_calls"][0]["ran"] is False
    assert len(json.dumps(line)) < 20_000


@pytest.mark.requirement("broker:hostile")
async def test_a_name_that_no_tool_can_have_is_refused_and_written_nowhere(
    pod: BrokerPod, client: McpClient
) -> None:
    reply = await client.ask("tools/call", {"name": "x" * 100_000})
    assert reply.message["error"]["code"] == -32602
    assert pod.history() == []
    assert len(json.dumps(pod.events)) < 10_000


@pytest.mark.requirement("broker:history")
async def test_each_call_is_one_line_of_history(pod: BrokerPod, client: McpClient) -> None:
    await client.list_tools()
    await client.call("desk__trade", {"symbol": "X"}, 3)
    (line,) = pod.history()
    entry = HistoryEntry.model_validate_json(json.dumps(line))
    assert (entry.delivery, entry.path, entry.claw_id, entry.status, entry.status_code) == (
        "native",
        "/mcp/analyst",
        "analyst",
        "ok",
        200,
    )
    assert (entry.effective_provider, entry.effective_model, entry.requested_model) == ("", "", "")
    assert line["usage"] == {
        "prompt_tokens": 0,
        "completion_tokens": 0,
        "cached_tokens": 0,
        "reported_cost_usd": None,
        "total_rounds": 0,
    }
    assert entry.tools_offered == ("desk__balance", "desk__trade")
    ((call,),) = [each.tool_calls for each in entry.tool_trace]
    assert (call.name, call.service, call.status, call.effect, call.ran) == (
        "desk.trade",
        "desk",
        "ok",
        "write",
        True,
    )
    assert (call.arguments, call.result) == (
        {"symbol": "X"},
        {"ok": True, "status_code": 200, "data": {"order": 7}},
    )
    assert line["request_original"]["params"] == {
        "name": "desk__trade",
        "arguments": {"symbol": "X"},
    }
    assert line["response"]["json"]["structuredContent"] == {"order": 7}


@pytest.mark.requirement("broker:log")
async def test_each_call_is_logged_and_counted(pod: BrokerPod, client: McpClient) -> None:
    await client.call("desk__balance")
    await client.call("desk__trade", {})
    events = [event for event in pod.events if event["turn_id"] is not None]
    assert [event["type"] for event in events] == [
        "request",
        "tool_call",
        "response",
        "request",
        "tool_call",
        "intervention",
        "response",
    ]
    first = events[:3]
    assert {event["turn_id"] for event in first} == {pod.history()[0]["turn_id"]}
    assert (first[0]["path"], first[0]["tools_count"], first[0]["mediated"]) == (
        "/mcp/analyst",
        2,
        False,
    )
    assert (first[1]["name"], first[1]["status"], first[1]["ran"]) == ("desk.balance", "ok", True)
    assert first[2]["history_hash"] == pod.history()[0]["hash"]
    assert events[5]["intervention"] == "managed_tool_schema_rejected:desk.trade"
    metrics = Metrics()
    for event in pod.events:
        metrics.count(event)
    text = metrics.text("")[0].decode()
    assert (
        'claw_tool_calls_total{agent="analyst",code="",status="ok",tool="desk.balance"} 1.0' in text
    )
    assert 'claw_requests_ended_total{agent="analyst",mediated="no",outcome="ok"} 2.0' in text
    assert 'provider=""' not in text


@pytest.mark.requirement("broker:redacted")
async def test_no_credential_of_the_pod_is_in_an_answer_history_or_log(
    pod: BrokerPod, client: McpClient
) -> None:
    async def echo(request: Request) -> Response:
        return JSONResponse(
            {"headers": dict(request.headers), "query": request.url.query, "key": PROVIDER_KEY}
        )

    pod.service.routes["GET", "/balance"] = echo
    reply = await client.ask(
        "tools/call",
        {"name": "desk__balance", "arguments": {"mine": token("analyst"), "k": PROVIDER_KEY}},
    )
    assert reply.result["structuredContent"]["key"] != PROVIDER_KEY
    written = reply.body.decode() + json.dumps(pod.history()) + json.dumps(pod.events)
    for secret in (TOOL_TOKEN, PROVIDER_KEY, token("analyst"), "secret-of-analyst"):
        assert secret not in written
    assert token("analyst") not in pod.service.received[0].path
