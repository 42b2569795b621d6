"""Credential starvation: no agent holds a credential but its own.

The simpler cases are in ``cases/starvation``.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from claw_compile.compiler import check_pod
from claw_compile.diagnostics.diagnostic import Diagnostic
from claw_compile.identity import agent_token
from claw_contract.known_providers import KEY_SHAPE, KEY_VARIABLES, OTHER_KEY_VARIABLES
from claw_contract.secret import Secret
from tests.compile.leaking import MASTER, PROXY_KEY, leaks


def _told(diagnostic: Diagnostic) -> str:
    assert not diagnostic.span.text
    return f"{diagnostic.code.name}: {diagnostic.message.partition(' of one ')[2]}"


@pytest.mark.requirement("compile:starvation")
@pytest.mark.parametrize(
    "name", [*KEY_VARIABLES, *OTHER_KEY_VARIABLES, "OPENAI_API_KEY_7", "PROVIDER_API_KEY_2"]
)
def test_every_variable_that_is_known_to_hold_a_key_is_refused_whatever_it_holds(
    tmp_path: Path, name: str
) -> None:
    expected = ["provider-key-variable: is a variable of a provider's key"]
    assert leaks(tmp_path, f"environment: {{{name}: anything}}") == expected
    assert leaks(tmp_path, f"environment: [{name}]") == expected
    assert leaks(tmp_path, f"environment: [{name}=]") == []


@pytest.mark.requirement("compile:starvation")
@pytest.mark.parametrize(
    "prefix", ["sk-", "sk-ant-", "sk-ant-api03-", "sk-or-", "sk-or-v1-", "sk-proj-", "AIza", "xai-"]
)
def test_every_shape_of_a_key_is_refused_whatever_its_name(tmp_path: Path, prefix: str) -> None:
    for value in (
        f"{prefix}0123abcdWXYZ",
        f"Bearer {prefix}0123abcdWXYZ",
        f"https://x/?key={prefix}0123abcdWXYZ&y",
    ):
        assert leaks(tmp_path, f'environment: {{thing: "{value}"}}') == [
            "provider-key-value: holds what looks like a provider's key"
        ]


@pytest.mark.parametrize(
    "text", ["disk-utilization", "task-0123456789", "sk-learn", "my-sk-0123456789", "AIzak", "xai"]
)
def test_what_only_begins_like_a_key_is_none(text: str) -> None:
    assert KEY_SHAPE.search(text) is None


@pytest.mark.requirement("compile:starvation")
def test_what_the_proxy_alone_may_hold_is_refused_wherever_it_is_part_of(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text(
        json.dumps({"a": 1, "b": f"x{PROXY_KEY}y"}, indent=1), encoding="utf-8"
    )
    pod = "configs: {settings: {file: settings.json}}\n"
    words = "token-visible-to-agent: holds the proxy's OPENAI_API_KEY"
    assert leaks(tmp_path, f"environment: {{URL: 'http://{PROXY_KEY}@host'}}") == [words]
    assert leaks(tmp_path, "configs: [settings]", pod) == [words]
    assert leaks(tmp_path, f"healthcheck: {{test: [CMD, curl, -H, 'x: {PROXY_KEY}']}}") == [words]
    assert leaks(tmp_path, f"environment: {{A: {MASTER}}}") == [
        "token-visible-to-agent: holds the pod's master secret"
    ]


@pytest.mark.requirement("compile:own-token-is-no-key")
def test_an_agents_own_token_may_stand_in_any_variable_and_another_agents_in_none(
    tmp_path: Path,
) -> None:
    own, other = (agent_token(Secret(MASTER), name).reveal() for name in ("one", "two"))
    keys = (
        "environment: {ANTHROPIC_API_KEY: $MINE, AUTHORIZATION: 'Bearer ${MINE}', "
        "ANTHROPIC_AUTH_TOKEN: $MINE}"
    )
    assert (
        leaks(tmp_path, keys, claw=", cllama: {proxy: passthrough, mode: transparent}", MINE=own)
        == []
    )
    assert leaks(tmp_path, "environment: {ANTHROPIC_API_KEY: $MINE}", MINE=other) == [
        "token-visible-to-agent: holds the token of the agent two"
    ]


@pytest.mark.requirement("compile:own-token-is-no-key")
def test_what_a_counted_service_is_given_all_of_its_agents_have(tmp_path: Path) -> None:
    first = agent_token(Secret(MASTER), "one-0").reveal()
    assert leaks(
        tmp_path, "environment: {OPENAI_API_KEY: $FIRST}", claw=", count: 2", FIRST=first
    ) == ["token-visible-to-agent: holds the token of the agent one-0"]


@pytest.mark.requirement("compile:starvation")
def test_a_short_secret_counts_only_as_the_whole_value_of_a_variable(
    tmp_path: Path,
) -> None:
    pod = "x-secrets: none\n"
    claw = ", cllama-env: {GATEWAY_TOKEN: abc}"
    assert leaks(tmp_path, "environment: {A: abcde, B: xabc}\n    command: abc", pod, claw) == []
    assert leaks(tmp_path, "environment: {A: abc}", pod, claw) == [
        "token-visible-to-agent: holds the proxy's GATEWAY_TOKEN"
    ]


@pytest.mark.requirement("compile:starvation")
def test_the_token_of_a_service_that_nobody_has_a_grant_of_is_no_agents_either(
    tmp_path: Path,
) -> None:
    service = (
        "  api:\n    environment: {DESK: $TOKEN}\n    x-claw: {auth: {type: bearer, env: DESK}}\n"
    )
    pod = tmp_path / "claw-pod.yml"
    leaks(tmp_path, "environment: {A: $TOKEN}")
    pod.write_text(pod.read_text(encoding="utf-8") + service, encoding="utf-8")
    diagnostics = check_pod(
        pod, {"CLAW_MASTER_SECRET": MASTER, "TOKEN": "a-token-of-a-desk"}
    ).diagnostics
    assert [_told(each) for each in diagnostics] == [
        "token-visible-to-agent: holds the token of api"
    ]
