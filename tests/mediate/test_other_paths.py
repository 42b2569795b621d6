"""POSTs of no dialect that name a model: under the model policy and the budget, and in history."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from claw_mediate.core.cost import ReceivedAnswer
from claw_mediate.core.http import Forward, Request, RunnerResponse
from claw_state.ownership import ProviderObject
from tests.mediate.conftest import WIRES
from tests.mediate.test_form_data import CONTENT_TYPE, form
from tests.mediate.test_routing import CHAIN, TOKEN, TwoProvidersPod

JSON = "application/json"
EMBEDDINGS = "/v1/embeddings"
REQUIRED = (
    EMBEDDINGS,
    "/v1/completions",
    "/v1/images/generations",
    "/v1/audio/speech",
    "/v1/audio/transcriptions",
    "/v1/threads/runs",
    "/v1/videos",
)
HIDDEN = ("/v1/batches", "/v1/evals", "/v1/evals/e_1/runs", "/v1/videos/v_1/remix")
MODELLESS = ("/v1/conversations", "/v1/vector_stores", "/v1/threads")


class OtherPod(TwoProvidersPod):
    """A pod whose requests are of no dialect."""

    def budget(self, **budget: Any) -> None:
        file = self.home / "context" / "analyst" / "metadata.json"
        metadata = json.loads(file.read_text(encoding="utf-8"))
        file.write_text(
            json.dumps({**metadata, "budget": {"window": "1h", **budget}}), encoding="utf-8"
        )

    async def posts(
        self,
        path: str,
        body: bytes,
        content_type: str = JSON,
        host: str | None = None,
        method: str = "POST",
    ) -> RunnerResponse | Forward:
        headers = [("authorization", f"Bearer {TOKEN}"), ("content-type", content_type)]
        head = Request(method, path, headers, b"", host)
        admitted = self.mediator.admit(head)
        if isinstance(admitted, RunnerResponse):
            return admitted
        if not self.mediator.must_read(admitted, head):
            return await self.mediator.other_paths.decide_unread(admitted, head)
        return await self.mediator.exchange(admitted, Request(method, path, headers, body, host))

    async def passes(
        self, path: str, body: bytes, content_type: str = JSON, **where: Any
    ) -> Forward:
        decision = await self.posts(path, body, content_type, **where)
        assert isinstance(decision, Forward)
        return decision

    async def refuses(
        self, path: str, body: bytes, content_type: str = JSON, **where: Any
    ) -> tuple[int, str]:
        decision = await self.posts(path, body, content_type, **where)
        assert isinstance(decision, RunnerResponse)
        error = json.loads(b"".join([chunk async for chunk in decision.chunks]))["error"]
        return decision.status, error["code"]

    def ended(self, decision: Forward, usage: dict[str, Any], body: bytes = b"{}") -> None:
        answer = ReceivedAnswer(200, usage, is_usage_final=True)
        self.mediator.passthrough.record_end(decision.handle, 200, answer, body, whole=True)  # type: ignore[arg-type]

    def history(self) -> list[dict[str, Any]]:
        file = self.home / "history" / "analyst" / "history.jsonl"
        return (
            [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
            if file.exists()
            else []
        )


@pytest.fixture
async def pod(tmp_path: Path) -> AsyncIterator[OtherPod]:
    made = OtherPod(tmp_path, WIRES["openai"], "openai")
    made.open()
    own = {"upload": "u_1", "eval": "e_1", "video": "v_1"}
    await made.mediator.state.ownership.save_objects(
        "analyst", [ProviderObject(*each, "openai") for each in own.items()]
    )
    yield made
    await made.mediator.close(0)
    made.provider.stop()


def key(decision: Forward) -> str:
    return decision.credential[0][1].removeprefix("Bearer ")


@pytest.mark.requirement("policy:other-paths")
@pytest.mark.parametrize("host", [None, "api.openai.com"])
@pytest.mark.parametrize("path", [*REQUIRED, *MODELLESS])
async def test_a_model_that_the_policy_does_not_allow_is_replaced(
    pod: OtherPod, path: str, host: str | None
) -> None:
    pod.agent(CHAIN)
    decision = await pod.passes(path, b'{"input" : 1.0, "model": "gpt-huge" }', host=host)
    assert decision.body == b'{"input" : 1.0, "model": "big" }'
    assert pod.interventions() == [("disallowed_clamped", "gpt-huge", "openai", "big")]


@pytest.mark.requirement("policy:other-paths")
@pytest.mark.parametrize("content_type", [JSON, "", "text/plain", "application/x-unknown"])
async def test_the_policy_reads_the_body_whatever_it_is_called(
    pod: OtherPod, content_type: str
) -> None:
    pod.agent(CHAIN)
    assert (
        await pod.passes(EMBEDDINGS, b'{"model":"gpt-huge"}', content_type)
    ).body == b'{"model":"big"}'


@pytest.mark.requirement("policy:other-paths")
async def test_a_provider_of_which_the_policy_allows_nothing_is_refused(pod: OtherPod) -> None:
    pod.agent([("primary", "second/other")])
    assert await pod.refuses(EMBEDDINGS, b'{"model":"big"}', host=pod.host) == (
        403,
        "model_not_allowed",
    )


@pytest.mark.requirement("budget:admission")
async def test_a_request_that_the_policy_refuses_counts_once_it_was_admitted(pod: OtherPod) -> None:
    pod.agent([("primary", "second/other")])
    pod.budget(max_requests=2)
    for _ in range(5):
        assert await pod.refuses(EMBEDDINGS, b"no JSON", host=pod.host) == (
            403,
            "model_not_allowed",
        )  # not yet admitted

    for _ in range(2):
        assert await pod.refuses(EMBEDDINGS, b'{"model":"big"}', host=pod.host) == (
            403,
            "model_not_allowed",
        )
    status, _ = await pod.refuses(EMBEDDINGS, b'{"model":"big"}', host=pod.host)
    assert status == 429


UNREADABLE = {
    "no JSON": (b"\x00\xff", JSON),
    "cut": (b'{"model":"big"', JSON),
    "not UTF-8": (b'{"model":"big","x":"\xff"}', JSON),
    "two documents": (b'{"model":"big"}{"model":"gpt-huge"}', JSON),
    "a model twice": (b'{"model":"big","mod\\u0065l":"gpt-huge"}', JSON),
    "a model that is no text": (b'{"model":["gpt-huge"]}', JSON),
    "a form in the URL's coding": (b"model=gpt-huge", "application/x-www-form-urlencoded"),
    "JSON that is a form in the URL's coding": (
        b'{"model":"big","x":"&model=gpt-huge&"}',
        "Application/X-WWW-Form-URLencoded",
    ),
    "JSON that is called a form": (b'{"model":"big"}', CONTENT_TYPE),
    "a form of another kind": (form(("model", b"big")), CONTENT_TYPE.replace("form-data", "mixed")),
    "a form that names it twice": (form(("model", b"big"), ("model", b"gpt-huge")), CONTENT_TYPE),
}


@pytest.mark.requirement("policy:other-paths")
@pytest.mark.parametrize("path", [EMBEDDINGS, "/v1/moderations"])
@pytest.mark.parametrize(("body", "content_type"), UNREADABLE.values(), ids=UNREADABLE)
async def test_a_body_that_is_not_read_is_refused_under_a_policy_and_forwarded_without(
    pod: OtherPod, path: str, body: bytes, content_type: str
) -> None:
    pod.agent(CHAIN)
    assert await pod.refuses(path, body, content_type) == (403, "model_not_allowed")
    pod.agent([])
    assert (await pod.passes(path, body, content_type)).body is None


@pytest.mark.requirement("policy:other-paths")
@pytest.mark.parametrize("path", REQUIRED)
@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[]", b'{"model":null}', b'{"model":" "}', b'{"prompt":{"id":"pmpt_1"}}']
)
async def test_a_path_that_needs_a_model_and_gets_none_is_refused_under_a_policy(
    pod: OtherPod, path: str, body: bytes
) -> None:
    pod.agent(CHAIN)
    assert await pod.refuses(path, body) == (403, "model_not_allowed")
    pod.agent([])
    assert (await pod.passes(path, body)).body is None


@pytest.mark.requirement("policy:other-paths")
@pytest.mark.parametrize("path", HIDDEN)
async def test_a_path_that_names_its_model_elsewhere_is_refused_under_a_policy(
    pod: OtherPod, path: str
) -> None:
    pod.agent(CHAIN)
    assert await pod.refuses(path, b'{"model":"big"}') == (403, "model_not_allowed")
    pod.agent([])
    await pod.passes(path, b'{"model":"big"}')


@pytest.mark.requirement("policy:other-paths")
@pytest.mark.parametrize(
    "path",
    [
        "/v1/Embeddings/",
        "/v1//embeddings?x=/files",
        "/v1/files/%2e%2e/embeddings",
        "/v1;x/embeddings;y",
    ],
)
async def test_no_spelling_of_a_path_is_a_way_round(pod: OtherPod, path: str) -> None:
    pod.agent(CHAIN)
    assert await pod.refuses(path, b"{}") == (403, "model_not_allowed")
    assert (await pod.passes(path, b'{"model":"gpt-huge"}')).body == b'{"model":"big"}'


@pytest.mark.requirement("forward:other-paths")
@pytest.mark.parametrize("body", [b"", b"{}", b'{"metadata":{"model":"gpt-huge"}}'])
@pytest.mark.parametrize("path", MODELLESS)
async def test_what_asks_no_model_is_forwarded_and_not_counted(
    pod: OtherPod, path: str, body: bytes
) -> None:
    pod.agent(CHAIN)
    pod.budget(max_requests=1)
    for _ in range(2):
        pod.ended(await pod.passes(path, body), {})
    assert (pod.history(), pod.interventions()) == ([], [])


@pytest.mark.requirement("forward:other-paths")
@pytest.mark.parametrize("path", ["/v1/files", "/v1/uploads/u_1/parts"])
async def test_an_upload_is_never_read(pod: OtherPod, path: str) -> None:
    pod.agent(CHAIN)
    assert (await pod.passes(path, b"\x00", CONTENT_TYPE)).body is None


@pytest.mark.requirement("forward:other-paths")
async def test_only_posts_are_read(pod: OtherPod) -> None:
    pod.agent(CHAIN)
    assert (await pod.passes("/v1/models", b"", method="GET")).body is None
    assert (
        await pod.passes(EMBEDDINGS, b'{"model":"gpt-huge"}', method="post")
    ).body == b'{"model":"big"}'


@pytest.mark.requirement("routing:other-paths")
@pytest.mark.parametrize("path", [*REQUIRED, *MODELLESS])
@pytest.mark.parametrize("policy", [[], CHAIN])
async def test_the_models_prefix_picks_the_provider_and_is_stripped(
    pod: OtherPod, path: str, policy: list[tuple[str, str]]
) -> None:
    pod.agent(policy)
    decision = await pod.passes(path, b'{"model":"second/other"}')
    assert (decision.body, key(decision)) == (b'{"model":"other"}', "sk-second")


@pytest.mark.requirement("routing:other-paths")
async def test_a_model_without_a_prefix_goes_to_the_default_provider_as_it_came(
    pod: OtherPod,
) -> None:
    pod.agent([])
    decision = await pod.passes("/v1/embeddings", b'{"model": "vendor/m"}')
    assert (decision.body, key(decision)) == (None, "sk-own")


@pytest.mark.requirement("policy:forms")
async def test_a_forms_model_is_clamped_and_routed(pod: OtherPod) -> None:
    sound = ("file", b"\x00\xff\r\n" * 9)
    pod.agent(CHAIN)
    path = "/v1/audio/transcriptions"
    decision = await pod.passes(path, form(("model", b"gpt-huge"), sound), CONTENT_TYPE)
    assert decision.body == form(("model", b"big"), sound)
    assert (
        await pod.passes(path, form(sound, ("model", b"openai/big")), CONTENT_TYPE)
    ).body == form(sound, ("model", b"big"))
    assert (await pod.passes(path, form(("model", b"big"), sound), CONTENT_TYPE)).body is None
    pod.agent([])
    decision = await pod.passes(path, form(("model", b"second/other"), sound), CONTENT_TYPE)
    assert (decision.body, key(decision)) == (form(("model", b"other"), sound), "sk-second")


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
