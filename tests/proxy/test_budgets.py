"""Budgets through the real proxy, as the real SDKs see them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from tests.peers import text
from tests.proxy.pod import Pod, headers
from tests.waiting import eventually

HI: Any = [{"role": "user", "content": "Go"}]


def ask(client: openai.OpenAI, words: str = "Hi") -> Any:
    return client.chat.completions.create(
        model="gpt-test", messages=[{"role": "user", "content": words}]
    )


def costs(pod: Pod) -> list[Any]:
    return [line["cost_usd"] for line in pod.log() if line["type"] == "response"]


def interventions(pod: Pod) -> list[str]:
    return [line["intervention"] for line in pod.log() if line["type"] == "intervention"]


@pytest.mark.requirement("budget:end-to-end")
@pytest.mark.parametrize("agent_id", ["analyst", "plain"])
def test_a_budget_that_is_spent_is_a_429_for_the_sdk_also_after_a_restart(
    running: Pod, agent_id: str
) -> None:
    running.agent("plain")
    running.budget(agent_id, max_requests=2, window="1h")
    running.provider.says(text("one"), text("two"), text("three"))
    with running.client(agent_id) as client:
        assert [ask(client).choices[0].message.content for _ in range(2)] == ["one", "two"]
    for restarted in (False, True):
        if restarted:
            running.stop()
            running.start()
        with (
            running.client(agent_id, max_retries=2) as patient,
            pytest.raises(openai.RateLimitError) as caught,
        ):
            ask(patient)
        assert caught.value.code == "budget_exceeded"
        assert 3400 < int(caught.value.response.headers["retry-after"]) <= 3660
        assert caught.value.response.json()["budget"]["requests"] == 2
    assert len(running.provider.received) == 2
    running.budget(agent_id, max_requests=3, window="1h")
    with running.client(agent_id) as client:
        assert ask(client).choices[0].message.content == "three"


@pytest.mark.requirement("budget:end-to-end")
def test_an_sdk_that_waits_as_it_is_told_gets_through(running: Pod) -> None:
    running.budget("analyst", max_requests=1, window="4s", behavior="rate_limit")
    with running.client() as client:

        def refusal() -> openai.RateLimitError | None:
            running.provider.script[:] = [text("before")]
            try:
                ask(client)
            except openai.RateLimitError as error:
                return error
            return None  # the first, or on a busy machine one that came when the window was over

        refused = eventually(refusal, "two requests come within a window")
    assert refused.code == "rate_limited"
    assert 1 <= int(refused.response.headers["retry-after"]) <= 5
    running.provider.script[:] = [text("behind")]
    with running.client(max_retries=2) as patient:
        assert ask(patient, "And now?").choices[0].message.content == "behind"


@pytest.mark.requirement("budget:end-to-end")
def test_anthropics_sdk_understands_it_and_counting_tokens_is_free(running: Pod) -> None:
    running.budget("analyst", max_requests=1, window="1h")
    running.provider.says(
        JSONResponse({"input_tokens": 7}),
        text("Hi."),
        JSONResponse({"input_tokens": 7}),
    )
    asked: dict[str, Any] = {"model": "claude-test", "messages": HI}
    with running.claude() as client:
        assert client.messages.count_tokens(**asked).input_tokens == 7
        client.messages.create(max_tokens=9, **asked)
        with pytest.raises(anthropic.RateLimitError, match="the agent's budget is spent") as caught:
            client.messages.create(max_tokens=9, **asked)
        assert caught.value.response.headers["retry-after"]
        assert client.messages.count_tokens(**asked).input_tokens == 7


@pytest.mark.requirement("budget:end-to-end")
@pytest.mark.parametrize("agent_id", ["analyst", "plain"])
def test_what_a_request_costs_is_in_the_log_in_history_and_in_the_budget(
    running: Pod, agent_id: str
) -> None:
    running.agent("plain")
    running.budget(agent_id, limit_usd=0.4, window="1h")
    prices = running.home / "auth" / "prices.json"
    prices.parent.mkdir(exist_ok=True)
    prices.write_text(json.dumps({"openai/gpt": {"input": 10, "output": 20}}), encoding="utf-8")
    reported = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2, "cost": 0.25}
    counted = {"prompt_tokens": 10_000, "completion_tokens": 5_000, "total_tokens": 15_000}
    answers = (
        text("one", usage=reported),
        text("two", usage=None),
        text("three", usage=counted),
        text("never"),
    )
    running.provider.says(*answers)
    with running.client(agent_id) as client:
        for count in (1, 2, 3):
            ask(client)
            eventually(lambda count=count: len(costs(running)) == count, "the request is settled")  # type: ignore[misc]
        with pytest.raises(openai.RateLimitError):
            ask(client)
    assert costs(running) == [0.25, None, 0.2]
    usages = [line["usage"] for line in running.history(agent_id)]
    assert [usage["reported_cost_usd"] for usage in usages] == costs(running)
    estimates = [usage.get("estimated_cost_usd") for usage in usages]
    assert estimates == [None, pytest.approx(0.08, abs=0.01), None], (
        "4,096 tokens for 20 dollars a million"
    )
    assert interventions(running) == ["budget_cost_unknown", "budget_exceeded"]


@pytest.mark.requirement("budget:cost-unknown")
@pytest.mark.parametrize("agent_id", ["analyst", "plain"])
def test_an_answer_that_its_runner_breaks_off_is_not_free_and_an_error_is(
    running: Pod, agent_id: str
) -> None:
    running.agent("plain")
    running.budget(agent_id, limit_usd=1.0, window="1h")

    async def endless(_request: Request) -> Response:
        async def chunks() -> AsyncIterator[bytes]:
            yield b'data: {"choices": []}\n\n'
            await asyncio.Event().wait()

        return StreamingResponse(chunks(), media_type="text/event-stream")

    running.provider.says(JSONResponse({"error": {"message": "no"}}, status_code=400), endless)
    body = {"model": "gpt-test", "messages": HI, "stream": True}
    # Not streamed: on a busy machine the headers of a stream might be sent before the provider has
    # refused.
    whole = {**body, "stream": False}
    assert httpx2.post(
        f"{running.url}/v1/chat/completions", json=whole, headers=headers(running, agent_id)
    ).is_error
    eventually(lambda: len(running.history(agent_id)) == 1, "the error is recorded")
    assert interventions(running) == []
    with httpx2.stream(
        "POST",
        f"{running.url}/v1/chat/completions",
        json=body,
        headers=headers(running, agent_id),
        timeout=30,
    ) as answer:
        assert answer.is_success
        assert next(answer.iter_raw())
    eventually(
        lambda: interventions(running) == ["budget_cost_unknown"], "its cost is said to be unknown"
    )


@pytest.mark.requirement("budget:admission")
def test_requests_at_one_time_do_not_slip_under_the_limit(running: Pod) -> None:
    running.budget("analyst", max_requests=3, window="1h")
    running.provider.says(*(text("ok") for _ in range(12)))

    def one(number: int) -> bool:
        with running.client() as client, suppress(openai.RateLimitError):
            return bool(ask(client, f"Question {number}"))  # equal questions would join one turn
        return False

    with ThreadPoolExecutor(12) as runners:
        assert sum(runners.map(one, range(12))) == 3
    assert len(running.provider.received) == 3
