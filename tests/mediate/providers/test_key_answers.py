"""Meanings of providers' answers for a key: real errors of each, and hostile ones."""

from __future__ import annotations

import json
from typing import Any

import pytest

from claw_contract.known_providers import KNOWN_PROVIDERS
from claw_contract.secret import Secret
from claw_mediate.core.model_policy import PoolKey, Provider
from claw_mediate.providers.key_answers import (
    KeyAnswer,
    answer_to_question,
    judge,
    key_question,
    read_codes,
)


def provider(name: str, base_url: str = "", auth: Any = None) -> Provider:
    known = KNOWN_PROVIDERS[name]
    keys = (PoolKey("k", Secret("sk-1")),)
    return Provider(
        name, base_url or known.base_url or "", auth or known.auth, known.api_format, keys
    )


def error(**members: Any) -> bytes:
    return json.dumps({"error": {"message": "no", **members}}).encode()


SCOPES = error(type="invalid_request_error", param=None, code=None)
GOOGLE_INFO = {
    "@type": "type.googleapis.com/google.rpc.ErrorInfo",
    "reason": "API_KEY_INVALID",
    "domain": "googleapis.com",
}
GOOGLE = json.dumps(
    [{"error": {"code": 400, "status": "INVALID_ARGUMENT", "details": [GOOGLE_INFO]}}]
).encode()
GOOGLE_VIOLATION = {
    "@type": "type.googleapis.com/google.rpc.BadRequest",
    "reason": "API_KEY_INVALID",
}
GOOGLE_WORDS = json.dumps([{"error": {"code": 400, "details": [GOOGLE_VIOLATION]}}]).encode()
XAI = json.dumps(
    {"code": "Client specified an invalid argument", "error": "Incorrect API key provided: xa***1"}
).encode()
CLAUDE = b'{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}'
CLAUDE_RIGHT = b'{"type":"error","error":{"type":"permission_error","message":"no"}}'


@pytest.mark.requirement("providers:key-verdicts")
@pytest.mark.parametrize(
    ("name", "status", "body", "verdict"),
    [
        ("openai", 401, error(type="invalid_request_error", code="invalid_api_key"), "bad"),
        ("openai", 401, error(code="account_deactivated"), "bad"),
        ("openai", 401, SCOPES, "doubtful"),
        ("openai", 401, error(code="ip_not_authorized"), "doubtful"),
        (
            "openai",
            403,
            error(code="unsupported_country_region_territory", type="request_forbidden"),
            "doubtful",
        ),
        ("openai", 429, error(type="insufficient_quota", code="insufficient_quota"), "account"),
        (
            "openai",
            429,
            error(type="insufficient_quota", code="credit_balance_exhausted"),
            "account",
        ),
        ("openai", 429, error(type="tokens", code="rate_limit_exceeded"), "throttled"),
        ("openai", 400, error(code="invalid_api_key"), "accepted"),
        ("anthropic", 401, CLAUDE, "bad"),
        ("anthropic", 403, CLAUDE_RIGHT, "doubtful"),
        (
            "anthropic",
            402,
            b'{"type":"error","error":{"type":"billing_error","message":"no"}}',
            "account",
        ),
        (
            "anthropic",
            429,
            b'{"type":"error","error":{"type":"rate_limit_error","message":"no"}}',
            "throttled",
        ),
        ("openrouter", 401, error(code=401), "doubtful"),
        ("openrouter", 402, error(code=402), "accepted"),
        ("openrouter", 403, error(code=403, metadata={"reasons": ["violence"]}), "doubtful"),
        ("google", 400, GOOGLE, "bad"),
        ("google", 400, GOOGLE_WORDS, "doubtful"),
        ("xai", 400, XAI, "doubtful"),
        ("xai", 403, XAI, "doubtful"),
        ("ai-gateway", 401, error(type="authentication_error"), "doubtful"),
        ("ai-gateway", 402, error(type="insufficient_funds"), "account"),
    ],
)
def test_each_providers_errors_are_read_by_its_own_codes(
    name: str, status: int, body: bytes, verdict: str
) -> None:
    assert judge(provider(name), KeyAnswer(status, body)) == verdict


@pytest.mark.requirement("keys:codes")
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"invalid_api_key",
        b'"code": "invalid_api_key"',
        b'{"error": "invalid_api_key"}',
        b'{"code": "invalid_api_key"}',
        b'{"error": {"message": "\\"code\\": \\"invalid_api_key\\", invalid_api_key"}}',
        b'{"error": {"param": "invalid_api_key", "metadata": {"code": "invalid_api_key"}}}',
        b'{"error": {"error": {"code": "invalid_api_key"}}}',
        b'{"error": {"code": ["invalid_api_key"], "type": {"code": "invalid_api_key"}}}',
        b'{"error": {"details": [{"reason": "invalid_api_key"}, "invalid_api_key"]}}',
        b'[[{"error": {"code": "invalid_api_key"}}]]',
        b'[{}, {"error": {"code": "invalid_api_key"}}]',
        b"[]",
        b'{"error": {"code": "invalid_api_key"}, "rest": "' + b" " * 65_536 + b'"}',
        b'{"error": {"code": "invalid_api_key"}, "x": ' + b"[" * 20_000 + b"]" * 20_000 + b"}",
        b'{"error": {"code": "invalid_api_key"}',
        b'{"error": {"code": "invalid_api_key\xff"}}',
        b'{"error": {"code": "INVALID_API_KEY"}}',
    ],
)
def test_a_code_counts_at_its_own_place_only(body: bytes) -> None:
    assert judge(provider("openai"), KeyAnswer(401, body)) == "doubtful"


@pytest.mark.requirement("keys:codes")
def test_codes_are_read_in_objects_and_in_googles_lists() -> None:
    assert read_codes(error(code="a", type="b")) == ["a", "b"]
    assert read_codes(GOOGLE) == ["API_KEY_INVALID"]


@pytest.mark.requirement("keys:codes")
def test_a_code_on_a_path_of_no_dialect_kills_no_key() -> None:
    # Anthropic answers so to ``/api/claude_code/metrics``, whatever the key.
    assert judge(provider("anthropic"), KeyAnswer(401, CLAUDE, is_model_call=False)) == "doubtful"


@pytest.mark.requirement("keys:codes")
def test_a_code_that_a_missing_header_causes_kills_no_anthropic_token() -> None:
    token = provider("anthropic", auth="bearer")
    assert judge(token, KeyAnswer(401, CLAUDE)) == "doubtful"
    assert ("anthropic-beta", "oauth-2025-04-20") in key_question(token)[1]


@pytest.mark.requirement("keys:asked")
@pytest.mark.parametrize(
    ("name", "base_url", "path"),
    [
        ("openai", "", "/models"),
        ("openai", "http://litellm:4000", "/v1/models"),
        ("openai", "https://openrouter.ai/api/v1", "/key"),
        ("openrouter", "", "/key"),
        ("openrouter", "http://router.internal/api/v1", "/key"),
        ("ai-gateway", "", "/credits"),
        ("google", "", "/models"),
        ("xai", "", "/api-key"),
        ("anthropic", "https://api.anthropic.com", "/v1/models"),
    ],
)
def test_each_provider_is_asked_what_needs_a_sound_key(name: str, base_url: str, path: str) -> None:
    asked, headers = key_question(provider(name, base_url))
    assert asked == path
    assert (("anthropic-version", "2023-06-01") in headers) == (name == "anthropic")


@pytest.mark.requirement("keys:asked")
@pytest.mark.parametrize(
    ("name", "base_url", "status", "body", "verdict"),
    [
        ("openai", "", 200, b"", "accepted"),
        ("openai", "", 401, error(code="invalid_api_key"), "bad"),
        ("openai", "", 403, SCOPES, "unknown"),  # a restricted key that may not list models
        ("openai", "http://litellm:4000", 401, b"", "bad"),
        ("openai", "http://litellm:4000", 403, b"", "bad"),
        ("openai", "", 404, b"", "unknown"),
        ("openai", "", 429, error(code="insufficient_quota"), "unknown"),
        ("openai", "", 500, b"", "unknown"),
        ("openai", "", 302, b"", "unknown"),
        ("openrouter", "", 401, error(code=401), "bad"),
        ("google", "", 400, GOOGLE, "bad"),
        ("google", "", 400, error(status="FAILED_PRECONDITION"), "unknown"),  # the region
        ("xai", "", 400, XAI, "bad"),
    ],
)
def test_only_a_refusal_kills_and_only_a_success_revives(
    name: str, base_url: str, status: int, body: bytes, verdict: str
) -> None:
    assert answer_to_question(provider(name, base_url), status, body) == verdict
