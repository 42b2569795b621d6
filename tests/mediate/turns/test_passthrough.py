"""A request that is forwarded: its line of history, its cost, and what it tells of its key."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from claw_mediate.core.cost import ReceivedAnswer
from tests.mediate.forms import CONTENT_TYPE, form
from tests.mediate.providers.test_routing import CHAIN, TOKEN
from tests.mediate.turns.other_pod import EMBEDDINGS, JSON, OtherPod, key, other_pod


@pytest.fixture
async def pod(tmp_path: Path) -> AsyncIterator[OtherPod]:
    async with other_pod(tmp_path) as made:
        yield made


@pytest.mark.requirement("forward:asks-a-model")
async def test_a_form_is_recorded_without_its_files(pod: OtherPod) -> None:
    pod.agent(CHAIN)
    body = form(("model", b"gpt-huge"), ("stream", b"true"), ("file", b"\x00\xff"))
    pod.ended(
        await pod.passes("/v1/audio/transcriptions", body, CONTENT_TYPE), {}, b'data: {"a": 1}\n\n'
    )
    (entry,) = pod.history()
    assert entry["request_original"] == {
        "model": "gpt-huge",
        "stream": "true",
        "file": {"bytes": 2},
    }
    assert entry["request_effective"] == {"model": "big", "stream": "true", "file": {"bytes": 2}}
    assert entry["response"] == {"format": "sse", "text": 'data: {"a": 1}\n\n'}


@pytest.mark.requirement("forward:asks-a-model")
@pytest.mark.parametrize("policy", [[], CHAIN])
async def test_a_request_for_a_response_is_a_line_of_history_with_its_usage(
    pod: OtherPod, policy: list[tuple[str, str]]
) -> None:
    pod.agent(policy)
    usage = {
        "input_tokens": 30,
        "input_tokens_details": {"cached_tokens": 10},
        "output_tokens": 5,
        "total_tokens": 35,
    }
    pod.ended(
        await pod.passes(EMBEDDINGS, b'{"model":"openai/big","input":"Hi"}'),
        usage,
        b'{"output": []}',
    )
    (entry,) = pod.history()
    assert (entry["path"], entry["requested_model"], entry["effective_model"]) == (
        EMBEDDINGS,
        "openai/big",
        "big",
    )
    assert entry["request_effective"] == {"model": "big", "input": "Hi"}
    assert entry["response"] == {"format": "json", "json": {"output": []}}
    counts = [
        entry["usage"][name]
        for name in ("prompt_tokens", "completion_tokens", "cached_tokens", "total_rounds")
    ]
    assert counts == [30, 5, 10, 1]
    assert [event["type"] for event in pod.events][-2:] == ["request", "response"]


@pytest.mark.requirement("forward:asks-a-model")
@pytest.mark.parametrize(
    ("path", "content_type"), [(EMBEDDINGS, JSON), ("/v1/audio/speech", ""), ("/v1/batches", JSON)]
)
async def test_each_counts_in_the_budget_though_it_is_not_read(
    pod: OtherPod, path: str, content_type: str
) -> None:
    pod.agent([])
    pod.budget(max_requests=2)
    for _ in range(2):
        pod.ended(
            await pod.passes(path, b'{"model":"big"}', content_type),
            {"prompt_tokens": 1, "total_tokens": 1},
        )
    assert await pod.refuses(path, b'{"model":"big"}', content_type) == (429, "budget_exceeded")
    assert len(pod.history()) == 2


@pytest.mark.requirement("forward:asks-a-model")
async def test_what_a_response_costs_counts_in_the_budget(pod: OtherPod) -> None:
    prices = {"openai/big": {"input": 10_000, "cached_input": 0, "output": 20_000}}
    (pod.home / "auth" / "prices.json").write_text(json.dumps(prices), encoding="utf-8")
    pod.agent([])
    pod.budget(limit_usd=0.25)
    usage = {"input_tokens": 30, "input_tokens_details": {"cached_tokens": 10}, "output_tokens": 5}
    pod.ended(await pod.passes(EMBEDDINGS, b'{"model":"big"}'), usage)
    assert pod.history()[0]["usage"]["reported_cost_usd"] == pytest.approx(0.3)
    assert await pod.refuses(EMBEDDINGS, b'{"model":"big"}') == (429, "budget_exceeded")


@pytest.mark.requirement("keys:other-paths")
async def test_a_refusal_there_kills_no_key(pod: OtherPod) -> None:
    pod.agent(CHAIN)
    decision = await pod.passes(EMBEDDINGS, b'{"model":"big"}')
    body = b'{"error": {"code": "invalid_api_key", "type": "authentication_error"}}'
    handle: Any = decision.handle
    pod.mediator.passthrough.note_status(handle, 401, "")
    pod.mediator.passthrough.record_end(handle, 401, ReceivedAnswer(401, {}), body, whole=True)
    assert key(await pod.passes(EMBEDDINGS, b'{"model":"big"}')) == "sk-own"


@pytest.mark.requirement("redactor:cost")
async def test_the_agents_own_credential_goes_no_further(pod: OtherPod) -> None:
    pod.agent([])
    secret = TOKEN.partition(":")[2]
    decision = await pod.passes(
        EMBEDDINGS, json.dumps({"model": "big", "input": f"env: {secret}"}).encode()
    )
    assert decision.body is not None
    assert secret.encode() not in decision.body
