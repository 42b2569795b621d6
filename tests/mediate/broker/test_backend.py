"""The broker's list of tools: which an agent's client gets, and when it hears of a change."""

from __future__ import annotations

import asyncio

import pytest

from claw_mediate.broker import broker
from tests.mediate.broker.pod import BrokerPod, McpClient, failure


@pytest.mark.requirement("broker:list")
async def test_the_list_has_the_agents_native_tools_with_the_schema_for_models(
    pod: BrokerPod,
) -> None:
    asks_for_id = {
        "type": "object",
        "properties": {"claw_id": {"type": "string"}, "n": {}},
        "required": ["claw_id", "n"],
    }
    pod.agent(
        "analyst",
        pod.tool("balance", annotations={"title": "Balance"}),
        pod.tool("trade", write=True, schema=asks_for_id),
    )
    pod.agent("clerk", pod.tool("stamp"))
    assert await (await pod.client().open()).list_tools() == [
        {
            "name": "desk__balance",
            "description": "The balance of the desk.",
            "inputSchema": {"type": "object"},
            "annotations": {"title": "Balance", "readOnlyHint": True},
        },
        {
            "name": "desk__trade",
            "description": "The trade of the desk.",
            "inputSchema": {"type": "object", "properties": {"n": {}}, "required": ["n"]},
            "annotations": {"readOnlyHint": False},
        },
    ]
    assert [tool["name"] for tool in await (await pod.client("clerk").open()).list_tools()] == [
        "desk__stamp"
    ]


@pytest.mark.requirement("broker:delivery")
async def test_a_mediated_tool_is_neither_listed_nor_called(pod: BrokerPod) -> None:
    pod.agent("analyst", pod.tool("balance", delivery="mediated"), pod.tool("trade", write=True))
    client = await pod.client().open()
    assert [tool["name"] for tool in await client.list_tools()] == ["desk__trade"]
    assert failure(await client.call("desk__balance"))["code"] == "unknown_tool"
    assert pod.service.received == []


@pytest.mark.requirement("broker:delivery")
async def test_an_agent_without_native_tools_has_an_empty_list(pod: BrokerPod) -> None:
    pod.agent("analyst")
    assert await (await pod.client().open()).list_tools() == []


@pytest.mark.requirement("broker:reload")
async def test_after_a_reload_the_list_is_new_and_listening_clients_hear_of_it(
    pod: BrokerPod, client: McpClient
) -> None:
    assert len(await client.list_tools()) == 2
    listening = (await client.send(method="GET")).chunks
    assert await anext(listening) == b": open\n\n"
    pod.agent("analyst", pod.tool("balance"))
    assert [tool["name"] for tool in await client.list_tools()] == ["desk__balance"]
    assert failure(await client.call("desk__trade", {"symbol": "X"}))["code"] == "unknown_tool"
    assert b"notifications/tools/list_changed" in await anext(listening)
    await listening.aclose()  # type: ignore[attr-defined]


@pytest.mark.requirement("broker:list-changed")
@pytest.mark.parametrize("is_stateless", [False, True])
@pytest.mark.parametrize("is_reread", [False, True])
async def test_a_client_that_only_listens_hears_once_of_each_change_of_its_own_tools(
    pod: BrokerPod, monkeypatch: pytest.MonkeyPatch, is_stateless: bool, is_reread: bool
) -> None:
    monkeypatch.setattr(broker, "_WATCH_SECONDS", 3600 if is_reread else 0.01)
    pod.agent("clerk", pod.tool("stamp"))
    others = (await (await pod.client("clerk").open()).send(method="GET")).chunks
    opening = await anext(others)
    if is_stateless:
        listening = (await pod.client().listen()).chunks
        assert b"subscriptions/acknowledged" in await anext(listening)
    else:
        listening = (await (await pod.client().open()).send(method="GET")).chunks
        assert await anext(listening) == opening == b": open\n\n"
    waiting = asyncio.ensure_future(anext(others))
    for names in (("balance",), ("balance", "trade")):
        pod.agent("analyst", *map(pod.tool, names), max_rounds=3)
        if is_reread:
            pod.mediator.reread()
        async with asyncio.timeout(20):
            assert b"notifications/tools/list_changed" in await anext(listening)
    pod.agent("analyst", *map(pod.tool, names), max_rounds=4)
    pod.mediator.reread()
    pod.mediator.retire()
    assert not any([b"list_changed" in chunk async for chunk in listening]), (
        "other settings are none of its business"
    )
    with pytest.raises(StopAsyncIteration):
        await waiting
