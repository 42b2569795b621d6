"""Other models that a request names: under a policy all of them are allowed, or the
request is refused.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from claw_mediate.agents.authenticate import Identity
from claw_mediate.core.http import Forward, Request, RunnerResponse
from claw_mediate.core.model_names import (
    AmbiguousMemberError,
    find_models_in_query,
    find_named_models,
)
from tests.mediate.forms import CONTENT_TYPE, form
from tests.mediate.providers.test_routing import TOKEN
from tests.mediate.turns.other_pod import EMBEDDINGS, OtherPod
from tests.turns.desk import WIRES

pytestmark = pytest.mark.requirement("policy:other-names")
CHAT = "/v1/chat/completions"
TOOL = {
    "name": "read", "description": "Read.", "inputSchema": {"type": "object"},
    "execution": {"transport": "http", "service": "desk", "base_url": "http://desk:1", "method": "GET", "path": "/read"},
}  # fmt: skip
ALLOWED = [("primary", "openai/big"), ("other", "openai/small"), ("fallback", "second/other")]

NAMING: dict[str, dict[str, Any]] = {
    "models": {"models": ["small", "FORBIDDEN"], "route": "fallback"},
    "one of models": {"models": "FORBIDDEN"},
    "fallbacks": {"fallbacks": ["FORBIDDEN"]},
    "fallbacks as objects": {"fallbacks": [{"model": "FORBIDDEN", "max_tokens": 1}]},
    "fallbacks by model": {"fallbacks": [{"big": ["FORBIDDEN"]}]},
    "fallbacks of windows": {"context_window_fallback_dict": {"big": "FORBIDDEN"}},
    "preset": {"preset": "mine"},
    "agent": {"agent": "deep-research"},
    "extra_body": {"extra_body": {"model": "FORBIDDEN"}},
    "plugin": {"plugins": [{"id": "auto-router", "allowedModels": ["*"]}]},
    "server tool": {
        "tools": [{"type": "openrouter:fusion", "parameters": {"analysis_models": ["FORBIDDEN"]}}]
    },
    "image tool": {"tools": [{"type": "image_generation", "model": "FORBIDDEN"}]},
    "tool of a tool": {
        "tools": [
            {"type": "namespace", "tools": [{"type": "advisor_20260301", "model": "FORBIDDEN"}]}
        ]
    },
    "gateway": {"providerOptions": {"gateway": {"models": ["FORBIDDEN"]}}},
    "grader": {"grader": {"type": "score_model", "model": "FORBIDDEN"}},
    "another case": {"MODEL": "FORBIDDEN"},
    "the long s": {"preſet": "mine"},
    "models as objects": {"models": [{"id": "FORBIDDEN"}]},
    "models in a list of lists": {"models": [["FORBIDDEN"]]},
    "a judge": {"judge_model": {"name": "FORBIDDEN"}},
    "fallbacks by model, beside one": {"fallbacks": [{"big": ["FORBIDDEN"], "model": "small"}]},
    "a deployment": {"deployment_id": "FORBIDDEN"},
    "an agent's id": {"agentId": "FORBIDDEN"},
    "an engine in extra_body": {"extra_body": {"engine": "FORBIDDEN"}},
    "a function at the top": {"type": "function", "parameters": {"model": "FORBIDDEN"}},
    "a schema at the top": {"schema": {"models": ["FORBIDDEN"]}},
    "in the transcript": {"messages": [{"role": "user", "content": "Hi", "model": "FORBIDDEN"}]},
}
HARMLESS: dict[str, dict[str, Any]] = {
    "allowed": {"models": ["small", "big"], "fallbacks": [{"model": "small"}]},
    "route": {"route": "fallback"},
    "empty": {"models": [], "fallbacks": None, "preset": ""},
    "schemas": {
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "f",
                    "parameters": {"properties": {"model": {"enum": ["x"]}}, "model": "x"},
                },
            }
        ],
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "n", "schema": {"examples": [{"model": "x"}]}},
        },
    },
    "arguments": {
        "messages": [
            {"role": "assistant", "content": [{"type": "tool_use", "input": {"model": "sonnet"}}]}
        ]
    },
    "metadata": {"metadata": {"model": "x"}},
    "text": {"messages": [{"role": "user", "content": '"models": ["x"], "preset": "y"'}]},
    "an engine of a search": {"plugins": [{"id": "web", "engine": "exa"}]},
    "settings of a fallback": {"fallbacks": [{"model": "small", "thinking": {"type": "enabled"}}]},
    "an agent's name": {
        "messages": [{"role": "user", "content": "Hi", "agent": {"agent_name": "x"}}]
    },
}


@pytest.fixture
async def pod(tmp_path: Path) -> AsyncIterator[OtherPod]:
    made = OtherPod(tmp_path, WIRES["openai"], "openai")
    made.open()
    yield made
    await made.mediator.close(0)
    made.provider.stop()


def chat(more: dict[str, Any]) -> bytes:
    return json.dumps(
        {"model": "big", "messages": [{"role": "user", "content": "Hi"}], **more},
        ensure_ascii=False,
    ).encode()


async def refusal(decision: RunnerResponse | Forward) -> tuple[int, str, str, str | None]:
    assert isinstance(decision, RunnerResponse), decision
    error = json.loads(b"".join([chunk async for chunk in decision.chunks]))["error"]
    return decision.status, error["code"], error["message"], error["param"]


@pytest.mark.parametrize("has_tools", [False, True])
@pytest.mark.parametrize("more", NAMING.values(), ids=NAMING)
async def test_a_model_that_is_not_allowed_is_refused_by_whatever_member_it_is_named(
    pod: OtherPod, more: dict[str, Any], has_tools: bool
) -> None:
    pod.agent(ALLOWED, *([TOOL] * has_tools))
    status, code, message, param = await refusal(await pod.posts(CHAT, chat(more)))
    assert (status, code) == (403, "model_not_allowed")
    assert param is not None
    assert repr(param) in message
    assert "leave the member out" in message
    assert [each["intervention"] for each in pod.events if each["type"] == "intervention"][
        -1
    ] == "model_not_allowed"
    assert pod.provider.received == []


@pytest.mark.parametrize("more", HARMLESS.values(), ids=HARMLESS)
async def test_what_names_no_other_model_or_an_allowed_one_goes_on_unchanged(
    pod: OtherPod, more: dict[str, Any]
) -> None:
    pod.agent(ALLOWED)
    assert (await pod.passes(CHAT, chat(more))).body is None


@pytest.mark.parametrize("more", NAMING.values(), ids=NAMING)
async def test_without_a_policy_the_members_stay_as_the_runner_wrote_them(
    pod: OtherPod, more: dict[str, Any]
) -> None:
    pod.agent([])
    assert (await pod.passes(CHAT, chat(more))).body is None


@pytest.mark.parametrize(
    "path",
    [EMBEDDINGS, "/v1/images/generations", "/v1/responses", "/v1/moderations", "/v1/conversations"],
)
async def test_the_same_holds_on_every_path(pod: OtherPod, path: str) -> None:
    pod.agent(ALLOWED)
    for body in (
        b'{"model":"big","input":"x","models":["FORBIDDEN"]}',
        b'{"input":"x","models":["FORBIDDEN"]}',
    ):
        decision = await pod.posts(path, body)
        assert isinstance(decision, RunnerResponse)
        assert decision.status == 403


@pytest.mark.parametrize("body", [b'[{"model":"FORBIDDEN"}]', b"[1, 2]", b'"x"', b"null"])
@pytest.mark.parametrize("path", [EMBEDDINGS, "/v1/conversations", "/v1/moderations"])
async def test_a_body_that_is_no_object_is_refused(pod: OtherPod, path: str, body: bytes) -> None:
    pod.agent(ALLOWED)
    assert await pod.refuses(path, body) == (403, "model_not_allowed")


async def test_a_model_of_the_query_is_refused(pod: OtherPod) -> None:
    pod.agent(ALLOWED)
    odd = ("a=1;model=FORBIDDEN", "m%256Fdel=FORBIDDEN", "deployment=FORBIDDEN")
    for query in (
        *odd,
        "model=FORBIDDEN",
        "a=b&Model=FORBIDDEN",
        "m%6Fdel=FORBIDDEN",
        "models=FORBIDDEN",
    ):
        assert await pod.refuses(f"{CHAT}?{query}", chat({})) == (403, "model_not_allowed")
        assert await pod.refuses(f"{EMBEDDINGS}?{query}", b'{"model":"big"}') == (
            403,
            "model_not_allowed",
        )
    assert (await pod.passes(f"{CHAT}?beta=true&model=small", chat({}))).body is None
    assert find_models_in_query("/v1/models") == []


async def test_a_forms_other_fields_name_no_models(pod: OtherPod) -> None:
    pod.agent(ALLOWED)
    for field in ("models", "models[]", "fallbacks", "preset", "extra_body[model]"):
        body = form(("model", b"big"), (field, b"small"))
        assert await pod.refuses("/v1/audio/transcriptions", body, CONTENT_TYPE) == (
            403,
            "model_not_allowed",
        )


@pytest.mark.parametrize(
    "value",
    [b'{"model":"FORBIDDEN"}', b' {"x":{"models":["FORBIDDEN"]}}', b'[{"model":"FORBIDDEN"}]'],
)
async def test_a_forms_field_of_json_names_no_models(pod: OtherPod, value: bytes) -> None:
    pod.agent(ALLOWED)
    path = "/v1/audio/transcriptions"
    body = form(("model", b"big"), ("extra_body", value))
    assert await pod.refuses(path, body, CONTENT_TYPE) == (403, "model_not_allowed")
    for text in (b"{model} says", b'{"language":"de"}', b"FORBIDDEN"):
        await pod.passes(path, form(("model", b"big"), ("prompt", text)), CONTENT_TYPE)


async def test_a_header_that_names_a_model_is_not_sent_under_a_policy(pod: OtherPod) -> None:
    names = ("X-Model-Provider", "Helicone-Fallbacks", "x-preset", "X-Portkey-Config")
    request = Request(
        "POST",
        CHAT,
        [("authorization", f"Bearer {TOKEN}"), *((name, "x") for name in names)],
        chat({}),
    )
    for allowed, dropped in ((ALLOWED, {name.lower() for name in names}), ([], set())):
        pod.agent(allowed)
        admitted = pod.mediator.admit(request)
        assert isinstance(admitted, Identity)
        decision = await pod.mediator.exchange(admitted, request)
        assert isinstance(decision, Forward)
        assert set(decision.dropped_headers) - {"authorization"} == dropped


async def test_a_name_must_be_allowed_at_the_provider_that_reads_it(pod: OtherPod) -> None:
    pod.agent(ALLOWED)
    assert await pod.refuses(CHAT, chat({"models": ["other"]})) == (403, "model_not_allowed")
    decision = await pod.passes(CHAT, chat({"model": "second/other", "models": ["other"]}))
    assert json.loads(decision.body or b"")["model"] == "other"


@pytest.mark.parametrize(
    "asked",
    ["openrouter/auto", "big:online", "@preset/mine", "big@preset/mine", "~openai/big", "Big"],
)
async def test_a_name_that_a_provider_reads_as_another_model_is_clamped(
    pod: OtherPod, asked: str
) -> None:
    pod.agent(ALLOWED)
    assert (
        json.loads((await pod.passes(CHAT, chat({"model": asked}))).body or b"")["model"] == "big"
    )


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"big","models":["FORBIDDEN"],"models":[]}',
        b'{"model":"big","models":[],"mod\\u0065ls":["FORBIDDEN"]}',
        b'{"model":"big","tools":[{"type":"x","model":"FORBIDDEN","model":"big"}]}',
        b'{"model":"big","extra_body":{"fallb\\u0061cks":["FORBIDDEN"]}}',
    ],
)
async def test_a_member_that_parsers_could_read_in_two_ways_is_refused(
    pod: OtherPod, body: bytes
) -> None:
    with pytest.raises(AmbiguousMemberError):
        find_named_models(body)
    pod.agent(ALLOWED)
    for path in (CHAT, EMBEDDINGS):
        decision = await pod.posts(path, body[:-1] + b',"messages":[]}')
        assert isinstance(decision, RunnerResponse)
        assert decision.status in (400, 403)


@pytest.mark.requirement("packed:requests")
@pytest.mark.parametrize("path", [CHAT, EMBEDDINGS, "/v1/moderations"])
@pytest.mark.parametrize("policy", [[], ALLOWED])
async def test_what_was_read_is_sent_unpacked(
    pod: OtherPod, path: str, policy: list[tuple[str, str]]
) -> None:
    pod.agent(policy)
    body = chat({"input": "x"}) if path != "/v1/moderations" else b'{"input":"x"}'
    for coding, packed in (("gzip", gzip.compress(body)), ("deflate", zlib.compress(body))):
        headers = [
            ("authorization", f"Bearer {TOKEN}"),
            ("content-type", "application/json"),
            ("content-encoding", coding),
        ]
        head = Request("POST", path, headers, b"")
        admitted = pod.mediator.admit(head)
        assert isinstance(admitted, Identity)
        assert pod.mediator.must_read(admitted, head)
        decision = await pod.mediator.exchange(
            admitted, replace(head, body=body)
        )  # which the host has unpacked
        assert isinstance(decision, Forward)
        assert (decision.body, packed != body) == (body, True)
