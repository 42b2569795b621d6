"""The broker in the process: who its clients are, what happens when they leave or repeat a write,
and what hostile ones get.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from claw_state.url import StoreError
from tests.broker.pod import BrokerPod, Gate, McpClient, failure, read, token
from tests.waiting import eventually_async

# Eras and identity.


@pytest.mark.requirement("broker:eras")
@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
async def test_every_revision_with_a_handshake_is_served(pod: BrokerPod, version: str) -> None:
    client = await pod.client().open(version)
    assert client.headers["mcp-protocol-version"] == version
    assert (await client.ask("ping")).result == {}
    assert (await client.call("desk__balance"))["structuredContent"] == {"usd": 12}


@pytest.mark.requirement("broker:eras")
async def test_the_stateless_era_needs_no_handshake(pod: BrokerPod) -> None:
    client = pod.client()
    discovered = (await client.stateless("server/discover")).result
    assert discovered["supportedVersions"] == ["2026-07-28"]
    assert discovered["capabilities"] == {"tools": {"listChanged": True}}
    assert [tool["name"] for tool in (await client.stateless("tools/list")).result["tools"]] == [
        "desk__balance",
        "desk__trade",
    ]
    result = (await client.stateless("tools/call", {"name": "desk__balance"})).result
    assert (result["resultType"], result["structuredContent"]) == ("complete", {"usd": 12})


@pytest.mark.requirement("broker:identity")
async def test_a_client_without_the_agents_bearer_is_refused_as_everywhere(pod: BrokerPod) -> None:
    pod.agent("clerk", pod.tool("balance"))
    cases = {"": (401, "invalid_api_key"), "Bearer nonsense": (401, "invalid_api_key")}
    cases |= {
        "Bearer analyst:wrong": (403, "agent_not_admitted"),
        f"Bearer {token('clerk')}": (403, "agent_not_admitted"),
    }
    for authorization, refusal in cases.items():
        reply = await pod.client().ask("initialize", {}, authorization=authorization)
        assert (reply.status, json.loads(reply.body)["error"]["code"]) == refusal, authorization
    for path in (
        "/mcp",
        "/mcp/",
        "/mcp/clerk",
        "/MCP/clerk",
        "/mcp/analyst/more",
        "/mcp/%63lerk",
        "/mcp/../mcp/clerk",
    ):
        assert (await read(await pod.client().send(b"{}", path=path))).status == 403, path
    assert {event["error"] for event in pod.logged("error")} == {"not_admitted"}


@pytest.mark.requirement("broker:session-owner")
async def test_another_agents_session_is_not_found(pod: BrokerPod, client: McpClient) -> None:
    pod.agent("clerk", pod.tool("balance"))
    clerk = pod.client("clerk")
    clerk.headers["mcp-session-id"] = client.headers["mcp-session-id"]
    for method in ("GET", "DELETE"):
        assert (await clerk.send(method=method)).status == 404
    assert (await clerk.ask("tools/list")).status == 404
    assert len(await client.list_tools()) == 2


@pytest.mark.requirement("broker:origin")
async def test_a_page_of_another_origin_is_refused(client: McpClient) -> None:
    for origin in (
        "http://evil.example",
        "null",
        "http://localhost.evil.example",
        "http://cllama:8080",
    ):
        assert (await client.ask("tools/list", origin=origin)).status == 403, origin
    for origin in ("http://localhost:6274", "http://127.0.0.1", "https://[::1]:8443"):
        assert (await client.ask("tools/list", origin=origin)).status == 200, origin


@pytest.mark.requirement("broker:any-host")
async def test_any_host_is_served(client: McpClient) -> None:
    for host in ("cllama:8080", "proxy.example", "10.1.2.3"):
        assert (await client.ask("tools/list", host=host)).status == 200


# The journal, and who leaves.


@pytest.mark.requirement("broker:journal")
async def test_a_write_is_journaled_before_it_is_sent_and_a_read_is_not(
    pod: BrokerPod, client: McpClient
) -> None:
    journal, steps = pod.mediator.state.journal, list[str]()

    def note(name: str) -> None:
        method = getattr(journal, name)

        async def noted(*arguments: Any) -> Any:
            steps.append(f"{name} after {len(pod.service.received)} requests")
            return await method(*arguments)

        setattr(journal, name, noted)

    for name in ("begin", "record_intent", "record_result", "end", "mark_delivered"):
        note(name)
    await client.call("desk__balance")
    assert steps == []
    await client.call("desk__trade", {"symbol": "X"})
    assert steps == [
        "begin after 1 requests",
        "record_intent after 1 requests",
        "record_result after 2 requests",
        "end after 2 requests",
        "mark_delivered after 2 requests",
    ]


@pytest.mark.requirement("broker:journal")
@pytest.mark.parametrize("step", ["begin", "record_intent"])
async def test_a_write_that_can_not_be_journaled_is_not_sent(
    pod: BrokerPod, client: McpClient, step: str
) -> None:
    async def broken(*_: Any) -> Any:
        raise StoreError("the disk is full")

    setattr(pod.mediator.state.journal, step, broken)
    assert failure(await client.call("desk__trade", {"symbol": "X"}))["code"] == "request_failed"
    assert pod.service.received == []
    assert (await client.call("desk__balance"))["structuredContent"] == {"usd": 12}
    assert [event["error"] for event in pod.logged("error")] == ["journal_not_written"]


@pytest.mark.requirement("broker:disconnect")
async def test_a_client_that_loses_its_connection_in_a_write_gets_the_answer_when_it_asks_again(
    pod: BrokerPod, client: McpClient
) -> None:
    gate = pod.service.routes["POST", "/trade"] = Gate({"order": 9})
    call = client.begin("desk__trade", {"symbol": "X"}, 5)
    await eventually_async(lambda: gate.asked == 1, "the write is on its way")
    call.cancel()
    await asyncio.wait([call])
    gate.is_open = True
    assert (await client.call("desk__trade", {"symbol": "X"}, 5))["structuredContent"] == {
        "order": 9
    }
    assert gate.asked == 1
    await eventually_async(lambda: len(pod.history()) == 1, "the write is in history")
    assert pod.history()[0]["status"] == "ok"


@pytest.mark.requirement("broker:disconnect")
async def test_a_stateless_client_that_leaves_cancels_its_read_and_not_its_write(
    pod: BrokerPod,
) -> None:
    client = pod.client()
    reads = pod.service.routes["GET", "/balance"] = Gate({})
    writes = pod.service.routes["POST", "/trade"] = Gate({"order": 9})
    for gate, name in ((reads, "desk__balance"), (writes, "desk__trade")):
        call = asyncio.ensure_future(
            client.stateless("tools/call", {"name": name, "arguments": {"symbol": "X"}})
        )
        await eventually_async(lambda gate=gate: gate.asked == 1, "the call is on its way")  # type: ignore[misc]
        call.cancel()
        await asyncio.wait([call])
    await eventually_async(lambda: len(pod.history()) == 1, "the read has ended")
    assert not writes.is_open
    writes.is_open = True
    await eventually_async(lambda: len(pod.history()) == 2, "the write has ended")
    read_line, write_line = pod.history()
    assert [line["error"] for line in (read_line, write_line)] == ["runner_left", "runner_left"]
    assert read_line["tool_trace"][0]["tool_calls"][0]["result"]["error"]["code"] == "canceled"
    assert write_line["tool_trace"][0]["tool_calls"][0]["result"]["data"] == {"order": 9}
    assert (reads.asked, writes.asked) == (1, 1)


@pytest.mark.requirement("broker:disconnect")
async def test_a_canceled_request_ends_a_read(pod: BrokerPod, client: McpClient) -> None:
    gate = pod.service.routes["GET", "/balance"] = Gate({})
    call = asyncio.ensure_future(client.ask("tools/call", {"name": "desk__balance"}, 5))
    await eventually_async(lambda: gate.asked == 1, "the call runs")
    await client.post(
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}}
    )
    assert (await call).error == -32800
    assert (
        pod.history()[0]["tool_trace"][0]["tool_calls"][0]["result"]["error"]["code"] == "canceled"
    )


@pytest.mark.requirement("broker:disconnect")
async def test_a_canceled_request_does_not_end_a_write_whose_answer_is_kept(
    pod: BrokerPod, client: McpClient
) -> None:
    gate = pod.service.routes["POST", "/trade"] = Gate({"order": 9})
    params = {"name": "desk__trade", "arguments": {"symbol": "X"}}
    call = asyncio.ensure_future(client.ask("tools/call", params, 5))
    await eventually_async(lambda: gate.asked == 1, "the write is on its way")
    await client.post(
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}}
    )
    assert (await call).error == -32800
    gate.is_open = True
    assert (await client.ask("tools/call", params, 5)).result["structuredContent"] == {"order": 9}
    assert gate.asked == 1


@pytest.mark.requirement("broker:drain")
async def test_at_the_stop_calls_have_their_time_and_streams_end(
    pod: BrokerPod, client: McpClient
) -> None:
    gate = pod.service.routes["POST", "/trade"] = Gate({"order": 9})
    listening = (await client.send(method="GET")).chunks
    assert await anext(listening) == b": open\n\n"
    call = client.begin("desk__trade", {"symbol": "X"})
    await eventually_async(lambda: gate.asked == 1, "the write is on its way")
    assert pod.mediator.turns_under_way == 1
    pod.mediator.stop()
    with pytest.raises(StopAsyncIteration):
        await anext(listening)
    refused = await read(await client.send(b"{}"))
    assert refused.status == 503
    gate.is_open = True
    await pod.mediator.finish(20)
    assert (await call)["structuredContent"] == {"order": 9}


@pytest.mark.requirement("broker:reload")
async def test_a_mediator_that_is_replaced_ends_the_streams_of_clients_that_listen(
    pod: BrokerPod, client: McpClient
) -> None:
    listening = (await client.send(method="GET")).chunks
    assert await anext(listening) == b": open\n\n"
    subscribed = (await pod.client().listen()).chunks
    assert b"subscriptions/acknowledged" in await anext(subscribed)
    pod.mediator.retire()
    with pytest.raises(StopAsyncIteration):
        await anext(listening)
    assert b"-32800" in await anext(subscribed)
    with pytest.raises(StopAsyncIteration):
        await anext(subscribed)


@pytest.mark.requirement("broker:drain")
async def test_what_is_cut_off_at_the_stop_is_answered_and_recorded_as_such(
    pod: BrokerPod, client: McpClient
) -> None:
    pod.agent("analyst", pod.tool("balance"), pod.tool("trade", write=True), max_parallel=2)
    pod.service.routes["POST", "/trade"] = pod.service.routes["GET", "/balance"] = gate = Gate({})
    calls = [client.begin("desk__trade", {"symbol": "X"}), client.begin("desk__balance")]
    await eventually_async(lambda: gate.asked == 2, "both are on their way")
    calls.append(client.begin("desk__trade", {"symbol": "Y"}))
    await eventually_async(
        lambda: pod.mediator.turns_under_way == 3, "the third waits for the others"
    )
    pod.mediator.stop()
    await pod.mediator.finish(0)
    assert [failure(await call)["code"] for call in calls] == [
        "outcome_unknown",
        "canceled",
        "request_failed",
    ]
    assert gate.asked == 2
    assert {(line["status_code"], line["error"]) for line in pod.history()} == {
        (503, "shutting_down")
    }
    made = [line["tool_trace"][0]["tool_calls"][0]["ran"] for line in pod.history()]
    assert sorted(made) == [False, True, True]


# Hostile clients.


@pytest.mark.requirement("broker:hostile")
@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"\xff\xfe", 400),
        (b"[]", 400),
        (b"{" * 100_000, 400),
        (b'{"jsonrpc":"1.0","id":1,"method":"tools/list"}', 400),
        (b'{"jsonrpc":"2.0","id":{},"method":"tools/list"}', 400),
        (b"x" * ((4 << 20) + 1), 413),
    ],
)
async def test_garbage_is_refused_and_nothing_runs(
    client: McpClient, body: bytes, status: int
) -> None:
    assert (await client.post(body)).status == status
    assert len(await client.list_tools()) == 2


@pytest.mark.requirement("broker:hostile")
@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("tools/call", None, -32602),
        ("tools/call", {"name": 1}, -32602),
        ("tools/call", [], -32602),
        ("tools/list", {"cursor": "next"}, -32602),
        ("tools/call", {"arguments": {}}, -32602),
        ("resources/list", None, -32601),
        ("sampling/createMessage", {}, -32601),
        ("x" * 5000, None, -32601),
    ],
)
async def test_what_the_broker_does_not_have_is_an_error(
    pod: BrokerPod, client: McpClient, method: str, params: Any, code: int
) -> None:
    reply = await client.ask(method, params)
    assert reply.error == code
    assert len(reply.body) < 500
    assert pod.history() == []


@pytest.mark.long
@pytest.mark.requirement("broker:hostile")
async def test_ten_thousand_sessions_leave_the_last_ones_and_no_other_agents(
    pod: BrokerPod,
) -> None:
    pod.agent("clerk", pod.tool("balance"))
    clerk = await pod.client("clerk").open()
    client = pod.client()
    first = await pod.client().open()
    info = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    for _ in range(10_000):
        last = await client.ask("initialize", info)
        assert last.status == 200
    assert (await first.ask("tools/list")).status == 404
    assert (await clerk.ask("tools/list")).status == 200
    client.headers["mcp-session-id"] = last.headers["mcp-session-id"]
    assert len(await client.list_tools()) == 2
