"""A pod with one agent, compiled for Compose, and the file as Docker Compose itself reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from claw_compile.compiler import compile_pod
from tests.compile.oracle import compose_config

MASTER = "a-master-secret-for-tests"
DESCRIPTOR = """{"version": 2, "tools": [{"name": "get", "description": "Get it.", "inputSchema": {"type": "object"},
 "http": {"method": "GET", "path": "/get"}, "annotations": {"readOnly": true}}]}"""


def compiled(directory: Path, pod: str, **environ: str) -> dict[str, Any]:
    """Compile the pod in the directory; return the generated file as Compose reads it."""
    (directory / "AGENTS.md").write_text("# Contract\n", encoding="utf-8")
    (directory / "desk.json").write_text(DESCRIPTOR, encoding="utf-8")
    (directory / "claw-pod.yml").write_text(pod, encoding="utf-8")
    result = compile_pod(directory / "claw-pod.yml", {"CLAW_MASTER_SECRET": MASTER, **environ})
    assert result.value is not None, [
        (diagnostic.code.name, diagnostic.message) for diagnostic in result.diagnostics
    ]
    return compose_config(directory / "compose.generated.yml", **environ)


def agent(claw: str = "", compose: str = "", pod: str = "", rest: str = "") -> str:
    """Return a pod with one agent, a desk whose tools it may call, and a service
    without a part in it.
    """
    return f"""
name: desk-of-tests
x-claw: {{pod: desk{pod}}}
services:
  one:
    image: runner
    x-claw: {{agent: AGENTS.md, cllama: passthrough, tools: [{{service: desk, allow: all}}]{claw}}}
{compose}
  desk:
    image: desk
    expose: ["4000"]
    x-claw: {{describe-file: desk.json}}
  bystander: {{image: bystander}}
{rest}"""


def networks(config: dict[str, Any]) -> dict[str, set[str]]:
    """Return each network with the services on it."""
    members: dict[str, set[str]] = {name: set() for name in config["networks"]}
    for name, service in config["services"].items():
        for network in service.get("networks", {}):
            members[network].add(name)
    return members


def reachable(config: dict[str, Any], name: str) -> set[str]:
    return set().union(*(members for members in networks(config).values() if name in members)) - {
        name
    }
