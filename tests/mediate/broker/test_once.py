"""Calls that come again: the same id is the same call, and equal calls are several."""

from __future__ import annotations

import asyncio

import pytest
from starlette.responses import JSONResponse

from claw_mediate.broker.once import AnswerMemory, RequestKey
from tests.mediate.broker.pod import BrokerPod, Gate, McpClient
from tests.waiting import happens


@pytest.mark.requirement("broker:equal-calls")
async def test_equal_calls_run_each_time(pod: BrokerPod, client: McpClient) -> None:
    for _ in range(3):
        await client.call("desk__trade", {"symbol": "X"})
    assert pod.calls_of("/trade") == 3
    assert len({line["turn_id"] for line in pod.history()}) == 3


@pytest.mark.requirement("broker:same-id")
async def test_the_same_id_in_the_same_session_gets_the_recorded_answer(
    pod: BrokerPod, client: McpClient
) -> None:
    first = await client.ask(
        "tools/call", {"name": "desk__trade", "arguments": {"symbol": "X"}}, 77
    )
    pod.service.routes["POST", "/trade"] = JSONResponse({"order": 8})
    again = await client.ask(
        "tools/call", {"name": "desk__trade", "arguments": {"symbol": "X"}}, 77
    )
    assert again.body == first.body
    assert pod.calls_of("/trade") == len(pod.history()) == 1
    text_id = await client.call("desk__trade", {"symbol": "X"}, "77")
    other_arguments = await client.call("desk__trade", {"symbol": "Y"}, 77)
    other_session = await (await pod.client().open()).call("desk__trade", {"symbol": "X"}, 77)
    assert [each["structuredContent"] for each in (text_id, other_arguments, other_session)] == [
        {"order": 8}
    ] * 3
    assert pod.calls_of("/trade") == 4


@pytest.mark.requirement("broker:same-id")
async def test_a_request_that_comes_again_while_its_call_runs_waits_for_that_call(
    pod: BrokerPod, client: McpClient
) -> None:
    gate = pod.service.routes["POST", "/trade"] = Gate({"order": 9})
    both = [client.begin("desk__trade", {"symbol": "X"}, 5) for _ in range(2)]
    await happens(lambda: gate.asked == 1, "the call runs")
    gate.is_open = True
    assert [(await each)["structuredContent"] for each in both] == [{"order": 9}] * 2
    assert gate.asked == 1


@pytest.mark.requirement("broker:same-id")
async def test_a_stateless_request_is_always_a_call(pod: BrokerPod) -> None:
    client = pod.client()
    for _ in range(2):
        reply = await client.stateless(
            "tools/call", {"name": "desk__trade", "arguments": {"symbol": "X"}}
        )
        assert reply.result["structuredContent"] == {"order": 7}
    assert pod.calls_of("/trade") == 2


@pytest.mark.requirement("broker:same-id")
async def test_memory_of_answers_is_bounded_and_the_oldest_goes_first() -> None:
    async def say(size: int) -> bytes:
        return b"x" * size

    memory, made = AnswerMemory(max_answers=3, max_bytes=100), list[int]()

    def ask(number: int, size: int = 10) -> asyncio.Task[bytes]:
        def start() -> asyncio.Task[bytes]:
            made.append(number)
            return asyncio.ensure_future(say(size))

        return memory.find_or_start(RequestKey("s", b"%d" % number, b""), start)

    for number in (1, 2, 3, 4, 4, 3, 2):
        await ask(number)
        await asyncio.sleep(0)
    assert made == [1, 2, 3, 4]
    for number in (1, 5, 5):
        await ask(number, 500)
        await asyncio.sleep(0)
    assert made == [1, 2, 3, 4, 1, 5]
    memory.forget_session("s")
    await ask(5)
    assert made[-1] == 5
    assert len(made) == 7
