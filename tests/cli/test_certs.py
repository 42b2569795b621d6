"""``claw certs`` as the operator sees it, and the messages of ``claw up`` about the CA."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from claw_certs.store import read_store
from claw_cli.app import app
from claw_contract.known_providers import KNOWN_PROVIDERS
from tests.certs.example_cas import LONG_AGO, OUTSIDE, pods_ca

POD = """
x-claw:
  pod: desk
services:
  analyst:
    image: python:3.13-slim
    x-claw:
      agent: ./AGENTS.md
      cllama: {{proxy: passthrough, mode: {mode}}}
      cllama-env: {{OPENAI_API_KEY: sk-planted-provider-key, {env}}}
"""
BUNDLE = ".claw-ca/public/ca-bundle.pem"
REMEDIES = ("claw certs init", "claw certs rotate", "chmod 600")


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "cas.pem").write_text(
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", encoding="utf-8"
    )
    (tmp_path / "AGENTS.md").write_text("Be good.\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    written(tmp_path)
    return tmp_path


def written(directory: Path, mode: str = "proxy", **env: str) -> None:
    variables = (
        ", ".join(f"{name}: {json.dumps(value)}" for name, value in env.items())
        or 'XAI_API_KEY: ""'
    )
    (directory / "claw-pod.yml").write_text(POD.format(mode=mode, env=variables), encoding="utf-8")


def claw(*arguments: str, **env: str) -> Result:
    environment = {
        "CLAW_MASTER_SECRET": "planted-master-secret",
        "TERM": "dumb",
        "CLAW_UID": "",
        **env,
    }
    return CliRunner().invoke(app, list(arguments), env=environment)


def certs(verb: str, *arguments: str, **env: str) -> Result:
    public = () if verb == "status" else ("--public-cas", "cas.pem")
    return claw("certs", verb, *arguments, *public, **env)


def status() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(certs("status", "--json").stdout)
    return document


@pytest.mark.requirement("certs:hosts")
def test_the_ca_covers_the_governed_hosts_and_lists_those_left_out(desk: Path) -> None:
    written(
        desk,
        CLLAMA_HOSTS=f"{OUTSIDE}=openai, 10.0.0.5=openai, *.wild.example=openai",
        OPENAI_BASE_URL="https://models.internal.example/v1",
        OLLAMA_BASE_URL="http://ollama:11434/v1",
        XAI_BASE_URL="https://10.1.1.1/v1",
    )
    result = certs("init")
    assert result.exit_code == 0, result.output
    signing = read_store(desk / ".claw-ca").signing
    assert signing is not None
    hosts = {each.base_url.split("/")[2] for each in KNOWN_PROVIDERS.values() if each.base_url}
    assert set(signing.permitted or ()) == hosts | {OUTSIDE, "models.internal.example"}
    left_out = {each["host"]: each["why"] for each in status()["left_out"]}
    assert left_out.keys() == {"10.0.0.5", "*.wild.example", "10.1.1.1"}
    for host, why in left_out.items():
        assert f"{host} (left out: {why})" in result.stdout
    assert "sk-planted" not in result.output


@pytest.mark.requirement("certs:rotation")
@pytest.mark.usefixtures("desk")
def test_each_step_of_a_rotation_names_the_next_one() -> None:
    assert "claw certs init claw-pod.yml" in certs("rotate").stderr
    assert certs("init").exit_code == 0
    assert "claw certs rotate claw-pod.yml" in certs("rotate", "--finish").stderr
    assert "there is no .claw-ca/private/next-ca.pem" in certs("rotate", "--finish").stderr
    first = certs("rotate")
    assert (first.exit_code, "--finish" in first.stdout) == (0, True)
    before = status()
    assert [before[key] is not None for key in ("signing", "next")] == [True, True]
    assert "a rotation is under way" in before["problems"][0]["text"]
    assert "--force-recreate" in certs("rotate", "--finish").stdout
    after = status()
    assert (after["signing"], after["next"], after["problems"]) == (before["next"], None, [])


@pytest.mark.requirement("certs:finish")
def test_a_finish_with_an_unfit_ca_is_refused_in_one_line_with_the_remedy(desk: Path) -> None:
    certs("init")
    certs("rotate")
    (desk / ".claw-ca/private/next-ca.pem").chmod(0o644)
    signing = read_store(desk / ".claw-ca").signing
    refused = certs("rotate", "--finish")
    assert (refused.exit_code, refused.stdout) == (1, "")
    (line,) = refused.stderr.splitlines()
    assert line.startswith(
        "error: the key of the CA .claw-ca/private/next-ca.pem is open to everybody: "
    )
    assert "claw certs rotate claw-pod.yml" in line
    assert read_store(desk / ".claw-ca").signing == signing


@pytest.mark.requirement("certs:status")
@pytest.mark.parametrize(
    ("spoil", "text", "exit_code"),
    [
        (lambda _: None, "there is no CA", 1),
        (lambda desk: pods_ca(desk / ".claw-ca", now=LONG_AGO), "it expired on", 1),
        (lambda desk: pods_ca(desk / ".claw-ca", "old.example"), "does not cover", 0),
        (
            lambda desk: (
                certs("init") and (desk / ".claw-ca/private/mitmproxy-ca.pem").chmod(0o640)
            ),
            "open to",
            1,
        ),
        (
            lambda desk: certs("init") and (desk / ".claw-ca/public/ca-cert.pem").unlink(),
            "is not of this CA",
            1,
        ),
        (
            lambda desk: certs("init") and (desk / BUNDLE).unlink(),
            "ca-bundle.pem, which runners trust, is missing",
            1,
        ),
        (
            lambda desk: (
                certs("init") and (desk / BUNDLE).write_bytes((desk / "cas.pem").read_bytes())
            ),
            "ca-bundle.pem",
            1,
        ),
        (
            lambda desk: (
                certs("init")
                and certs("rotate")
                and (desk / ".claw-ca/private/next-ca.pem").chmod(0o644)
            ),
            "next-ca.pem is open to",
            1,
        ),
        (
            lambda desk: (
                certs("init")
                and certs("rotate")
                and (desk / ".claw-ca/private/next-ca.pem").write_text("?")
            ),
            "next-ca.pem: it holds no certificate",
            1,
        ),
        (
            lambda desk: (
                certs("init") and (desk / ".claw-ca/private/mitmproxy-ca.pem").write_text("?")
            ),
            "no certificate",
            1,
        ),
        (lambda _: certs("init", "--days", "29"), "expires on", 0),
        (lambda desk: (desk / ".claw-ca").symlink_to("/proc"), "symlink", 1),
    ],
)
def test_status_and_up_report_each_problem_with_its_remedy(
    desk: Path, spoil: Any, text: str, exit_code: int
) -> None:
    """``up`` goes on if the proxy would start with this CA, and then fails because
    there is no Docker here.
    """
    spoil(desk)
    result = certs("status")
    (line,) = [line for line in result.stderr.splitlines() if text in line]
    assert line.startswith("error: " if exit_code else "warning: ")
    assert any(remedy in line for remedy in REMEDIES)
    assert result.exit_code == exit_code
    assert [text in problem["text"] for problem in status()["problems"]].count(True) == 1
    up = claw("up", PATH=str(desk))
    assert line in up.stderr
    assert ("no 'docker'" in up.stderr) == (exit_code == 0)


@pytest.mark.requirement("certs:status")
def test_a_pod_whose_agents_all_use_the_base_url_needs_no_ca(desk: Path) -> None:
    written(desk, mode="base-url")
    assert certs("status").exit_code == 0
    up = claw("up", PATH=str(desk))
    assert "CA" not in up.stderr.replace("PATH", "")
    assert "no agent of this pod needs a CA" in certs("init").stderr


@pytest.mark.requirement("certs:status")
def test_a_new_governed_host_is_reported_until_the_ca_is_rotated(desk: Path) -> None:
    certs("init")
    written(desk, CLLAMA_HOSTS=f"{OUTSIDE}=openai")
    assert {"host": OUTSIDE, "covered": False} in status()["hosts"]
    certs("rotate")
    certs("rotate", "--finish")
    assert {"host": OUTSIDE, "covered": True} in status()["hosts"]
    assert status()["problems"] == []


@pytest.mark.requirement("certs:files")
def test_the_key_belongs_to_the_user_of_the_proxy(desk: Path) -> None:
    key = desk / ".claw-ca" / "private" / "mitmproxy-ca.pem"
    another = str(os.geteuid() + 4321)
    result = certs("init", CLAW_UID=another)
    if os.geteuid() == 0:
        assert (result.exit_code, key.stat().st_uid, key.parent.stat().st_uid) == (
            0,
            int(another),
            int(another),
        )
    else:
        assert (result.exit_code, key.exists()) == (1, False)
        assert f"CLAW_UID={another}" in result.stderr


@pytest.mark.requirement("certs:files")
@pytest.mark.parametrize("uid", ["nobody", "９", "2147483648", "9" * 5000])
@pytest.mark.usefixtures("desk")
def test_a_user_of_the_proxy_that_is_no_number_is_one_line(uid: str) -> None:
    result = certs("init", CLAW_UID=uid)
    assert result.exit_code == 1
    assert "CLAW_UID is a number from 0 to 2147483647" in result.stderr
