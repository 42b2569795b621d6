"""Retries through the real mitmdump: no effect twice, whatever broke
(docs/spec/mediation.md section 5).
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tests.peers import DelayedAnswer, calls, text
from tests.proxy.pod import Pod, headers
from tests.waiting import eventually

ASK = {"model": "gpt-test", "messages": [{"role": "user", "content": "Buy"}]}


def post(pod: Pod, body: dict[str, Any] | None = None, **more: str) -> httpx2.Response:
    sent = {**headers(pod, "analyst"), **more}
    return httpx2.post(f"{pod.url}/v1/chat/completions", headers=sent, json=body or ASK, timeout=30)


def trades(pod: Pod) -> list[str]:
    return [call.headers["idempotency-key"] for call in pod.service.received]


@pytest.mark.requirement("journal:resume")
def test_a_turn_that_failed_behind_a_write_is_resumed_and_the_write_is_not_made_again(
    running: Pod,
) -> None:
    running.service.routes["POST", "/trade"] = JSONResponse({"order": 1})
    refused = JSONResponse({"error": {"message": "no"}}, 400)
    running.provider.says(calls(("c1", "desk__trade", {"symbol": "X"})), refused)
    assert post(running).status_code == 400
    running.provider.says(text("Bought."))
    answer = post(running)
    assert answer.json()["choices"][0]["message"]["content"] == "Bought."
    assert len(trades(running)) == 1
    assert "order" in running.provider.received[-1].json["messages"][-1]["content"]
    turns = [line["turn_id"] for line in running.history("analyst")]
    assert turns[0] == turns[1]


@pytest.mark.requirement("journal:kill")
def test_a_turn_survives_kill_9_between_the_write_and_the_answer(running: Pod) -> None:
    running.service.routes["POST", "/trade"] = JSONResponse({"order": 1})

    async def dies(_request: Request) -> Response:
        running.kill()
        return Response(status_code=500)

    running.provider.says(calls(("c1", "desk__trade", {"symbol": "X"})), dies)
    with pytest.raises(httpx2.HTTPError):
        post(running)
    running.start()
    running.provider.says(text("Bought."))
    assert post(running).json()["choices"][0]["message"]["content"] == "Bought."
    assert len(trades(running)) == 1


@pytest.mark.requirement("journal:unknown")
def test_a_write_whose_result_was_never_recorded_is_not_made_again_and_the_model_is_told(
    running: Pod,
) -> None:
    async def dies(_request: Request) -> Response:
        running.kill()
        return JSONResponse({"order": 1})

    running.service.routes["POST", "/trade"] = dies
    running.provider.says(calls(("c1", "desk__trade", {"symbol": "X"})))
    with pytest.raises(httpx2.HTTPError):
        post(running)
    running.start()
    running.provider.says(text("I do not know."))
    assert post(running).status_code == 200
    assert len(trades(running)) == 1
    told = json.loads(running.provider.received[-1].json["messages"][-1]["content"])
    assert told["error"]["code"] == "outcome_unknown"


@pytest.mark.requirement("journal:join")
def test_a_request_that_comes_again_while_its_turn_runs_joins_it(running: Pod) -> None:
    held = DelayedAnswer(JSONResponse({"order": 1}))
    running.service.routes["POST", "/trade"] = held
    running.provider.says(calls(("c1", "desk__trade", {"symbol": "X"})), text("Bought."))

    def joined() -> bool:
        return [line["type"] for line in running.log()].count("join") == 2

    with ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(post, running) for _ in range(3)]
        eventually(joined, "two of three have joined the turn of the first")
        held.go.set()
        answers = [one.result(30) for one in asked]
    assert {answer.json()["choices"][0]["message"]["content"] for answer in answers} == {"Bought."}
    assert len(trades(running)) == 1
    assert len(running.provider.received) == 2


@pytest.mark.requirement("journal:retry-of-a-done-turn")
def test_a_done_turn_is_answered_again_only_when_the_runner_says_that_it_retries(
    running: Pod,
) -> None:
    running.provider.says(text("One."), text("Two."))
    assert post(running).json()["choices"][0]["message"]["content"] == "One."
    eventually(lambda: len(running.history("analyst")) == 1, "the turn is over")
    again = post(running, **{"x-stainless-retry-count": "1"})
    assert again.json()["choices"][0]["message"]["content"] == "One."
    assert post(running).json()["choices"][0]["message"]["content"] == "Two."


@pytest.mark.requirement("journal:call-in-flight")
def test_a_runner_that_gave_up_and_tries_again_gets_the_answer_of_the_write_that_was_on_its_way(
    running: Pod,
) -> None:
    asked, go = threading.Event(), threading.Event()

    async def slow(_request: Request) -> Response:
        asked.set()
        await asyncio.to_thread(go.wait, 30)
        return JSONResponse({"order": 1})

    running.service.routes["POST", "/trade"] = slow
    running.provider.says(calls(("c1", "desk__trade", {"symbol": "X"})), text("Bought."))
    # Send the bytes that the second request will have, so that both are the same request.
    body = httpx2.Request("POST", running.url, json=ASK).content
    sent = "".join(f"{name}: {value}\r\n" for name, value in headers(running, "analyst").items())
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n{sent}content-length: "
        f"{len(body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", running.port)) as runner:
        runner.sendall(head.encode() + body)
        assert asked.wait(30)
    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(post, running)
        go.set()
        assert second.result(timeout=30).json()["choices"][0]["message"]["content"] == "Bought."
    assert len(trades(running)) == 1
    assert len(running.provider.received) == 2


@pytest.mark.requirement("journal:not-yet-handed")
def test_a_stream_that_the_runner_left_in_the_middle_is_given_again_and_the_write_is_not_made_again(
    running: Pod,
) -> None:
    running.service.routes["POST", "/trade"] = JSONResponse({"order": 1})
    words = "bought " * 2_000_000
    running.provider.says(calls(("c1", "desk__trade", {"symbol": "X"})), text(words))
    streamed = {**ASK, "stream": True}
    sent = headers(running, "analyst")
    with httpx2.stream(
        "POST", f"{running.url}/v1/chat/completions", headers=sent, json=streamed, timeout=30
    ) as one:
        assert any(b"bought" in chunk for chunk in one.iter_bytes())
    answer = post(running, streamed)
    assert answer.text.count("bought") >= 2_000_000
    assert answer.text.endswith("data: [DONE]\n\n")
    assert len(trades(running)) == 1
    assert len(running.provider.received) == 2
