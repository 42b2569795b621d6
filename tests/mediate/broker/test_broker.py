"""The broker in the process: who its clients are, its end, and what hostile clients get."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.mediate.broker.pod import BrokerPod, Gate, McpClient, read, token
from tests.search_size import scale_examples
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
async def test_a_method_that_the_broker_lacks_is_an_error(
    pod: BrokerPod, client: McpClient, method: str, params: Any, code: int
) -> None:
    reply = await client.ask(method, params)
    assert reply.error == code
    assert len(reply.body) < 500
    assert pod.history() == []


@pytest.mark.long
@pytest.mark.requirement("broker:hostile")
async def test_a_flood_of_sessions_of_one_agent_ends_no_other_agents(
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
    for _ in range(max(1_000, scale_examples(10_000))):
        last = await client.ask("initialize", info)
        assert last.status == 200
    assert (await first.ask("tools/list")).status == 404
    assert (await clerk.ask("tools/list")).status == 200
    client.headers["mcp-session-id"] = last.headers["mcp-session-id"]
    assert len(await client.list_tools()) == 2
