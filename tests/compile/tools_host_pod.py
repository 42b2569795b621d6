"""A pod with a tools host and two agents, and what is compiled of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from claw_compile.compiler import check_pod
from tests.compile.composed import MASTER

HIDDEN = {"name": "time__now", "description": "Tell it.", "inputSchema": {"type": "object"}}


def pod(
    settings: str = "{}", one: str = "[read_file, write_file]", compose: str = "", two: str = ""
) -> str:
    """Return a pod with a tools host and two agents, the second of which has tools
    only if ``two`` names some.
    """
    grant = f", tools: [{{service: files, allow: {two}}}]" if two else ""
    return f"""
x-claw: {{pod: desk}}
services:
  one:
    image: runner:1
    x-claw: {{agent: AGENTS.md, cllama: passthrough, tools: [{{service: files, allow: {one}}}]}}
  two:
    image: runner:1
    x-claw: {{agent: AGENTS.md, cllama: passthrough{grant}}}
  files:
    x-claw: {{tools-host: {settings}}}
{compose}"""


def written(directory: Path, path: str) -> str:
    return (directory / ".claw-runtime" / path).read_text(encoding="utf-8")


def config(directory: Path) -> dict[str, Any]:
    """Return the toolhost.yml that was compiled."""
    read: dict[str, Any] = yaml.safe_load(written(directory, "tools-hosts/files.yml"))
    return read


def codes_of(directory: Path, text: str) -> list[tuple[str, str]]:
    """Return code and help of every diagnostic of a pod."""
    (directory / "AGENTS.md").write_text("# Contract\n", encoding="utf-8")
    (directory / "claw-pod.yml").write_text(text, encoding="utf-8")
    found = check_pod(directory / "claw-pod.yml", {"CLAW_MASTER_SECRET": MASTER}).diagnostics
    return [(each.code.name, f"{each.message}; {each.help}") for each in found]


def discovered(directory: Path, *tools: dict[str, Any]) -> None:
    snapshot = {"version": 2, "mcp": {"path": "/mcp"}, "tools": [*tools]}
    path = directory / ".claw-discovered" / "files.claw-describe.json"
    path.parent.mkdir()
    path.write_text(json.dumps(snapshot), encoding="utf-8")
