"""Attacks that once worked, each as the attacker (or a hostile provider) would send it."""

from __future__ import annotations

import json
import ssl
from typing import Any

import httpx2
import openai
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tests.peers import DelayedAnswer, calls, text
from tests.proxy.pod import PROVIDER_KEY, Pod, authority, headers
from tests.wires.openai import completion

HI: Any = [{"role": "user", "content": "Go"}]
BODY = {"model": "gpt-test", "messages": HI}


def post_h2(pod: Pod, path: str, body: bytes) -> httpx2.Response:
    """Send a POST over HTTP/2 through the forward proxy; a body that is generated
    has no content-length.
    """
    context = ssl.create_default_context(cafile=authority(pod))
    proxy = f"http://127.0.0.1:{pod.proxy_port}"
    with httpx2.Client(
        http2=True, proxy=proxy, verify=context, trust_env=False, timeout=20
    ) as client:
        return client.post(
            f"https://api.openai.com{path}", content=iter([body]), headers=headers(pod, "analyst")
        )


@pytest.mark.requirement("hostile:smuggling")
def test_a_body_without_a_length_is_framed_and_cannot_be_a_request_of_its_own(running: Pod) -> None:
    inner = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
    running.provider.says(JSONResponse({}), text("ok"))
    answers = [
        post_h2(running, path, body)
        for path, body in (
            ("/v1/embeddings", inner),
            ("/v1/chat/completions", json.dumps(BODY).encode()),
        )
    ]
    assert [(answer.http_version, answer.status_code) for answer in answers] == [
        ("HTTP/2", 200)
    ] * 2
    assert [(sent.path, sent.body[:20]) for sent in running.provider.received] == [
        ("/v1/embeddings", inner[:20]),
        ("/v1/chat/completions", b'{"model": "gpt-test"'),
    ]


@pytest.mark.requirement("hostile:large-bodies")
@pytest.mark.parametrize(
    "body",
    [
        b"{" + b",".join(b'"k%d":1' % n for n in range(200_000)) + b',"messages":[]}',
        b'{"messages":[' + b",".join([b"{}"] * 60_000) + b"]}",
        b'{"messages":[],"messages":[]}',
        b'{"messages":[],"model":"a","model":"b"}',
    ],
    ids=["members", "messages", "messages-twice", "model-twice"],
)
def test_a_body_that_is_no_conversation_is_refused(running: Pod, body: bytes) -> None:
    answer = httpx2.post(
        f"{running.url}/v1/chat/completions",
        content=body,
        headers=headers(running, "analyst"),
        timeout=30,
    )
    assert answer.status_code == 400
    assert running.provider.received == []


@pytest.mark.requirement("hostile:cookies")
def test_what_a_provider_or_a_service_sets_is_never_part_of_another_request(running: Pod) -> None:
    running.agent("executor", running.tool("balance"))
    cookie = {"set-cookie": "sid=of-another; Path=/"}
    running.service.routes["GET", "/balance"] = JSONResponse({}, headers=cookie)
    for _ in range(4):
        running.provider.says(
            JSONResponse(completion(calls=[("c1", "desk__balance", {})]), headers=cookie),
            text("ok"),
        )
    for agent_id in ("analyst", "executor", "analyst", "executor"):
        running.client(agent_id).chat.completions.create(model="gpt-test", messages=HI)
    received = running.provider.received + running.service.received
    assert len(received) == 12
    assert not [sent.headers["cookie"] for sent in received if "cookie" in sent.headers]


@pytest.mark.requirement("hostile:token-elsewhere")
@pytest.mark.parametrize("agent_id", ["analyst", "plain"])
def test_the_agents_credential_goes_upstream_under_no_name(running: Pod, agent_id: str) -> None:
    running.agent("plain")
    running.provider.says(text("ok"))
    token = running.token(agent_id)
    strange = {"x-foo": token, "openai-organization": token.partition(":")[2], "x-kept": "yes"}
    url = f"{running.url}/v1/chat/completions"
    answer = httpx2.post(url, json=BODY, headers={**headers(running, agent_id), **strange})
    assert answer.status_code == 200
    sent = running.provider.received[0].headers
    assert sent["x-kept"] == "yes"
    assert token.partition(":")[2] not in str(sent)
    encoded = token
    for _ in range(12):
        refused = httpx2.post(f"{url}?key={encoded}", json=BODY, headers=headers(running, agent_id))
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "credential_in_url")
        encoded = (
            "".join(f"%{byte:02x}" for byte in encoded.encode())
            if encoded == token
            else encoded.replace("%", "%25")
        )
    assert len(running.provider.received) == 1


@pytest.mark.requirement("hostile:token-elsewhere")
def test_a_url_that_is_encoded_more_than_once_and_holds_no_credential_passes(running: Pod) -> None:
    running.provider.says(text("ok"))
    url = f"{running.url}/v1/chat/completions?next=https%253A%252F%252Fa.test%252F%2525"
    assert httpx2.post(url, json=BODY, headers=headers(running, "analyst")).status_code == 200


@pytest.mark.requirement("hostile:odd-usage")
def test_a_usage_that_nothing_can_hold_costs_neither_the_answer_nor_the_line_of_history(
    running: Pod,
) -> None:
    reply = json.dumps(completion("Hi.")).replace(
        '"total_tokens": 15', '"total_tokens": 15, "cost": 1' + "0" * 400
    )
    running.provider.says(Response(reply, media_type="application/json"))
    answer = running.client().chat.completions.create(model="gpt-test", messages=HI)
    assert answer.choices[0].message.content == "Hi."
    assert [entry["status"] for entry in running.history("analyst")] == ["ok"]


@pytest.mark.requirement("proxy:credentials-swapped")
def test_a_provider_that_echoes_its_key_does_not_tell_it_to_the_runner(running: Pod) -> None:
    running.provider.says(text(f"your key is {PROVIDER_KEY}"))
    answer = running.client().chat.completions.create(model="gpt-test", messages=HI)
    assert PROVIDER_KEY not in str(answer)


@pytest.mark.requirement("proxy:headers-survive")
def test_a_header_that_is_not_ascii_goes_through(running: Pod) -> None:
    running.provider.says(text("ok"))
    mine = [(b"authorization", f"Bearer {running.token()}".encode()), (b"x-title", "café".encode())]
    answer = httpx2.post(f"{running.url}/v1/chat/completions", json=BODY, headers=mine)
    assert answer.status_code == 200


@pytest.mark.requirement("stop:answers-end")
def test_a_stream_under_way_is_sent_to_its_end_when_the_proxy_is_stopped(running: Pod) -> None:
    held = DelayedAnswer(JSONResponse({"usd": 1}))
    running.service.routes["GET", "/balance"] = held
    running.provider.says(calls(("c1", "desk__balance", {})), text("Done. " * 3000))
    stream: Any = running.client().chat.completions.create(
        model="gpt-test", messages=HI, stream=True
    )
    assert held.asked.wait(30)
    assert running.process is not None
    running.process.terminate()
    held.go.set()
    words = "".join(event.choices[0].delta.content or "" for event in stream)
    assert words == "Done. " * 3000
    assert running.process.wait(timeout=20) == 0


@pytest.mark.requirement("log:json-only")
def test_stdout_is_json_line_by_line_whatever_goes_wrong(running: Pod) -> None:
    async def broken(_request: Request) -> Response:
        return Response(b"<html>", status_code=200)

    held = DelayedAnswer(JSONResponse({}))
    running.provider.says(broken, held)
    for token in (running.token(), "analyst:wrong"):
        httpx2.post(
            f"{running.url}/v1/chat/completions",
            json=BODY,
            headers={"authorization": f"Bearer {token}"},
        )
    with pytest.raises(openai.APIConnectionError):
        running.client(
            base_url=f"http://127.0.0.1:{running.proxy_port}/v1"
        ).chat.completions.create(model="gpt-test", messages=HI, timeout=0.2)
    held.go.set()
    assert all({"ts", "type", "claw_id"} <= event.keys() for event in running.log())
