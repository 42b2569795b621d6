"""Requests that are not mediated: the same bytes, with the credential replaced.

Also: hosts that are not governed.
"""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest
from starlette.responses import JSONResponse, Response

from claw_contract.history import HistoryEntry
from tests.peers import bad_key, calls, events, text
from tests.proxy.pod import PROVIDER_KEY, Pod, headers
from tests.waiting import eventually

HI: Any = [{"role": "user", "content": "Go"}]
ODD = (
    b' {"model" : "gpt-test",\n "messages":[ {"role":"user","content":"\\u0041\\/"} ],'
    b' "seed": 1.0, "id":9007199254740993, "x":1, "x":2 } '
)


@pytest.fixture
def plain(pod: Pod) -> Pod:
    """Return a running pod with an agent that has no managed tool."""
    pod.agent("plain")
    pod.start()
    return pod


@pytest.mark.requirement("forward:byte-for-byte")
def test_the_body_of_a_request_without_managed_tools_is_unchanged_byte_for_byte(plain: Pod) -> None:
    reply = b'{ "choices" : [], "odd": 1.0 }'
    plain.provider.says(
        Response(reply, media_type="application/json", headers={"x-ratelimit": "7"})
    )
    answer = httpx2.post(
        f"{plain.url}/v1/chat/completions?a=%2F", content=ODD, headers=headers(plain)
    )
    sent = plain.provider.received[0]
    assert (sent.path, sent.body) == ("/v1/chat/completions?a=%2F", ODD)
    assert sent.headers["authorization"] == f"Bearer {PROVIDER_KEY}"
    assert plain.token("plain") not in str(sent.headers)
    assert (answer.content, answer.headers["x-ratelimit"]) == (reply, "7")


@pytest.mark.requirement("forward:byte-for-byte")
def test_in_a_mediated_request_everything_that_is_not_ours_stays_as_it_was(running: Pod) -> None:
    running.provider.says(text("ok"))
    httpx2.post(
        f"{running.url}/v1/chat/completions", content=ODD, headers=headers(running, "analyst")
    )
    sent = running.provider.received[0].body
    head, tail = ODD.rstrip()[:-1].rstrip(), running.provider.received[0].json["tools"]
    assert sent.startswith(head)
    assert [entry["function"]["name"] for entry in tail] == ["desk__balance", "desk__trade"]


@pytest.mark.requirement("proxy:no-way-round")
@pytest.mark.parametrize(
    "path",
    [
        "/v1/chat/completions/",
        "/v1//chat//completions",
        "/v1/Chat/Completions",
        "/v1/chat%2Fcompletions",
        "/v1/chat/completions?x=1",
    ],
)
def test_no_spelling_of_the_path_is_a_way_round_mediation(running: Pod, path: str) -> None:
    running.provider.says(text("ok"))
    body = {"model": "gpt-test", "messages": HI}
    assert (
        httpx2.post(running.url + path, json=body, headers=headers(running, "analyst")).status_code
        == 200
    )
    assert [entry["function"]["name"] for entry in running.provider.received[0].json["tools"]] == [
        "desk__balance",
        "desk__trade",
    ]


@pytest.mark.requirement("forward:streaming")
def test_a_stream_passes_through_and_its_usage_is_read_from_a_copy(plain: Pod) -> None:
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    delta = {"index": 0, "delta": {"role": "assistant", "content": "Hi"}, "finish_reason": None}
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    plain.provider.says(
        events({**chunk, "choices": [delta]}, {**chunk, "choices": [], "usage": usage})
    )
    stream = plain.client("plain").chat.completions.create(
        model="gpt-test", messages=HI, stream=True
    )
    assert [event.choices[0].delta.content for event in stream if event.choices] == ["Hi"]
    # The event comes once the stream has ended, which its reader may notice first.
    said = eventually(
        lambda: [event for event in plain.log() if event["type"] == "response"],
        "the response is logged",
    )
    assert (said[-1]["tokens_in"], said[-1]["tokens_out"]) == (1, 2)


@pytest.mark.requirement("forward:recorded")
@pytest.mark.parametrize("stream", [False, True])
def test_a_forwarded_completion_is_a_line_of_history_like_a_mediated_one(
    plain: Pod, stream: bool
) -> None:
    plain.provider.says(events({"choices": []}) if stream else text("Hi."))
    body = {"model": "gpt-test", "messages": HI, "stream": stream}
    answer = httpx2.post(f"{plain.url}/v1/chat/completions", json=body, headers=headers(plain))
    (entry,) = eventually(lambda: plain.history("plain"), "the line is written")
    HistoryEntry.model_validate_json(json.dumps(entry))
    assert (entry["status"], entry["status_code"], entry["stream"]) == ("ok", 200, stream)
    assert (entry["request_original"], entry["tool_trace"], entry["tools_offered"]) == (
        body,
        [],
        [],
    )
    kept = entry["response"]
    assert kept == (
        {"format": "sse", "text": answer.text}
        if stream
        else {"format": "json", "json": answer.json()}
    )
    requests = [event for event in plain.log() if event["type"] == "request"]
    assert [(event["manifest_present"], event["tools_count"]) for event in requests] == [(False, 0)]


@pytest.mark.requirement("forward:recorded")
def test_a_forwarded_completion_that_fails_is_recorded_as_failed(plain: Pod) -> None:
    plain.provider.says(JSONResponse({"error": {"message": "busy"}}, 503))
    httpx2.post(
        f"{plain.url}/v1/chat/completions",
        json={"model": "gpt-test", "messages": HI},
        headers=headers(plain),
    )
    (entry,) = eventually(lambda: plain.history("plain"), "the line is written")
    assert (entry["status"], entry["status_code"]) == ("error", 503)


@pytest.mark.requirement("route:spent-key")
def test_a_key_that_was_refused_is_not_used_again(pod: Pod) -> None:
    pod.environment["OPENAI_API_KEY_1"] = "sk-second-key-planted"
    pod.agent("plain")
    pod.start()
    pod.provider.says(bad_key(), text("Hi."))
    body = {"model": "gpt-test", "messages": HI}
    statuses = [
        httpx2.post(f"{pod.url}/v1/chat/completions", json=body, headers=headers(pod)).status_code
        for _ in range(2)
    ]
    assert statuses == [401, 200]
    assert pod.provider.received[-1].headers["authorization"] == "Bearer sk-second-key-planted"


@pytest.mark.requirement("forward:tool-choice-none")
def test_tool_choice_none_means_that_no_tools_are_wanted(running: Pod) -> None:
    running.provider.says(calls(("c1", "desk__balance", {})))
    body = {"model": "gpt-test", "messages": HI, "tool_choice": "none"}
    httpx2.post(
        f"{running.url}/v1/chat/completions", json=body, headers=headers(running, "analyst")
    )
    assert running.provider.received[0].json == body
    assert running.service.received == []


@pytest.mark.requirement("forward:other-paths")
def test_other_paths_are_identified_swapped_and_passed_through(running: Pod) -> None:
    running.provider.says(
        JSONResponse({"object": "list", "data": [{"id": "gpt-test", "object": "model"}]})
    )
    assert [model.id for model in running.client().models.list()] == ["gpt-test"]
    sent = running.provider.received[0]
    assert (sent.path, sent.headers["authorization"]) == ("/v1/models", f"Bearer {PROVIDER_KEY}")


@pytest.mark.requirement("forward:other-paths")
def test_a_message_for_a_thread_of_openais_is_no_request_of_anthropics(running: Pod) -> None:
    running.provider.says(
        JSONResponse({"id": "thread_1", "object": "thread"}),
        JSONResponse({"id": "msg_1", "object": "thread.message"}),
    )
    own = headers(running, "analyst")
    httpx2.post(f"{running.url}/v1/threads", json={}, headers=own).raise_for_status()
    body = b'{"role": "user",  "content": "Hi"}'
    answer = httpx2.post(f"{running.url}/v1/threads/thread_1/messages", content=body, headers=own)
    assert answer.json()["object"] == "thread.message"
    sent = running.provider.received[1]
    assert (sent.path, sent.body) == ("/v1/threads/thread_1/messages", body)
    assert sent.headers["authorization"] == f"Bearer {PROVIDER_KEY}"


@pytest.mark.requirement("forward:other-paths")
def test_a_large_upload_passes_through(running: Pod) -> None:
    running.provider.says(JSONResponse({"ok": True}))
    content = bytes(range(256)) * 20_000
    answer = httpx2.post(
        f"{running.url}/v1/files", content=content, headers=headers(running, "analyst"), timeout=30
    )
    assert answer.json() == {"ok": True}
    assert running.provider.received[0].body == content


@pytest.mark.requirement("route:model-prefix")
@pytest.mark.parametrize("agent_id", ["plain", "analyst"])
def test_the_models_prefix_picks_the_provider(running: Pod, agent_id: str) -> None:
    running.agent("plain")
    auth = running.home / "auth"
    auth.mkdir()
    other = {
        "providers": {"local": {"base_url": f"{running.provider.url}/other/v9", "auth": "none"}}
    }
    (auth / "providers.json").write_text(json.dumps(other), encoding="utf-8")
    running.provider.says(text("ok"), text("ok"))
    for model in ("local/llama/70b", "unknown/model"):
        running.client(agent_id).chat.completions.create(model=model, messages=HI)
    first, second = running.provider.received
    assert (first.path, first.json["model"]) == ("/other/v9/chat/completions", "llama/70b")
    assert "authorization" not in first.headers
    assert (second.path, second.json["model"]) == ("/v1/chat/completions", "unknown/model")


@pytest.mark.requirement("forward:unreachable")
@pytest.mark.parametrize("agent_id", ["plain", "analyst"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/models"])
def test_a_provider_that_cannot_be_reached_is_a_502_in_the_dialects_shape(
    pod: Pod, nobody: str, agent_id: str, path: str
) -> None:
    pod.environment["OPENAI_BASE_URL"] = f"{nobody}/v1"
    pod.agent("plain")
    pod.agent("analyst", pod.tool("balance"))
    pod.start()
    method = "GET" if path == "/v1/models" else "POST"
    content = b"" if method == "GET" else json.dumps({"model": "m", "messages": HI}).encode()
    answer = httpx2.request(method, pod.url + path, content=content, headers=headers(pod, agent_id))
    assert answer.status_code == 502
    assert answer.json()["error"]["code"] == "provider_unreachable"
    assert nobody.rpartition(":")[2] not in answer.text


@pytest.mark.requirement("own:health-ready")
def test_health_and_ready_need_no_credential_and_tell_nothing(running: Pod) -> None:
    assert httpx2.get(f"{running.url}/health").json() == {"ok": True}
    assert httpx2.get(f"{running.url}/ready").json() == {"ready": True}


@pytest.mark.requirement("own:websocket-426")
def test_a_websocket_to_a_governed_host_is_refused_with_426(running: Pod) -> None:
    upgrade = {
        **headers(running, "analyst"),
        "connection": "upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    assert httpx2.get(f"{running.url}/v1/responses", headers=upgrade).status_code == 426
    assert running.provider.received == []
