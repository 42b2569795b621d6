"""Deny by default: which paths are passed, to whom, and in which spelling they are sent."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from claw_contract.secret import Secret
from claw_mediate.core.http import Forward, RunnerResponse
from claw_mediate.core.known_paths import PROXY_BASE, ApiBase, find_known_path
from claw_mediate.http.headers import provider_headers
from claw_mediate.settings import Settings
from tests.mediate.providers.test_routing import CHAIN
from tests.mediate.turns.other_pod import EMBEDDINGS, JSON, OtherPod
from tests.settings import default_settings
from tests.turns.desk import WIRES

OPENAI = ApiBase("openai", ("/v1",))


@pytest.fixture
async def pod(tmp_path: Path) -> AsyncIterator[OtherPod]:
    made = OtherPod(tmp_path, WIRES["openai"], "openai")
    made.open()
    made.agent([])
    yield made
    await made.mediator.close(0)
    made.provider.stop()


async def error(
    pod: OtherPod, path: str, body: bytes = b"{}", **where: Any
) -> tuple[int, str, str]:
    """Return status, code and message of a refusal."""
    decision = await pod.posts(path, body, **where)
    assert isinstance(decision, RunnerResponse), decision
    said = json.loads(b"".join([chunk async for chunk in decision.chunks]))["error"]
    return decision.status, said["code"], said["message"]


UNKNOWN = (
    "/v1/fine_tuning/alpha/graders/run",
    "/v1/interactions",
    "/v1beta/interactions",
    "/v1/x/embeddings",
    "/x/v1/embeddings",
    "/v1/embeddings/x",
    "/v1/engines/m/completions",
    "/openai/deployments/m/chat/completions",
    "/x/v1/chat/completions",
    "/v1/x/chat/completions",
    "/v1/files/%252e%252e/embeddings",
    "/model/m/invoke",
    "/backend-api/codex/responses",
)


@pytest.mark.requirement("paths:closed")
@pytest.mark.parametrize("host", [None, "api.openai.com"])
@pytest.mark.parametrize("path", UNKNOWN)
async def test_a_path_in_no_table_is_refused_with_its_name_and_the_remedy(
    pod: OtherPod, path: str, host: str | None
) -> None:
    status, code, message = await error(pod, path, b'{"model":"big"}', host=host)
    assert (status, code) == (403, "path_not_allowed")
    assert message.startswith(f"POST {path.replace('%25', '%')} is not allowed here")
    assert ("CLLAMA_PATHS" in message, "cllama: {paths:" in message) == (True, True)
    (event,) = [each for each in pod.events if each["type"] == "intervention"]
    assert (event["intervention"], event["claw_id"]) == ("path_not_allowed", "analyst")
    assert pod.provider.received == []


@pytest.mark.requirement("paths:closed")
@pytest.mark.parametrize("method", ["PUT", "PATCH", "OPTIONS", "QUERY", "TRACE", "DELETE"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", EMBEDDINGS, "/v1/files"])
async def test_a_method_that_no_row_has_is_refused(pod: OtherPod, method: str, path: str) -> None:
    decision = await pod.posts(path, b'{"model":"big"}', method=method)
    assert isinstance(decision, RunnerResponse)
    assert decision.status in ({403} if "responses" not in path else {403, 404})


@pytest.mark.requirement("paths:closed")
async def test_a_host_of_anthropic_refuses_in_anthropics_shape(tmp_path: Path) -> None:
    pod = OtherPod(tmp_path, WIRES["anthropic"], "anthropic")
    pod.open()
    pod.agent([])
    decision = await pod.posts("/v1/complete/x", b"{}", host="api.anthropic.com")
    assert isinstance(decision, RunnerResponse)
    said = json.loads(b"".join([chunk async for chunk in decision.chunks]))
    assert (said["type"], said["error"]["type"]) == ("error", "permission_error")
    await pod.mediator.close(0)
    pod.provider.stop()


@pytest.mark.requirement("paths:spelling")
@pytest.mark.parametrize("host", [None, "api.openai.com"])
@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/v1/Embeddings/", "/embeddings"),
        ("/v1//embeddings?x=%2F..", "/embeddings?x=%2F.."),
        ("/v1/files/..%2fembeddings", "/embeddings"),
        ("/v1;a/embeddings;b", "/embeddings"),
        ("/v1\\embeddings", "/embeddings"),
        ("/%76%31/%65mbeddings?", "/embeddings?"),
    ],
)
async def test_what_is_sent_is_the_one_spelling_that_was_decided_about(
    pod: OtherPod, path: str, target: str, host: str | None
) -> None:
    decision = await pod.passes(path, b'{"model":"big"}', host=host)
    assert decision.target == target


@pytest.mark.requirement("paths:spelling")
@pytest.mark.parametrize(
    "path", ["/v1/models/org%2Fname", "/v1/models/ft:gpt-4o:org::id", "/v1/models/a/b/endpoints"]
)
async def test_a_models_name_goes_on_as_its_runner_wrote_it(pod: OtherPod, path: str) -> None:
    assert (await pod.passes(path, b"", method="GET")).target == path.removeprefix("/v1")


@pytest.mark.requirement("paths:spelling")
def test_ids_keep_their_case_and_are_named_by_their_kind() -> None:
    match = find_known_path(OPENAI, "GET", "/V1/Vector_Stores/vs_Ab/Files/file-C/content?limit=1")
    assert match is not None
    assert (match.ids, match.path) == (
        {"vector_store": "vs_Ab"},
        "/vector_stores/vs_Ab/files/file-C/content",
    )


@pytest.mark.requirement("paths:spelling")
@pytest.mark.parametrize(
    "path", ["/v1/files/a%2525", "/v1/files/\udcff", "/v1/files/é", "/v1/files/a b", "/files/a"]
)
def test_an_id_that_another_server_could_read_otherwise_is_in_no_row(path: str) -> None:
    assert find_known_path(OPENAI, "GET", path) is None


@pytest.mark.requirement("paths:families")
@pytest.mark.parametrize(
    ("path", "family"),
    [
        ("/v1/messages/batches", "anthropic"),
        ("/v1/chat/completions", "openai"),
        ("/chat/completions", "openai"),
        ("/api/event_logging/v2/batch", "anthropic"),
        ("/v1beta/models/gemini-pro:streamGenerateContent?alt=sse", "google"),
        ("/v1/tokenize-text", "xai"),
        ("/api/chat", "ollama"),
    ],
)
def test_the_proxys_own_listener_finds_the_provider_that_has_the_path(
    path: str, family: str
) -> None:
    match = find_known_path(PROXY_BASE, "POST", path)
    assert match is not None
    assert match.family == family


@pytest.mark.requirement("paths:families")
def test_the_messages_of_a_stored_completion_are_none_of_anthropics() -> None:
    match = find_known_path(PROXY_BASE, "GET", "/v1/chat/completions/chatcmpl_1/messages")
    assert match is not None
    assert (match.family, match.ids) == ("openai", {"stored_completion": "chatcmpl_1"})


@pytest.mark.requirement("paths:families")
async def test_a_path_that_its_provider_has_not_is_refused_there(pod: OtherPod) -> None:
    assert (await error(pod, "/v1/tokenize-text", b'{"model":"second/m"}'))[:2] == (
        403,
        "path_not_allowed",
    )
    assert (await error(pod, "/v1/tokenize-text", b'{"model":"m"}', host=pod.host))[:2] == (
        403,
        "path_not_allowed",
    )


MINTING = (
    "/v1/keys%20",
    "/v1/keys%00",
    "/v1/rt/tokens",
    "/v1/organization/admin_api_keys",
    "/v1/organization/projects/p/service_accounts",
    "/v1/organizations/api_keys",
    "/v1/realtime/client_secrets",
    "/v1/realtime/sessions",
    "/v1/realtime/transcription_sessions",
    "/v1/chatkit/sessions",
    "/v1alpha/auth_tokens",
    "/v1alpha/authTokens",
    "/v1/keys",
    "/v1/Keys/",
    "/v1/auth/keys",
    "/v1/vaults/v/credentials",
    "/v1/x/..//keys",
    "/api/oauth/claude_cli/create_api_key",
)


@pytest.mark.requirement("paths:credentials")
@pytest.mark.parametrize("path", MINTING)
async def test_what_mints_credentials_is_refused_though_a_setting_opens_everything(
    tmp_path: Path, path: str
) -> None:
    pod = OtherPod(tmp_path, WIRES["openai"], "openai", settings={"paths": "POST /*, GET /*"})
    pod.open()
    pod.agent([])
    for host in (None, pod.host):
        status, code, message = await error(pod, path, host=host)
        assert (status, code) == (403, "path_not_allowed")
        assert "CLLAMA_PATHS" not in message
    await pod.mediator.close(0)
    pod.provider.stop()


@pytest.mark.requirement("paths:credentials")
@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("POST /v1/organization/*", "'organization' mints or lists credentials"),
        ("GET /v1/keys", "'keys' mints"),
        ("POST /v1/realtime/sessions", "'sessions' mints"),
        ("/v1/skills", "METHOD /prefix"),
        ("TRACE /v1/skills", "METHOD /prefix"),
        ("POST v1/skills", "METHOD /prefix"),
        ("POST /v1/*/x", "written plainly"),
        ("POST /v1/%6beys", "written plainly"),
        ("POST /v1/a/../keys", "written plainly"),
    ],
)
def test_a_setting_that_names_what_can_t_be_opened_is_refused_at_the_start(
    entry: str, reason: str
) -> None:
    values = default_settings()
    with pytest.raises(ValueError, match="cllama_paths") as caught:
        Settings.of(values | {"paths": f"GET /v1/skills,{entry}"})
    assert reason in str(caught.value)


@pytest.mark.requirement("paths:opened")
async def test_an_opened_path_passes_is_counted_and_is_under_the_policy(tmp_path: Path) -> None:
    opened = "POST /v1/fine_tuning/*, GET /v1/skills, POST /model/*"
    pod = OtherPod(tmp_path, WIRES["openai"], "openai", settings={"paths": opened})
    pod.open()
    path = "/v1/fine_tuning/alpha/graders/run"

    pod.agent([])
    pod.budget(max_requests=2)
    assert (
        await pod.passes(path, b'{"grader":{"model":"big"}}', JSON)
    ).target == path.removeprefix("/v1")
    assert (await pod.passes("/v1/x/../Fine_Tuning/jobs", b"[]")).target == "/Fine_Tuning/jobs"
    assert await pod.refuses(path, b"{}") == (429, "budget_exceeded")

    pod.agent(CHAIN)
    assert await pod.refuses(path, b'{"grader":{"model":"gpt-huge"}}') == (403, "model_not_allowed")
    assert await pod.refuses(path, b'{"model":"big","grader":{"model":"gpt-huge"}}') == (
        403,
        "model_not_allowed",
    )
    assert await pod.refuses(path, b"[]") == (403, "model_not_allowed")
    assert (await pod.passes(path, b'{"model":"gpt-huge"}')).body == b'{"model":"big"}'

    by_host = await pod.passes("/model/m/invoke", b'{"model":"big"}', host=pod.host)
    assert (by_host.base_url, by_host.target) == (pod.provider.url, "/model/m/invoke")
    assert isinstance(await pod.posts("/v1/skills", b"", method="GET"), Forward)
    assert await pod.refuses("/v1/skills", b"{}") == (403, "path_not_allowed")
    assert await pod.refuses("/v1/skills/s_1", b"", method="GET") == (403, "path_not_allowed")
    assert await pod.refuses("/v1/fine_tuning/%252e%252e/keys", b"{}") == (403, "path_not_allowed")
    await pod.mediator.close(0)
    pod.provider.stop()


@pytest.mark.requirement("paths:override")
@pytest.mark.parametrize(
    "query",
    [
        *(
            "_method=DELETE",
            "a=b&%5Fmethod=x",
            "a=b;_method=DELETE",
            "%255Fmethod=DELETE",
            "X-HTTP-Method=x",
        ),
        *("$httpMethod=DELETE", "%24httpHeaders=x", "$.xgafv=1"),
    ],
)
async def test_no_query_makes_it_another_request(pod: OtherPod, query: str) -> None:
    assert await pod.refuses(f"{EMBEDDINGS}?{query}", b'{"model":"big"}') == (
        403,
        "path_not_allowed",
    )


@pytest.mark.requirement("paths:override")
@pytest.mark.parametrize(
    "path", ["/v1/models", "/v1/files", "/v1/responses", "/v1/chat/completions"]
)
async def test_a_get_with_a_body_is_refused(pod: OtherPod, path: str) -> None:
    decision = await pod.posts(path, b'{"model":"gpt-huge"}', method="GET")
    assert isinstance(decision, RunnerResponse)
    assert decision.status == 400


@pytest.mark.requirement("paths:override")
@pytest.mark.parametrize(
    "name",
    [
        "X-HTTP-Method-Override",
        "x_http_method_override",
        "x-http_method-override",
        "X-HTTP-Method",
        "x_method-override",
    ],
)
def test_no_header_makes_it_one_of_another_method(name: str) -> None:
    assert provider_headers([(name, "POST"), ("x-kept", "1")], Secret("s" * 20)) == [
        ("x-kept", "1")
    ]
