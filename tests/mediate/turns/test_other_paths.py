"""POSTs of no dialect that name a model: under the model policy and the budget, and in history."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.mediate.forms import CONTENT_TYPE, form
from tests.mediate.providers.test_routing import CHAIN
from tests.mediate.turns.other_pod import EMBEDDINGS, JSON, OtherPod, key, other_pod

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


@pytest.fixture
async def pod(tmp_path: Path) -> AsyncIterator[OtherPod]:
    async with other_pod(tmp_path) as made:
        yield made


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


@pytest.mark.requirement("redaction:first-request")
async def test_the_log_shows_no_key_that_the_first_request_names(pod: OtherPod) -> None:
    pod.agent([])
    assert await pod.refuses("/v1/files/sk-second", b"", method="GET") == (404, "object_not_found")
    (refused,) = [event for event in pod.events if "reason" in event]
    assert refused["reason"].startswith("file_id ")
    assert "sk-second" not in str(pod.events)
