"""The MCP result of a call: its data in its own words, its failure, and a cut."""

from __future__ import annotations

import pytest
from starlette.responses import JSONResponse, Response

from tests.mediate.broker.pod import (
    BrokerPod,
    McpClient,
    failure,
)


@pytest.mark.requirement("broker:answer")
@pytest.mark.parametrize(
    ("said", "text", "structured"),
    [
        (Response(b"plain words", media_type="text/plain"), "plain words", None),
        (JSONResponse([1, 2]), "[1,2]", None),
        (JSONResponse("a \u20ac"), "a \u20ac", None),
        (
            Response(b'{"n": 9007199254740993, "x": 1.10}'),
            '{"n": 9007199254740993, "x": 1.10}',
            b'{"n": 9007199254740993, "x": 1.10}',
        ),
    ],
)
async def test_the_data_keeps_its_own_words(
    pod: BrokerPod, client: McpClient, said: Response, text: str, structured: bytes | None
) -> None:
    pod.service.routes["GET", "/balance"] = said
    params = {"name": "desk__balance"}
    reply = await client.ask("tools/call", params)
    assert reply.result["content"] == [{"type": "text", "text": text}]
    assert ("structuredContent" in reply.result) == (structured is not None)
    if structured is not None:
        assert b'"structuredContent":' + structured in reply.body


@pytest.mark.requirement("broker:answer")
async def test_a_call_without_data_has_an_empty_content(pod: BrokerPod, client: McpClient) -> None:
    pod.service.routes["GET", "/balance"] = Response(status_code=204)
    assert await client.call("desk__balance") == {"content": []}


@pytest.mark.requirement("broker:failure")
async def test_a_failure_of_the_service_is_an_error_with_code_and_message(
    pod: BrokerPod, client: McpClient
) -> None:
    pod.service.routes["GET", "/balance"] = JSONResponse({"why": "closed"}, 503)
    assert failure(await client.call("desk__balance")) == {
        "code": "http_503",
        "message": "The service answered with status 503.",
        "details": {"why": "closed"},
    }
    assert failure(await client.call("desk__nope"))["code"] == "unknown_tool"
    (call,) = pod.history()[1]["tool_trace"][0]["tool_calls"]
    assert (call["name"], call["service"], call["ran"]) == ("desk__nope", "", False)


@pytest.mark.requirement("broker:cut", "broker:limits")
async def test_a_long_result_is_cut_and_says_so(pod: BrokerPod) -> None:
    pod.agent("analyst", pod.tool("balance"), max_tool_result_bytes=100)
    pod.service.routes["GET", "/balance"] = Response("x" * 5000)
    result = await (await pod.client().open()).call("desk__balance")
    assert [part["text"] for part in result["content"]] == [
        "x" * 100,
        "[cut: this is the beginning of a result of 5000 bytes]",
    ]
    assert "structuredContent" not in result
