"""The table of the providers' endpoints is whole, and says of each what the proxy does."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from claw_mediate.core.known_paths import KNOWN_PATHS
from tests.attacks.endpoints import CLOSED, MINTS, Endpoint, find, read_endpoints, verdict

CALL = re.compile(
    r'self\._(get|post|delete|put|patch|get_api_list)\(\s*(?:path_template\(\s*)?f?"(/[^"?]*)'
)


def endpoints_of_sdk(name: str) -> set[str]:
    """Return the paths that an SDK asks for, their ids as ``{}``."""
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    sources = Path(spec.origin).parent.joinpath("resources").rglob("*.py")
    found = {
        match[2] for file in sources for match in CALL.finditer(file.read_text(encoding="utf-8"))
    }
    return {re.sub(r"\{[^}]*\}", "{}", path) for path in found}


@pytest.mark.requirement("paths:endpoints")
@pytest.mark.parametrize(("sdk", "prefix"), [("openai", ""), ("anthropic", "/v1")])
def test_the_list_has_every_endpoint_of_the_sdk(sdk: str, prefix: str) -> None:
    listed = {prefix + each.path for each in read_endpoints() if each.provider == sdk}
    asked = endpoints_of_sdk(sdk)
    assert len(asked) > 100
    assert asked - listed == set()


@pytest.mark.requirement("paths:endpoints")
def test_every_row_of_the_tables_is_an_endpoint_of_the_list_or_a_runners() -> None:
    hit = {
        (match.family, match.row.pattern)
        for each in read_endpoints()
        if (match := find(each)) is not None
    }
    rows = {(family, row.pattern) for family, table in KNOWN_PATHS.items() for row in table}
    assert {family for family, _ in rows - hit} <= {
        "openai",
        "openrouter",
        "google",
        "xai",
        "ai-gateway",
        "ollama",
    }
    assert {pattern for family, pattern in rows - hit if family == "openai"} == set()


@pytest.mark.requirement("paths:endpoints")
@pytest.mark.parametrize(
    ("provider", "method", "path", "said"),
    [
        ("openai", "POST", "/chat/completions", "mediated"),
        ("openai", "GET", "/chat/completions/{}/messages", "404: stored completions can't be read"),
        ("openai", "GET", "/files/{}/content", "the agent's own file, else 404"),
        ("openai", "POST", "/fine_tuning/alpha/graders/run", CLOSED),
        ("openai", "POST", "/realtime/client_secrets", MINTS),
        ("openai", "POST", "/chatkit/sessions", MINTS),
        ("openai", "POST", "/organization/projects/{}/service_accounts", MINTS),
        ("anthropic", "GET", "/organizations/api_keys", MINTS),
        ("anthropic", "POST", "/tunnels/{}/reveal_token", MINTS),
        ("openrouter", "POST", "/keys", MINTS),
        ("openrouter", "POST", "/auth/keys", MINTS),
        ("google", "POST", "//v1alpha/auth_tokens", MINTS),
        ("google", "POST", "//v1beta/interactions", CLOSED),
        ("xai", "GET", "/api-key", MINTS),
    ],
)
def test_an_endpoint_is_what_the_table_says(
    provider: str, method: str, path: str, said: str
) -> None:
    endpoint = Endpoint(provider, method, path)  # type: ignore[arg-type]
    assert endpoint in set(read_endpoints())
    assert verdict(endpoint) == said
