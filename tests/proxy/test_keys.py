"""Effects of agents on the keys that they share, through the real proxy
and the real SDKs.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tests.peers import bad_key, text
from tests.proxy.pod import Pod, headers
from tests.waiting import eventually

HI: Any = [{"role": "user", "content": "Go"}]
SCOPES = {
    "message": "Missing scopes: api.responses.write",
    "type": "invalid_request_error",
    "param": None,
    "code": None,
}
CREDITS = {"message": "You requested up to 65536 tokens, but can only afford 30104", "code": 402}
REGION = {
    "message": "Country not supported",
    "type": "request_forbidden",
    "code": "unsupported_country_region_territory",
}


def keeps_to(status: int, error: dict[str, Any]) -> Callable[[Request], Awaitable[Response]]:
    """Return a provider that refuses what one agent asks for, and answers everybody else."""

    async def answer(request: Request) -> Response:
        asked = json.loads(await request.body())
        is_refused = request.url.path.endswith("/responses") or asked.get("max_tokens", 0) > 4000
        return JSONResponse({"error": error}, status) if is_refused else text("Hi.")

    return answer


def mallory(pod: Pod, agent_id: str, path: str = "/v1/responses") -> httpx2.Response:
    body = (
        {"model": "gpt-test", "input": "Go"}
        if path.endswith("responses")
        else {"model": "gpt-test", "messages": HI}
    )
    return httpx2.post(
        f"{pod.url}{path}",
        json=body | {"max_tokens": 65_536},
        headers=headers(pod, agent_id),
        timeout=30,
    )


def victim(pod: Pod) -> str | None:
    answer = pod.client("victim").chat.completions.create(model="gpt-test", messages=HI)
    return answer.choices[0].message.content


def pool_events(pod: Pod) -> list[tuple[str, str]]:
    return [
        (event["key_id"], event["action"])
        for event in pod.log()
        if event["type"] == "provider_pool"
    ]


@pytest.mark.requirement("keys:request-only")
@pytest.mark.parametrize("agent_id", ["plain", "analyst"])
@pytest.mark.parametrize(("status", "error"), [(401, SCOPES), (402, CREDITS), (403, REGION)])
def test_no_request_of_one_agent_disables_the_keys_of_all(
    pod: Pod, agent_id: str, status: int, error: dict[str, Any]
) -> None:
    pod.environment |= {
        "OPENAI_API_KEY_1": "sk-second-planted-0007",
        "OPENAI_API_KEY_2": "sk-third-planted-0008",
    }
    pod.agent("plain")
    pod.agent("analyst", pod.tool("balance"))
    pod.agent("victim")
    pod.start()
    pod.provider.says(*[keeps_to(status, error)] * 20)
    assert victim(pod) == "Hi."

    for path in ("/v1/responses", "/v1/chat/completions"):
        for _ in range(3):
            refused = mallory(pod, agent_id, path)
            assert (refused.status_code, refused.json()["error"]["message"]) == (
                status,
                error["message"],
            )

    assert victim(pod) == "Hi."
    assert httpx2.get(f"{pod.url}/ready").status_code == 200
    assert len({sent.headers["authorization"] for sent in pod.provider.received}) == 1, (
        "no other key is tried"
    )
    if status != 402:
        eventually(lambda: pod.provider.questions, "the proxy asks about the key")
    assert [(sent.method, sent.path) for sent in pod.provider.questions] == [
        ("GET", "/v1/models")
    ] * (status != 402)
    assert pool_events(pod) == []

    pod.kill()
    pod.start()
    assert victim(pod) == "Hi."


@pytest.mark.requirement("keys:asked")
def test_a_revoked_key_is_found_out_by_asking(pod: Pod) -> None:
    pod.agent("plain")
    pod.agent("victim")
    pod.environment |= {"OPENAI_API_KEY_1": "sk-second-planted-0007"}
    pod.start()
    pod.provider.verdict = JSONResponse({"error": {"message": "revoked"}}, 401)
    pod.provider.says(JSONResponse({"error": {"message": "revoked"}}, 401), text("with the second"))
    assert mallory(pod, "plain").status_code == 401
    assert eventually(lambda: pool_events(pod), "the key is dead") == [
        ("env:OPENAI_API_KEY", "dead")
    ]
    assert victim(pod) == "with the second"
    assert pod.provider.received[-1].headers["authorization"] == "Bearer sk-second-planted-0007"


@pytest.mark.requirement("providers:key-verdicts")
@pytest.mark.parametrize("kind", ["plain", "gzip", "chunked"])
def test_the_code_of_a_forwarded_error_is_read_in_every_form(pod: Pod, kind: str) -> None:
    pod.agent("plain")
    pod.environment |= {"OPENAI_API_KEY_1": "sk-second-planted-0007"}
    pod.start()
    refusal: Response = bad_key()
    if kind == "gzip":
        shown = {"content-type": "application/json", "content-encoding": "gzip"}
        refusal = Response(gzip.compress(bytes(refusal.body)), 401, shown)
    elif kind == "chunked":
        del refusal.headers["content-length"]
    pod.provider.says(refusal, text("Hi."))
    statuses = [mallory(pod, "plain", "/v1/chat/completions").status_code for _ in range(2)]
    assert (statuses, pool_events(pod)) == ([401, 200], [("env:OPENAI_API_KEY", "dead")])
    assert pod.provider.questions == []


@pytest.mark.requirement("keys:codes")
@pytest.mark.parametrize(
    "body",
    [
        b"\x00" * 1000,
        b'{"error": {"code": "invalid_api_key"}',
        b'{"error": {"code": ["invalid_api_key"]}}',
        b'{"error": {"message": "You said: {\\"code\\": \\"invalid_api_key\\"}", "code": null}}',
        b'{"error": {"code": "invalid_api_key"}, "pad": "' + b"x" * (8 << 20) + b'"}',
        b'{"error": {"code": "invalid_api_key"}, "pad": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_a_hostile_error_kills_no_key(pod: Pod, body: bytes) -> None:
    pod.agent("plain")
    pod.agent("analyst", pod.tool("balance"))
    pod.agent("victim")
    pod.start()
    for agent_id in ("plain", "analyst"):
        pod.provider.says(Response(body, 401, media_type="application/json"), text("Hi."))
        assert mallory(pod, agent_id, "/v1/chat/completions").status_code in {401, 502}
        assert victim(pod) == "Hi."
    assert pool_events(pod) == []


@pytest.mark.requirement("keys:asked")
def test_workers_under_a_flood_of_refusals_ask_once_each(pod: Pod) -> None:
    pod.workers = 2
    pod.agent("plain")
    pod.agent("victim")
    pod.start()
    pod.provider.says(*[keeps_to(401, SCOPES)] * 60)
    for _ in range(50):
        assert mallory(pod, "plain").status_code == 401
    eventually(lambda: pod.provider.questions, "the proxy asks about the key")
    assert victim(pod) == "Hi."
    assert 1 <= len(pod.provider.questions) <= 2


def gateway(refusal: JSONResponse) -> Callable[[Request], Awaitable[Response]]:
    """Return a gateway, which passes on what the provider says of another key than the pod's."""

    async def answer(request: Request) -> Response:
        asked = json.loads(await request.body())
        is_own = (
            "api_key" in asked
            or "x-portkey-api-key" in request.headers
            or asked["model"] == "upstream-is-down"
        )
        return refusal if is_own else text("Hi.")

    return answer


QUOTA = {"message": "no", "type": "insufficient_quota", "code": "insufficient_quota"}


@pytest.mark.requirement("keys:gateway")
@pytest.mark.parametrize("agent_id", ["plain", "analyst"])
@pytest.mark.parametrize("status", [401, 429])
def test_no_agent_disables_a_gateways_key_by_a_credential_or_a_model_of_its_own(
    pod: Pod, agent_id: str, status: int
) -> None:
    for each in ("plain", "victim"):
        pod.agent(each)
    pod.agent("analyst", pod.tool("balance"))
    pod.start()
    refusal = bad_key() if status == 401 else JSONResponse({"error": QUOTA}, 429)
    pod.provider.says(*[gateway(refusal)] * 20)
    assert victim(pod) == "Hi."

    tries: list[tuple[dict[str, str], dict[str, Any]]] = [
        ({"x-portkey-api-key": "bad"}, {"model": "other"}),
        ({}, {"model": "another", "api_key": "bad"}),
    ]
    if status == 401:
        tries.append(({}, {"model": "upstream-is-down"}))
    for more, named in tries:
        body = {"messages": HI, **named}
        answer = httpx2.post(
            f"{pod.url}/v1/chat/completions",
            json=body,
            headers=headers(pod, agent_id) | more,
            timeout=30,
        )
        assert answer.status_code == status
        assert victim(pod) == "Hi."
        assert httpx2.get(f"{pod.url}/ready").status_code == 200

    assert [event for event in pool_events(pod) if event[1] == "dead"] == []


@pytest.mark.requirement("keys:account-headers")
def test_a_gateways_own_header_for_keys_is_never_sent(pod: Pod) -> None:
    pod.agent("plain")
    pod.agent("analyst", pod.tool("balance"))
    pod.start()
    own = {"x-litellm-api-key": "sk-bad", "Ocp_Apim_Subscription-Key": "sk-bad"}
    for agent_id in ("plain", "analyst"):
        pod.provider.says(text("Hi."))
        body = {"model": "gpt-test", "messages": HI}
        httpx2.post(
            f"{pod.url}/v1/chat/completions",
            json=body,
            headers=headers(pod, agent_id) | own,
            timeout=30,
        )
    assert all("sk-bad" not in sent.headers.values() for sent in pod.provider.received)
