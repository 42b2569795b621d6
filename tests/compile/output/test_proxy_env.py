"""The proxy's environment: its hosts, its time to stop, and what the operator sets."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from claw_compile.compiler import check_pod, compile_pod
from claw_compile.output.deployment import Deployment, Placement
from claw_compile.output.proxy_env import (
    ENV_FILE,
    governed_hosts,
    grace_seconds,
    opened_hosts,
    proxy_env_file,
    proxy_environment,
)
from claw_contract.secret import Secret


def deployment(
    directory: Path, env: str = "", claw: str = "", placement: Placement = "sidecar"
) -> Deployment:
    """Return a pod with one agent, and with these variables of its proxy."""
    (directory / "AGENTS.md").write_text("# Contract\n", encoding="utf-8")
    file = directory / "claw-pod.yml"
    file.write_text(
        f"x-claw: {{pod: desk, cllama-defaults: {{proxy: passthrough, env: {{{env}}}}}}}\n"
        f"services:\n  one: {{x-claw: {{agent: AGENTS.md{claw}}}}}\n",
        encoding="utf-8",
    )
    plan = check_pod(file, {}).value
    assert plan is not None
    tree = proxy_env_file(plan.resolved)
    return Deployment(plan.loaded.pod, plan.resolved, tree, Secret("a-master-secret"), placement)


@pytest.mark.requirement("compose:secrets")
def test_the_operators_variables_are_in_a_file_and_keys_of_providers_are_not(
    tmp_path: Path,
) -> None:
    made = deployment(tmp_path, "ALERTS: 'a=b', OPENAI_API_KEY: planted, CLLAMA_EGRESS: allow")
    assert made.tree == {ENV_FILE: b"ALERTS=a=b\nCLLAMA_EGRESS=allow\n"}
    environment, env_file = proxy_environment(made)
    assert env_file == PurePosixPath("auth", "env")
    assert "CLLAMA_EGRESS" not in environment
    assert environment["CLAW_POD"] == "desk"
    assert "planted" not in str(environment)


@pytest.mark.requirement("compose:proxy")
def test_a_pod_that_sets_nothing_has_no_env_file_and_denies_egress(tmp_path: Path) -> None:
    environment, env_file = proxy_environment(deployment(tmp_path))
    assert env_file is None
    assert environment["CLLAMA_EGRESS"] == "deny"


@pytest.mark.requirement("compose:modes")
def test_governed_hosts_are_those_of_providers_and_of_the_operator(tmp_path: Path) -> None:
    env = "CLLAMA_HOSTS: 'models.test=openai, ,other.test=x', OLLAMA_BASE_URL: 'https://own.test/v1', XAI_BASE_URL: 'http://plain.test'"
    resolved = deployment(tmp_path, env).resolved
    governed = governed_hosts(resolved)
    assert {"api.openai.com", "api.anthropic.com", "models.test", "other.test"} <= governed
    assert not {"", "own.test"} & governed
    opened = opened_hosts(resolved)
    assert "own.test" in opened
    assert "plain.test" not in opened
    assert opened == sorted(opened)


@pytest.mark.requirement("gateway:drains")
@pytest.mark.parametrize(
    ("env", "claw", "placement", "seconds"),
    [
        ("", "", "sidecar", 30),
        ("CLLAMA_DRAIN_MS: 1500", "", "sidecar", 7),
        ("CLLAMA_DRAIN_MS: ''", "", "sidecar", 30),
        ("", "", "gateway", 125),
        ("", ", tool-policy: {total-timeout-ms: 60000}", "gateway", 65),
        ("", ", tool-policy: {total-timeout-ms: 9000000}", "gateway", 605),
    ],
)
def test_a_proxy_has_the_time_of_its_drain_and_some_more_to_stop(
    tmp_path: Path, env: str, claw: str, placement: Placement, seconds: int
) -> None:
    assert grace_seconds(deployment(tmp_path, env, claw, placement)) == seconds


@pytest.mark.requirement("compile:proxy", "compile:no-traceback")
@pytest.mark.parametrize("value", ["soon", "0", "600001", "９", "9" * 400, "9" * 5000])
def test_a_drain_that_the_proxy_would_refuse_is_an_error_at_its_variable(
    tmp_path: Path, value: str
) -> None:
    (tmp_path / "AGENTS.md").write_text("# Contract\n", encoding="utf-8")
    file = tmp_path / "claw-pod.yml"
    file.write_text(
        f"x-claw: {{pod: desk, cllama-defaults: {{proxy: passthrough, env: {{CLLAMA_DRAIN_MS: '{value}'}}}}}}\n"
        "services:\n  one: {x-claw: {agent: AGENTS.md}}\n",
        encoding="utf-8",
    )
    result = compile_pod(file, {"CLAW_MASTER_SECRET": "a-master-secret-for-tests"})
    (told,) = (each for each in result.diagnostics if each.code.name == "bad-value")
    assert told.message == "CLLAMA_DRAIN_MS takes a whole number of milliseconds from 1 to 600000"
    assert told.span.line == 1
    assert result.value is None
