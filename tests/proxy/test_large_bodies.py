"""Large bodies through the real proxy: whole, and without holding up other requests."""

from __future__ import annotations

import json
import threading

import httpx2
import pytest

from claw_mediate.http.large_bodies import MAX_INLINE_BYTES, compute
from tests.peers import text
from tests.proxy.pod import Pod, headers
from tests.proxy.test_body_bytes import CHAT, body_of, post


@pytest.mark.requirement("bodies:beside-the-loop")
@pytest.mark.parametrize("agent_id", ["plain", "analyst"])
def test_a_large_body_arrives_as_it_was_sent(pod: Pod, agent_id: str) -> None:
    pod.agent("plain")
    pod.agent("analyst", pod.tool("balance"))
    pod.start()
    body = body_of(3 << 20)
    pod.provider.says(text("Read."))
    assert post(pod, agent_id, body).status_code == 200
    (received,) = pod.provider.received
    if agent_id == "plain":
        assert received.body == body
    assert received.json["messages"] == json.loads(body)["messages"]


@pytest.mark.requirement("bodies:beside-the-loop")
async def test_a_large_body_is_worked_on_in_a_thread_and_a_small_one_at_once() -> None:
    assert await compute(MAX_INLINE_BYTES, threading.get_ident) == threading.get_ident()
    assert await compute(MAX_INLINE_BYTES + 1, threading.get_ident) != threading.get_ident()


@pytest.mark.requirement("bodies:too-many-values")
@pytest.mark.parametrize("path", [CHAT, "/v1/messages", "/v1/responses"])
def test_a_large_body_of_countless_values_is_refused_and_the_provider_is_not_asked(
    pod: Pod, path: str
) -> None:
    pod.agent("analyst", pod.tool("balance"))
    pod.start()
    said = '{"role": "user", "content": "Hi."}'
    member = "input" if path.endswith("responses") else "messages"
    body = f'{{"model": "gpt-test", "max_tokens": 9, "{member}": [{said}], "metadata": [{",".join(["[]"] * 700_000)}]}}'
    answer = httpx2.post(
        f"{pod.url}{path}", headers=headers(pod, "analyst"), content=body.encode(), timeout=30
    )
    assert answer.status_code == 400
    assert "more than 1 MiB may have 500000 values" in answer.json()["error"]["message"]
    assert pod.provider.received == []


@pytest.mark.requirement("bodies:escapes")
def test_the_agents_token_is_taken_out_of_a_large_body_and_refused_in_a_long_text(
    pod: Pod,
) -> None:
    token = pod.agent("plain")
    pod.start()

    def ask(*texts: str) -> httpx2.Response:
        parts = [{"type": "text", "text": each} for each in texts]
        asked = {"model": "gpt-test", "messages": [{"role": "user", "content": parts}]}
        return post(pod, "plain", json.dumps(asked).encode())

    pod.provider.says(text("Read."))
    long = "x" * (3 << 20)
    assert ask(long, f"TOKEN={token}", long).status_code == 200
    (received,) = pod.provider.received
    assert received.json["messages"][0]["content"][0]["text"] == long
    assert token.encode() not in received.body
    refused = ask(long + token + long)
    assert refused.status_code == 400
    assert "own token" in refused.json()["error"]["message"]
    assert len(pod.provider.received) == 1
