"""Paths that an operator opens: what an entry opens, and what none can open."""

from __future__ import annotations

import pytest

from claw_contract.opened_paths import (
    OpenedPath,
    OpenedPathError,
    find_credentials,
    parse_opened_paths,
    write_opened_paths,
)


@pytest.mark.requirement("paths:credentials")
@pytest.mark.parametrize(
    "path",
    [
        "/v1/skills",
        "/v1/fine_tuning/jobs",
        "/v1/agents/sessions",
        "/v1/messages/count_tokens",
        "/v1/credits",
        "/v1/monkeys",
    ],
)
def test_what_holds_no_credential_can_be_opened(path: str) -> None:
    assert find_credentials(path) is None
    assert OpenedPath.parse(f"POST {path}").opens("POST", path)


@pytest.mark.requirement("paths:credentials")
@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("POST /v1/organization/*", "'organization' mints or lists credentials"),
        ("GET /v1/x/api-keys", "'api-keys' mints or lists credentials"),
        ("POST /v1/realtime/a/sessions", "'sessions' mints or lists credentials"),
        ("TRACE /v1/skills", "the methods are GET, HEAD,"),
        ("POST /v1/%6beys", "written plainly"),
        ("POST /v1/a/../keys", "written plainly"),
        ("POST /v1/*/x", "written plainly"),
    ],
)
def test_an_entry_that_can_not_be_opened_says_why_without_quoting_itself(
    entry: str, reason: str
) -> None:
    with pytest.raises(OpenedPathError) as caught:
        parse_opened_paths(f"GET /v1/skills, {entry}")
    assert reason in caught.value.reason
    assert entry not in caught.value.reason


@pytest.mark.requirement("paths:opened")
def test_an_entry_opens_its_method_and_its_path_or_all_below_its_prefix() -> None:
    one, below = parse_opened_paths("POST /v1/Skills/, GET /v1/files/*,")
    assert [one.opens(method, "/v1/skills") for method in ("POST", "GET")] == [True, False]
    assert not one.opens("POST", "/v1/skills/x")
    assert [below.opens("GET", path) for path in ("/v1/files/x", "/v1/files")] == [True, False]
    written = write_opened_paths(["POST /v1/Skills/", "GET /v1/files/* ", "GET /v1/files/*"])
    assert parse_opened_paths(written) == (one, below)
