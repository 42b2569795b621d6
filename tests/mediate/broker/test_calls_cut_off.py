"""Native calls whose client leaves, whose proxy stops, or whose journal fails: what runs, and what is written."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from claw_state.url import StoreError
from tests.mediate.broker.pod import BrokerPod, Gate, McpClient, failure
from tests.waiting import happens


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
async def test_a_client_that_lost_its_connection_in_a_write_gets_the_answer_later(
    pod: BrokerPod, client: McpClient
) -> None:
    gate = pod.service.routes["POST", "/trade"] = Gate({"order": 9})
    call = client.begin("desk__trade", {"symbol": "X"}, 5)
    await happens(lambda: gate.asked == 1, "the write is on its way")
    call.cancel()
    await asyncio.wait([call])
    gate.is_open = True
    assert (await client.call("desk__trade", {"symbol": "X"}, 5))["structuredContent"] == {
        "order": 9
    }
    assert gate.asked == 1
    await happens(lambda: len(pod.history()) == 1, "the write is in history")
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
        await happens(lambda gate=gate: gate.asked == 1, "the call is on its way")  # type: ignore[misc]
        call.cancel()
        await asyncio.wait([call])
    await happens(lambda: len(pod.history()) == 1, "the read has ended")
    assert not writes.is_open
    writes.is_open = True
    await happens(lambda: len(pod.history()) == 2, "the write has ended")
    read_line, write_line = pod.history()
    assert [line["error"] for line in (read_line, write_line)] == ["runner_left", "runner_left"]
    assert read_line["tool_trace"][0]["tool_calls"][0]["result"]["error"]["code"] == "canceled"
    assert write_line["tool_trace"][0]["tool_calls"][0]["result"]["data"] == {"order": 9}
    assert (reads.asked, writes.asked) == (1, 1)


@pytest.mark.requirement("broker:disconnect")
async def test_a_canceled_request_ends_a_read(pod: BrokerPod, client: McpClient) -> None:
    gate = pod.service.routes["GET", "/balance"] = Gate({})
    call = asyncio.ensure_future(client.ask("tools/call", {"name": "desk__balance"}, 5))
    await happens(lambda: gate.asked == 1, "the call runs")
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
    await happens(lambda: gate.asked == 1, "the write is on its way")
    await client.post(
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}}
    )
    assert (await call).error == -32800
    gate.is_open = True
    assert (await client.ask("tools/call", params, 5)).result["structuredContent"] == {"order": 9}
    assert gate.asked == 1


@pytest.mark.requirement("broker:drain")
async def test_a_call_that_a_stop_cuts_off_is_answered_and_recorded_so(
    pod: BrokerPod, client: McpClient
) -> None:
    pod.agent("analyst", pod.tool("balance"), pod.tool("trade", write=True), max_parallel=2)
    pod.service.routes["POST", "/trade"] = pod.service.routes["GET", "/balance"] = gate = Gate({})
    calls = [client.begin("desk__trade", {"symbol": "X"}), client.begin("desk__balance")]
    await happens(lambda: gate.asked == 2, "both are on their way")
    calls.append(client.begin("desk__trade", {"symbol": "Y"}))
    await happens(lambda: pod.mediator.turns_under_way == 3, "the third waits for the others")
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
