"""Credentials that an agent writes into a request: then a code may be about those."""

from __future__ import annotations

import json
from typing import Any

import pytest

from claw_mediate.core.http import Request
from claw_mediate.providers.key_answers import (
    KeyAnswer,
    judge,
)
from tests.mediate.providers.test_key_answers import error, provider

CHAT = "/v1/chat/completions"
ORDINARY = b'{"model": "m", "messages": [{"role": "user", "content": "api_key"}]}'
HEADERS = [
    ("Authorization", "Bearer x"),
    ("X-Stainless-Lang", "python"),
    ("Idempotency-Key", "1"),
    ("user-agent", "x"),
]


@pytest.mark.requirement("keys:codes")
@pytest.mark.parametrize(
    ("path", "has_one"),
    [
        ("/v1/messages", False),
        ("/v1/messages?beta=true", False),
        ("/v1beta/openai/chat/completions?key=AIza-of-the-agent", True),
        ("/chat/completions?a=1&%4Bey=", True),
        ("/chat/completions?access_token=x", True),
    ],
)
def test_a_code_may_be_about_a_credential_that_an_agent_put_into_the_url(
    path: str, has_one: bool
) -> None:
    answer = KeyAnswer(
        401, error(code="invalid_api_key"), request=Request("POST", path, HEADERS, ORDINARY)
    )
    for base_url in ("", "http://litellm:4000"):
        assert judge(provider("openai", base_url), answer) == ("doubtful" if has_one else "bad")


@pytest.mark.requirement("keys:gateway")
@pytest.mark.parametrize(
    ("header", "body"),
    [
        *(
            (name, {})
            for name in (
                "x-portkey-config",
                "cf_aig_authorization",
                "Helicone-Auth",
                "X-Auth-Token",
                "x-litellm-tags",
            )
        ),
        *(
            ("", members)
            for members in (
                {"api_key": "x"},
                {"api_base": "http://evil"},
                {"extra_headers": {"Authorization": "Bearer x"}},
                {"user_config": {"model_list": [{"litellm_params": {"api_key": "x"}}]}},
                {"providerOptions": {"gateway": {"byok": {"openai": [{"apiKey": "x"}]}}}},
                {"tools": [{"type": "mcp", "server_url": "http://evil", "authorization": "x"}]},
                {"tools": 1},
                {"user": "x" * (1 << 20)},
            )
        ),
    ],
)
def test_at_a_gateway_a_code_may_be_about_a_credential_of_the_request(
    header: str, body: dict[str, Any]
) -> None:
    headers = [*HEADERS, *([(header, "x")] if header else [])]
    request = Request("POST", CHAT, headers, json.dumps(json.loads(ORDINARY) | body).encode())
    bad = KeyAnswer(401, error(code="invalid_api_key"), request=request)
    spent = KeyAnswer(429, error(code="insufficient_quota"), request=request)
    asked_plainly = Request("POST", CHAT, HEADERS, ORDINARY)

    gateway = provider("openai", "http://litellm:4000")
    assert (judge(gateway, bad), judge(gateway, spent)) == ("doubtful", "throttled")
    assert judge(gateway, bad._replace(request=asked_plainly)) == "bad"
    assert judge(gateway, spent._replace(request=asked_plainly)) == "account"
    assert (judge(provider("openai"), bad), judge(provider("openai"), spent)) == (
        "bad",
        "account",
    ), "its own host"
