"""The published JSON Schemas: they are current, and the examples of
docs/spec/contract.md satisfy them.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from claw_contract.published import DIRECTORY, publish, schemas, text

SCHEMAS = schemas()
TOKEN = {"type": "bearer", "token": "t0k3n-of-the-tool"}
LOOKUP = {
    "transport": "mcp",
    "service": "search",
    "base_url": "http://search:8080",
    "path": "/mcp",
    "tool_name": "x",
}
MARKET = {
    "transport": "http",
    "service": "trading-api",
    "base_url": "http://trading-api:4000",
    "method": "GET",
    "path": "/api/v1/market_context/{claw_id}",
    "body": "json",
    "body_key": None,
    "auth": TOKEN,
}
EXAMPLES: dict[str, Any] = {
    "metadata": {
        "service": "analyst",
        "ordinal": 0,
        "pod": "trading-desk",
        "type": "openclaw",
        "token": "analyst-0:" + "a1" * 24,
        "timezone": "UTC",
        "model_policy": {
            "mode": "clamp",
            "allowed": [{"slot": "primary", "ref": "anthropic/claude-sonnet-4"}],
        },
        "budget": {"limit_usd": 5.0, "max_requests": 200, "window": "24h", "behavior": "hard_stop"},
    },
    "tools": {
        "version": 1,
        "tools": [
            {
                "name": "trading-api.get_market_context",
                "description": "…",
                "inputSchema": {"type": "object"},
                "annotations": {"readOnly": True, "x-claw.timeout_ms": 5000},
                "execution": MARKET,
            },
            {"name": "search.lookup", "inputSchema": {"type": "object"}, "execution": LOOKUP},
        ],
        "policy": {
            "max_rounds": 8,
            "timeout_per_tool_ms": 30000,
            "total_timeout_ms": 120000,
            "max_tool_result_bytes": 16384,
            "on_budget": "error",
            "stream": "live",
            "preamble": "hide",
        },
    },
    "feeds": [
        {
            "name": "news",
            "source": "news",
            "path": "/f",
            "ttl": 60,
            "url": "http://news/f",
            "auth": "b34r3r",
        }
    ],
    "memory": {
        "version": 1,
        "service": "mem",
        "base_url": "http://mem:1",
        "recall": {"path": "/recall", "timeout_ms": 300},
        "retain": {"path": "/retain"},
        "forget": {"path": "/forget"},
        "auth": TOKEN,
    },
    "context-blocks": {
        "version": 1,
        "blocks": [
            {
                "id": "rules",
                "kind": "style",
                "text": "Be brief.",
                "enabled": True,
                "placement": "before_feeds",
                "max_chars": 800,
                "cadence": "every_turn",
            }
        ],
    },
    "prices": {
        "openai/gpt-4o": {"input": 2.5, "output": 10, "cached_input": 1.25},
        "claude": {"input": 3, "output": 15},
    },
    "service-auth": {
        "service": "s",
        "auth_type": "bearer",
        "token": "t0k3n",
        "principal": "analyst",
    },
    "providers": {
        "version": 2,
        "providers": {
            "anthropic": {
                "base_url": "https://api.anthropic.com/v1",
                "auth": "x-api-key",
                "api_format": "anthropic",
                "keys": [
                    {
                        "id": "a",
                        "label": "main",
                        "secret": "sk-1",
                        "source": "file",
                        "state": "ready",
                    }
                ],
                "active_key_id": "a",
            },
            "ollama": {"base_url": "http://ollama:11434/v1", "auth": "none"},
        },
    },
    "key-state": {
        "version": 1,
        "provider": "openai",
        "key_id": "env:OPENAI_API_KEY",
        "secret_sha256": "a1" * 32,
        "state": "cooldown",
        "cooldown_until": "2027-01-15T08:01:00.000Z",
        "last_error_code": 429,
        "at": "2027-01-15T08:00:00.000Z",
    },
    "descriptor": {
        "version": 2,
        "tools": [
            {
                "name": "quote",
                "inputSchema": {"type": "object"},
                "http": {"method": "GET", "path": "/q"},
            }
        ],
    },
}
WRONG: list[tuple[str, dict[str, Any]]] = [
    ("tools", {"version": 2}),
    ("tools", {"version": 1, "policy": {"max_rounds": "8"}}),
    ("tools", {"version": 1, "policy": {"stream": "on"}}),
    (
        "tools",
        {
            "version": 1,
            "tools": [
                {"name": "a.b", "inputSchema": {}, "execution": {**MARKET, "method": "HEAD"}}
            ],
        },
    ),
    ("metadata", {"service": "a"}),
    ("providers", {"providers": {"a": {"auth": "digest"}}}),
    ("service-auth", {"service": "s", "auth_type": "bearer", "token": ""}),
    ("context-blocks", {"version": 1, "blocks": [{"id": "", "text": "x"}]}),
    ("prices", {"gpt": {"input": -1, "output": 1}}),
]


def problems(name: str, document: Any) -> list[str]:
    schema = SCHEMAS[f"{name}.schema.json"]
    return [error.message for error in Draft202012Validator(schema).iter_errors(document)]


@pytest.mark.requirement("contract:published")
def test_the_committed_schemas_are_those_of_the_models() -> None:
    committed = {file.name: file.read_text(encoding="utf-8") for file in DIRECTORY.iterdir()}
    assert committed == {name: text(schema) for name, schema in SCHEMAS.items()}, (
        "run: python -m claw_contract.published"
    )


def test_publishing_writes_every_schema(tmp_path: Any) -> None:
    assert (
        publish(tmp_path / "out")
        == sorted(file.name for file in (tmp_path / "out").iterdir())
        == sorted(SCHEMAS)
    )


@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_a_schema_is_a_valid_schema(name: str) -> None:
    Draft202012Validator.check_schema(SCHEMAS[name])


@pytest.mark.requirement("contract:published")
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_of_the_specification_fit_their_schema(name: str) -> None:
    assert problems(name, EXAMPLES[name]) == []
    assert problems(name, json.loads(json.dumps(EXAMPLES[name]))) == []


@pytest.mark.parametrize(("name", "document"), WRONG)
def test_what_the_models_refuse_the_schemas_refuse(name: str, document: dict[str, Any]) -> None:
    assert problems(name, document) != []


def test_unknown_keys_are_allowed_because_readers_ignore_them() -> None:
    assert problems("metadata", {**EXAMPLES["metadata"], "from-the-future": 1}) == []
