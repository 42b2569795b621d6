"""A pod with two agents that may call one service, and its lock."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from claw_compile.compiler import check_pod
from claw_compile.diagnostics.diagnostic import Diagnostic
from claw_compile.lock_update import LockResult, lock_pod

ENVIRON = {"CLAW_MASTER_SECRET": "a-master-secret-for-tests"}
type Tool = dict[str, Any]


def tool(name: str, method: str = "GET", *, read: bool = True, **changed: Any) -> Tool:
    http = {"method": method, "path": f"/{name}"}
    schema = {"type": "object", "properties": {"b": {"type": "string"}, "a": {"type": "integer"}}}
    described = {"name": name, "description": "Do it.", "inputSchema": schema, "http": http}
    return {**described, "annotations": {"readOnly": read}, **changed}


QUOTE, TRADE = tool("quote"), tool("trade", "POST", read=False)


def describe(directory: Path, *tools: Tool, allow: str = "all", **more: Any) -> Path:
    """Write a pod with two agents, which are granted tools of one service; return its file."""
    (directory / "AGENTS.md").write_text("# Contract\n", encoding="utf-8")
    (directory / "api.json").write_text(
        json.dumps({"version": 2, "tools": tools, **more}), encoding="utf-8"
    )
    grants = f"cllama: passthrough, tools: [{{service: api, allow: {allow}}}]"
    pod = (
        "x-claw: {pod: desk}\nservices:\n"
        f"  one: {{x-claw: {{agent: AGENTS.md, {grants}}}}}\n"
        f"  two: {{x-claw: {{agent: AGENTS.md, {grants}}}}}\n"
        "  api: {image: 'api:1', expose: ['80'], x-claw: {describe-file: api.json}}\n"
    )
    (directory / "claw-pod.yml").write_text(pod, encoding="utf-8")
    return directory / "claw-pod.yml"


def codes(diagnostics: Iterable[Diagnostic]) -> list[str]:
    return [each.code.name for each in diagnostics if each.code.name != "write-granted-by-all"]


def locked(pod: Path, *accept: str) -> LockResult:
    result = lock_pod(pod, ENVIRON, accept)
    assert result.value is not None, result.diagnostics
    return result.value


def drift_notes(pod: Path) -> list[str]:
    (drift,) = [
        each for each in check_pod(pod, ENVIRON).diagnostics if each.code.name == "lock-drift"
    ]
    return [note.message for note in drift.notes]
