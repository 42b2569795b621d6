"""Agent tokens, and the master secret that they are derived from."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from claw_compile.compiler import check_pod, compile_pod
from claw_compile.identity import agent_token
from claw_contract.secret import Secret

POD = "x-claw: {pod: desk}\nservices: {one: {x-claw: {agent: AGENTS.md}}}\n"


@pytest.mark.requirement("compile:tokens")
def test_a_token_of_an_earlier_version_stays_valid() -> None:
    token = agent_token(Secret("a-master-secret-for-tests"), "one").reveal()
    assert token == "one:c3b7ff999912c16826b3ce7d4aa388196cd44497eca26da7"


@pytest.mark.requirement("compile:tokens")
def test_a_token_is_of_its_agent_its_epoch_and_its_pod() -> None:
    master = Secret("a-master-secret-for-tests")
    token = agent_token(master, "one").reveal()
    name, _, secret = token.partition(":")
    assert (name, len(secret), set(secret) <= set("0123456789abcdef")) == ("one", 48, True)
    others = {
        agent_token(master, "two").reveal(),
        agent_token(master, "one", 1).reveal(),
        agent_token(Secret("another-master-secret"), "one").reveal(),
    }
    assert len({token, *others}) == 4
    assert agent_token(master, "one").reveal() == token


@pytest.fixture
def pod(tmp_path: Path) -> Path:
    (tmp_path / "AGENTS.md").write_text("# Contract\n", encoding="utf-8")
    (tmp_path / "claw-pod.yml").write_text(POD, encoding="utf-8")
    return tmp_path / "claw-pod.yml"


@pytest.mark.requirement("compile:master-secret")
def test_the_first_compile_makes_the_master_secret_and_the_next_one_keeps_it(pod: Path) -> None:
    master = pod.parent / ".claw-master"
    check_pod(pod, {})
    assert not master.exists()
    first = compile_pod(pod, {})
    assert first.value is not None
    assert first.value.new_master == master
    assert stat.S_IMODE(master.stat().st_mode) == 0o600
    metadata = (pod.parent / ".claw-runtime/context/one/metadata.json").read_bytes()
    second = compile_pod(pod, {})
    assert second.value is not None
    assert second.value.new_master is None
    assert (pod.parent / ".claw-runtime/context/one/metadata.json").read_bytes() == metadata


def test_a_master_secret_that_is_cut_short_is_an_error(pod: Path) -> None:
    (pod.parent / ".claw-master").write_text("abc\n", encoding="utf-8")
    assert [diagnostic.code.name for diagnostic in compile_pod(pod, {}).diagnostics] == [
        "bad-master-secret"
    ]
    assert not (pod.parent / ".claw-runtime").exists()


def test_an_agent_that_holds_the_master_secret_is_an_error(pod: Path) -> None:
    agent = "{environment: [CLAW_MASTER_SECRET], x-claw: {agent: AGENTS.md}}"
    pod.write_text(f"x-claw: {{pod: desk}}\nservices: {{one: {agent}}}\n", encoding="utf-8")
    diagnostics = compile_pod(pod, {"CLAW_MASTER_SECRET": "a-master-secret-for-tests"}).diagnostics
    assert [each.code.name for each in diagnostics] == ["token-visible-to-agent"]
