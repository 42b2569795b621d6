"""Malformed answers of a provider through the real proxy: refused before the headers, or delivered,
and alike in both forms.
"""

from __future__ import annotations

import json
from itertools import count
from typing import Any

import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tests.mediate.dialects.test_base_malformed_replies import ANSWERS, spoilt
from tests.peers import Answer
from tests.proxy.pod import Pod, headers
from tests.wires import Wire, anthropic, openai, responses

WIRES: dict[str, Wire] = {"openai": openai, "anthropic": anthropic, "responses": responses}
ENDS = {
    "openai": "data: [DONE]",
    "anthropic": "event: message_stop",
    "responses": "event: response.",
}
EVERY = 61  # A prime, so that each place meets some values, and each value some places
_numbers = count()


def prepared(pod: Pod) -> None:
    pod.agent("analyst", pod.tool("set", "POST"), pod.tool("get"))
    pod.service.routes["POST", "/set"] = JSONResponse({"order": 1})
    pod.service.routes["GET", "/get"] = JSONResponse({"price": 1})


def first(body: bytes, wire: Wire) -> Answer:
    """Answer the runner's request with a body, and the one with the tools' results
    with a good one.
    """

    async def answer(request: Request) -> Response:
        asked = (await request.body()).decode()
        has_results = any(
            name in asked
            for name in (
                '"tool_call_id"',
                '"tool_use_id"',
                '_call_output"',
                "mcp_approval_response",
            )
        )
        said = wire.reply("Done.", [], {}) if has_results else body
        return Response(said, media_type="application/json")

    return answer


def ask(pod: Pod, wire: Wire, words: str, *, stream: bool, **more: str) -> httpx2.Response:
    asked = wire.request([wire.user(words)], (), stream=stream, more={})
    return httpx2.post(
        f"{pod.url}{wire.PATH}", json=asked, headers=headers(pod, "analyst") | more, timeout=30
    )


def verdict(answer: httpx2.Response, name: str, *, stream: bool) -> tuple[int, str]:
    """Return the status, and the code of a refusal; a stream must end as its protocol says."""
    if answer.status_code != 200:
        error = answer.json().get("error") or {}
        return answer.status_code, str(error.get("code") or error.get("type"))
    if not stream:
        json.loads(answer.content)
    else:
        assert ENDS[name] in answer.text.strip().split("\n\n")[-1], answer.text[-300:]
    return 200, ""


@pytest.mark.requirement("stream:same-verdict")
@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize("name", ANSWERS)
def test_a_malformed_answer_has_the_same_verdict_streamed_and_whole(
    running: Pod, name: str
) -> None:
    prepared(running)
    wire = WIRES[name]
    bodies = [each for answer in ANSWERS[name][:4] for each in spoilt(answer)][::EVERY]
    differing: dict[str, Any] = {}
    for place, body in bodies:
        seen = set()
        for stream in (False, True):
            running.provider.script[:] = [first(body, wire)] * 8
            answer = ask(running, wire, f"{place} {next(_numbers)}", stream=stream)
            seen.add(verdict(answer, name, stream=stream))
        if len(seen) > 1 or any("internal" in code for _, code in seen):
            differing[place] = seen
    assert len(bodies) > 20
    assert differing == {}
    assert "Traceback" not in running.said()


@pytest.mark.requirement("stream:same-verdict")
@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize("part", ["text", None, [], 7])
@pytest.mark.parametrize("stream", [False, True])
def test_a_message_with_a_part_that_is_no_object_is_refused(
    running: Pod, part: Any, stream: bool
) -> None:
    prepared(running)
    item = {
        "type": "message",
        "id": "m",
        "role": "assistant",
        "status": "completed",
        "content": [part],
    }
    running.provider.script[:] = [JSONResponse(responses.response(item))] * 8
    answer = ask(running, responses, "Hi", stream=stream)
    assert verdict(answer, "responses", stream=stream) == (502, "provider_bad_response")


@pytest.mark.requirement("stream:same-verdict")
@pytest.mark.parametrize("stream", [False, True])
def test_a_write_beside_reasoning_whose_id_is_none_is_made_once(running: Pod, stream: bool) -> None:
    prepared(running)
    thought = {**responses.reasoning("so"), "id": []}
    body = json.dumps(
        responses.response(thought, responses.function_call("c1", "desk__set", "{}"))
    ).encode()
    running.provider.script[:] = [first(body, responses)] * 8
    answers = [
        ask(running, responses, "Set", stream=stream, **more)
        for more in ({}, {"x-stainless-retry-count": "1"})
    ]
    assert [verdict(each, "responses", stream=stream) for each in answers] == [(200, "")] * 2
    assert len([each for each in running.service.received if each.method == "POST"]) == 1
