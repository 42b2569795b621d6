"""The output of ``claw compile`` for a transparent agent, used as it is: the rules, the proxy's
command and environment, the agent's environment. Only the paths of containers are replaced by those
of this test.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import yaml
from typer.testing import CliRunner

from claw_cli.app import app
from claw_compile.compiler import compile_pod
from claw_compile.diagnostics.report import as_text

SEEN_AT = "/mnt"
"""The mount point of the pod's files for its proxy, and of its CA's public part for its agent."""
OPENAI_KEY, ANTHROPIC_KEY, TOOL_TOKEN = (
    "sk-gateway-openai",
    "sk-ant-gateway-anthropic",
    "gateway-tool-token",
)
_PLACES = {
    "/claw/runtime": ".claw-runtime",
    "/claw/ca": ".claw-ca/private",
    "/claw/": "",
    "/tmp": "tmp",
}
ENVIRON = {"OPENAI": OPENAI_KEY, "ANTHROPIC": ANTHROPIC_KEY, "TOKEN": TOOL_TOKEN}
NETWORKS = "10.77.0.0/16,fd77::/16,198.51.100.0/24"
"""The networks of these tests, which the proxy takes for private."""
POD = """\
x-claw:
  pod: desk
  cllama-defaults:
    proxy: passthrough
    env:
      OPENAI_API_KEY: "${{OPENAI}}"
      ANTHROPIC_API_KEY: "${{ANTHROPIC}}"
      CLLAMA_EGRESS: {egress}
      CLLAMA_EGRESS_NETWORKS: "{networks}"
services:
  analyst:
    image: analyst:1
    x-claw:
      agent: AGENTS.md
      cllama: {{proxy: passthrough, mode: transparent}}
      tools: [{{service: desk, allow: all}}]
      surfaces: ["service://shelf"]
      tool-policy: {{timeout-per-tool-ms: 20000}}
  desk:
    image: desk:1
    environment: {{TOKEN: "${{TOKEN}}"}}
    x-claw: {{describe-file: desk.json, base-url: "{service}", auth: {{type: bearer, env: TOKEN}}}}
  shelf: {{image: "shelf:1", expose: [9000]}}
"""
DESK = {
    "version": 2,
    "tools": [
        {
            "name": "balance",
            "description": "The balance.",
            "inputSchema": {"type": "object", "properties": {}},
            "annotations": {"readOnly": True},
            "http": {"method": "GET", "path": "/balance"},
        },
        {
            "name": "trade",
            "description": "A trade.",
            "inputSchema": {"type": "object", "properties": {"play": {"type": "string"}}},
            "annotations": {"readOnly": False},
            "http": {"method": "POST", "path": "/trade"},
        },
    ],
}


@dataclass(frozen=True)
class CompiledPod:
    """The parts of a compiled pod.

    ``arguments``: mitmdump's; ``rules``: those of the step that may set them; ``uid``: that of the
    proxy; ``led``, ``own``: the names by which the runner, and the proxy itself, find the proxy.
    """

    arguments: list[str]
    environment: dict[str, str]
    rules: str
    uid: int
    runner: dict[str, str]
    led: frozenset[str] = frozenset()
    own: frozenset[str] = frozenset()


def compiled(
    home: Path, target: Literal["compose", "kubernetes"], service: str, egress: str = "deny"
) -> CompiledPod:
    for name, content in (
        ("claw-pod.yml", POD.format(service=service, egress=egress, networks=NETWORKS)),
        ("AGENTS.md", "Be good.\n"),
        ("desk.json", json.dumps(DESK)),
    ):
        (home / name).write_text(content, encoding="utf-8")
    result = compile_pod(home / "claw-pod.yml", ENVIRON, target=target)
    assert result.value is not None, as_text(result.diagnostics)
    runner = _read(home / ".claw-runtime" / "agents" / "analyst" / "env")
    parts = _composed(home) if target == "compose" else _deployed(home)
    assert parts.arguments[:3] == ["mitmdump", "-s", "addons/cllama.py"]
    return replace(
        parts,
        arguments=[_here(word) for word in parts.arguments[3:]],
        environment={name: _here(value) for name, value in parts.environment.items()},
        runner={name: value.replace("/etc/ssl/claw", SEEN_AT) for name, value in runner.items()},
    )


def with_authority(home: Path, public: Path) -> None:
    """Create the pod's CA as the operator does; ``public``: the CAs that runners
    trust beside it.
    """
    made = CliRunner().invoke(
        app, ["certs", "init", str(home / "claw-pod.yml"), "--public-cas", str(public)], env=ENVIRON
    )
    assert made.exit_code == 0, made.output


def _composed(home: Path) -> CompiledPod:
    services = yaml.safe_load((home / "compose.generated.yml").read_text(encoding="utf-8"))[
        "services"
    ]
    proxy, (program, rules) = services["cllama"], services["cllama-redirect"]["command"]
    assert program == "nft"
    assert proxy["user"] == "${CLAW_UID:-1000}:${CLAW_GID:-1000}"
    environment = _read(home / proxy["env_file"][0]["path"])
    links = (link.partition(":") for link in services["analyst"]["links"])
    led = frozenset(name for holder, _, name in links if holder == "cllama-gateway")
    # An alias of Docker's name server holds for everybody on the network, its owner too.
    own = frozenset(
        name
        for network in services["cllama-gateway"]["networks"].values()
        for name in network["aliases"]
    )
    return CompiledPod(
        proxy["command"], proxy["environment"] | environment, rules, 1000, {}, led, own
    )


def _deployed(home: Path) -> CompiledPod:
    file = home / ".claw-runtime" / "kubernetes.generated.yml"
    objects = [*yaml.safe_load_all(file.read_text(encoding="utf-8"))]
    spec = next(
        each
        for each in objects
        if each["kind"] == "Deployment" and each["metadata"]["name"] == "desk-analyst"
    )
    guard, proxy = spec["spec"]["template"]["spec"]["initContainers"]
    program, rules = guard["command"]
    assert program == "nft"
    secrets = {
        each["metadata"]["name"]: each["data"] for each in objects if each["kind"] == "Secret"
    }
    named = _decoded(secrets[source["secretRef"]["name"]] for source in proxy["envFrom"])
    environment = {each["name"]: each["value"] for each in proxy["env"]} | named
    return CompiledPod(
        proxy["command"], environment, rules, proxy["securityContext"]["runAsUser"], {}
    )


def _decoded(secrets: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    return {
        name: base64.b64decode(value).decode() for each in secrets for name, value in each.items()
    }


def _read(file: Path) -> dict[str, str]:
    return dict(line.partition("=")[::2] for line in file.read_text(encoding="utf-8").splitlines())


def _here(word: str) -> str:
    """Return the word with the path of the proxy's container replaced."""
    option, is_option, value = word.partition("=")
    for path, place in _PLACES.items():
        if (value or option).startswith(path):
            moved = (value or option).replace(path, f"{SEEN_AT}/{place}", 1)
            return f"{option}={moved}" if is_option else moved
    return word
