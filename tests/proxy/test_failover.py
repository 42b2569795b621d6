"""Models and keys that fail, through the real proxy: the answers that the runner gets, and the
memory after a restart.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.responses import JSONResponse

from tests.peers import Provider, bad_key, calls, events, text
from tests.proxy.pod import Pod, authority, headers, through
from tests.waiting import eventually

HI: Any = [{"role": "user", "content": "Go"}]
DEAD = "sk-dead-planted-0004"
BUSY = JSONResponse({"error": {"message": "busy"}}, 503)


@pytest.fixture
def spare(pod: Pod) -> Iterator[Provider]:
    """Yield a second provider, to which agents fall back; their policy allows nothing else."""
    peer = Provider()
    peer.start()
    entry = {"base_url": f"{peer.url}/v1", "api_key": "sk-spare-planted-0005"}
    (pod.home / "auth").mkdir()
    (pod.home / "auth" / "providers.json").write_text(
        json.dumps({"providers": {"spare": entry}}), encoding="utf-8"
    )
    pod.agent("analyst", pod.tool("balance"))
    pod.agent("plain")
    for agent_id in ("analyst", "plain"):
        allow(pod.home / "context" / agent_id, "openai/gpt-test", "spare/gpt-spare")
    yield peer
    peer.stop()


def allow(directory: Path, primary: str, fallback: str) -> None:
    written = json.loads((directory / "metadata.json").read_text(encoding="utf-8"))
    refs = [{"slot": "primary", "ref": primary}, {"slot": "fallback", "ref": fallback}]
    policy = {"mode": "clamp", "allowed": refs}
    (directory / "metadata.json").write_text(
        json.dumps(written | {"model_policy": policy}), encoding="utf-8"
    )


def asks(
    pod: Pod, agent_id: str = "analyst", model: str = "gpt-test", **more: Any
) -> httpx2.Response:
    body = {"model": model, "messages": HI, **more}
    return httpx2.post(
        f"{pod.url}/v1/chat/completions", json=body, headers=headers(pod, agent_id), timeout=30
    )


@pytest.mark.requirement("failover:through-the-proxy")
@pytest.mark.parametrize("stream", [False, True])
def test_a_runner_does_not_notice_that_its_provider_failed_and_the_spare_one_stays_for_the_turn(
    pod: Pod, spare: Provider, stream: bool
) -> None:
    pod.start()
    pod.service.routes["GET", "/balance"] = JSONResponse({"usd": 1})
    pod.provider.says(BUSY)
    spare.says(calls(("c1", "desk__balance", {})), text("One dollar."))
    answer: Any = pod.client().chat.completions.create(model="whatever", messages=HI, stream=stream)
    parts = (event.choices[0].delta.content or "" for event in answer) if stream else None
    assert ("".join(parts) if parts else answer.choices[0].message.content) == "One dollar."
    assert [sent.json["model"] for sent in (*pod.provider.received, *spare.received)] == [
        "gpt-test",
        "gpt-spare",
        "gpt-spare",
    ]
    (entry,) = eventually(lambda: pod.history("analyst"), "the line is written")
    assert (entry["requested_model"], entry["effective_provider"], entry["effective_model"]) == (
        "whatever",
        "spare",
        "gpt-spare",
    )
    told = [event["intervention"] for event in pod.log() if event["type"] == "intervention"]
    assert told == ["disallowed_clamped"]
    assert [event["reason"] for event in pod.log() if event["type"] == "failover"] == ["http_503"]


@pytest.mark.requirement("providers:key-states-persist")
def test_a_restart_remembers_a_dead_key_until_the_operator_removes_its_file(
    pod: Pod, spare: Provider
) -> None:
    pod.environment["OPENAI_API_KEY"] = DEAD
    pod.start()
    pod.provider.says(bad_key())
    spare.says(text("one"), text("two"), text("three"))
    assert asks(pod).status_code == 200
    pod.kill()
    pod.start()
    # Other questions: an equal one might get the first answer again, whose delivery the killed
    # proxy had no time to record.
    another = asks(pod, messages=[{"role": "user", "content": "And now?"}])
    assert [another.status_code, asks(pod, "plain").status_code] == [200, 200]
    assert (len(pod.provider.received), len(spare.received)) == (1, 3)
    (file,) = (pod.home / "auth" / "key-states").iterdir()
    assert DEAD not in file.read_text(encoding="utf-8")
    file.unlink()
    pod.provider.says(text("alive"))
    last = asks(pod, messages=[{"role": "user", "content": "And after that?"}])
    assert last.json()["choices"][0]["message"]["content"] == "alive"


@pytest.mark.requirement("retry:through-the-proxy")
def test_once_a_tool_has_run_the_proxy_itself_waits_for_its_only_key(running: Pod) -> None:
    running.service.routes["POST", "/trade"] = JSONResponse({"done": True})
    throttled = JSONResponse({"error": {"message": "slow down"}}, 429)
    running.provider.says(
        calls(("c1", "desk__trade", {"symbol": "NVDA"})), throttled, text("Bought.")
    )
    assert asks(running).json()["choices"][0]["message"]["content"] == "Bought."
    assert len(running.service.received) == 1


@pytest.mark.requirement("policy:forwarded")
def test_a_forwarded_stream_is_clamped_and_framed_anew(pod: Pod, spare: Provider) -> None:
    pod.start()
    spare.says(events({"choices": []}))
    answer = asks(pod, "plain", "spare/gpt-spare", stream=True)
    assert (answer.status_code, answer.text) == (200, 'data: {"choices": []}\n\ndata: [DONE]\n\n')
    sent = spare.received[0]
    assert (sent.json, int(sent.headers["content-length"])) == (
        {"model": "gpt-spare", "messages": HI, "stream": True},
        len(sent.body),
    )
    assert pod.provider.received == []
    (entry,) = eventually(lambda: pod.history("plain"), "the line is written")
    assert [entry["request_effective"]["model"], entry["effective_provider"]] == [
        "gpt-spare",
        "spare",
    ]
    assert entry["request_original"]["model"] == entry["requested_model"] == "spare/gpt-spare"


@pytest.mark.requirement("policy:destination")
def test_at_the_forward_proxy_a_provider_outside_of_the_policy_is_refused(
    pod: Pod, spare: Provider
) -> None:
    for agent_id in ("analyst", "plain"):
        allow(pod.home / "context" / agent_id, "spare/gpt-spare", "spare/other")
    pod.start()
    with through(pod, authority(pod)) as client:
        for agent_id in ("analyst", "plain"):
            answer = client.post(
                "https://api.openai.com/v1/chat/completions",
                headers=headers(pod, agent_id),
                json={"model": "gpt-spare", "messages": HI},
            )
            assert (answer.status_code, answer.json()["error"]["code"]) == (
                403,
                "model_not_allowed",
            )
    assert (pod.provider.received, spare.received) == ([], [])


@pytest.mark.requirement("keys:account-headers")
@pytest.mark.parametrize("agent_id", ["analyst", "plain"])
def test_a_runner_does_not_say_whose_account_the_providers_key_is_of(
    pod: Pod, spare: Provider, agent_id: str
) -> None:
    pod.start()
    pod.provider.says(text("Hi."))
    account = {
        "OpenAI-Organization": "org-evil",
        "OpenAI-Project": "proj-evil",
        "x-of-the-runner": "kept",
    }
    httpx2.post(
        f"{pod.url}/v1/chat/completions",
        json={"model": "gpt-test", "messages": HI},
        headers=headers(pod, agent_id) | account,
    )
    (sent,) = pod.provider.received
    assert "evil" not in str(sent.headers)
    assert sent.headers["x-of-the-runner"] == "kept"
    assert spare.received == []


@pytest.mark.requirement("providers:ready")
def test_a_proxy_whose_keys_are_all_dead_says_that_it_is_not_ready_and_starts_all_the_same(
    pod: Pod,
) -> None:
    pod.environment["ANTHROPIC_API_KEY"] = ""
    pod.agent("plain")
    (pod.home / "auth").mkdir()
    pod.start()
    pod.provider.says(bad_key())
    assert asks(pod, "plain").status_code == 401
    assert asks(pod, "plain").json()["error"]["code"] == "no_provider_key"
    pod.stop()
    pod.start(wait=False)

    def ready() -> int | None:
        try:
            return httpx2.get(f"{pod.url}/ready").status_code
        except httpx2.ConnectError:
            return None

    assert eventually(ready, "the proxy answers") == 503
