"""``claw explain``: the whole chain of reasons for what is allowed and for what is denied."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.running import claw

POD = """\
x-claw:
  pod: desk
  cllama-defaults: {proxy: passthrough}
  tools-defaults:
    - {service: api, allow: [read, spare]}
services:
  inherits: {x-claw: {agent: AGENTS.md}}
  suppresses: {x-claw: {agent: AGENTS.md, tools: []}}
  replaces: {x-claw: {agent: AGENTS.md, tools: [{service: api, allow: [read]}]}}
  denies: {x-claw: {agent: AGENTS.md, tools: [..., {service: api, allow: [spare], deny: [read]}]}}
  api: &api
    expose: ["80"]
    environment: {KEY: planted-key-value, OWN: planted-own-value}
    x-claw: {describe-file: api.json, auth: {type: bearer, env: KEY}}
  twin: *api
  absorbs: {x-claw: {agent: AGENTS.md, tools: [..., {service: api, allow: all}]}}
"""
DESCRIPTOR = {
    "version": 2,
    "tools": [
        {
            "name": name,
            "description": name,
            "inputSchema": {"type": "object"},
            "http": {"method": "GET", "path": "/x"},
        }
        for name in ("read", "spare")
    ],
}


@pytest.fixture
def pod(tmp_path: Path) -> Path:
    (tmp_path / "claw-pod.yml").write_text(POD, encoding="utf-8")
    (tmp_path / "api.json").write_text(json.dumps(DESCRIPTOR, indent=1), encoding="utf-8")
    (tmp_path / "AGENTS.md").write_text("Be good.\n", encoding="utf-8")
    return tmp_path


def told(pod: Path, agent: str, tool: str) -> str:
    result = claw(pod, "explain", agent, tool)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


@pytest.mark.requirement("cli:explain")
@pytest.mark.parametrize(
    ("agent", "expected"),
    [
        (
            "inherits",
            """\
inherits may call api.read (unknown)
  claw-pod.yml:7:3: inherits has no 'tools', and so inherits the pod's
  claw-pod.yml:5:7: a grant of api in 'tools-defaults' names it
  api.json:4:3: declared as tool 1 of 2
  presented to the model as 'api__read'
  claw-pod.yml:11:3: called over http with the credential of api, from the environment of the service
  to change it: add 'deny: [read]' to a grant of api in the 'tools' of inherits, or name other tools
""",
        ),
        (
            "suppresses",
            """\
suppresses may not call api.read (unknown)
  claw-pod.yml:8:43: 'tools' of suppresses suppresses the pod's defaults
  claw-pod.yml:8:43: suppresses has no grant of api
  api.json:4:3: declared as tool 1 of 2
  to change it: add '- service: api' with 'allow: [read]' to the 'tools' of suppresses
""",
        ),
        (
            "absorbs",
            """\
absorbs may call api.read (unknown)
  claw-pod.yml:16:48: '...' splices the pod's defaults
  claw-pod.yml:5:7: a grant of api in 'tools-defaults' names it
  claw-pod.yml:16:75: 'allow: all' of api in 'tools'
  api.json:4:3: declared as tool 1 of 2
  presented to the model as 'api__read'
  claw-pod.yml:11:3: called over http with the credential of api, from the environment of the service
  to change it: add 'deny: [read]' to a grant of api in the 'tools' of absorbs, or name other tools
""",
        ),
        (
            "denies",
            """\
denies may not call api.read (unknown)
  claw-pod.yml:10:47: '...' splices the pod's defaults
  claw-pod.yml:5:7: a grant of api in 'tools-defaults' names it
  claw-pod.yml:10:52: 'deny' of a grant in 'tools' names it; deny beats allow
  api.json:4:3: declared as tool 1 of 2
  to change it: take read out of 'deny'
""",
        ),
    ],
)
def test_each_reason_has_its_place(pod: Path, agent: str, expected: str) -> None:
    assert told(pod, agent, "api.read") == expected


@pytest.mark.requirement("cli:explain")
def test_a_tool_is_known_by_its_canonical_name_and_as_the_model_sees_it(pod: Path) -> None:
    assert told(pod, "inherits", "api__read") == told(pod, "inherits", "api.read")
    replaced = told(pod, "replaces", "api.spare")
    assert "'tools' of replaces replaces the pod's defaults" in replaced
    assert "claw-pod.yml:9:49: the grant of api does not name api.spare" in replaced


@pytest.mark.requirement("cli:explain")
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("inherit",), "the pod has no agent 'inherit'; did you mean 'inherits'?"),
        (
            ("inherits", "api.raed"),
            "no service of the pod declares a tool 'api.raed'; did you mean 'api.read'?",
        ),
        (
            ("inherits", "read"),
            "several services declare a tool 'read'; name one of api.read, twin.read",
        ),
    ],
)
def test_a_word_that_names_nothing_is_told_with_a_hint(
    pod: Path, words: tuple[str, ...], says: str
) -> None:
    result = claw(pod, "explain", *words)
    assert (result.returncode, result.stdout, result.stderr) == (2, "", f"claw-pod.yml: {says}\n")


@pytest.mark.requirement("cli:explain")
def test_without_a_tool_every_tool_of_the_pod_is_explained_and_no_credential_is_told(
    pod: Path,
) -> None:
    result = claw(pod, "explain", "inherits", "--json")
    verdicts = json.loads(result.stdout)
    assert {verdict["tool"]: verdict["allowed"] for verdict in verdicts} == {
        "api.read": True,
        "api.spare": True,
        "twin.read": False,
        "twin.spare": False,
    }
    assert all(verdict["why"] and verdict["change"] for verdict in verdicts)
    assert "planted" not in result.stdout + claw(pod, "explain", "inherits").stdout


@pytest.mark.requirement("cli:explain")
def test_a_pod_with_errors_is_not_explained(pod: Path) -> None:
    (pod / "claw-pod.yml").write_text(
        POD.replace("allow: [spare]", "allow: [spre]"), encoding="utf-8"
    )
    result = claw(pod, "explain", "inherits")
    assert (result.returncode, result.stdout) == (1, "")
    assert "error[unknown-tool]" in result.stderr
