"""An agent's compiled tools.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from claw_compile.compiler import compile_pod
from claw_compile.diagnostics.diagnostic import has_errors

TOOLS = ("get_quote", "get_orders", "trade", "cancel")
DESCRIPTOR: dict[str, Any] = {
    "version": 2,
    "tools": [
        {
            "name": name,
            "inputSchema": {
                "type": "object",
                "properties": {"note": {"type": "string", "default": None}},
            },
            "http": {"method": "POST", "path": f"/{name}", "body_key": "order"},
            "annotations": {"x-claw.terminalOnSuccess": False, "title": "kept"},
        }
        for name in TOOLS
    ],
}


def tools_json(
    directory: Path, claw: str, pod: str = "", provider: str = "", **environ: str
) -> dict[str, Any] | None:
    """Compile an agent whose x-claw has ``claw``; return its tools.json."""
    (directory / "AGENTS.md").write_text("# Contract\n", encoding="utf-8")
    (directory / "api.json").write_text(json.dumps(DESCRIPTOR), encoding="utf-8")
    (directory / "claw-pod.yml").write_text(
        f"x-claw: {{pod: desk, cllama-defaults: {{proxy: passthrough}}, secrets: {{api: {{env: "
        f"API_KEY}}}}{pod}}}\n"
        f"services:\n  one:\n    x-claw: {{agent: AGENTS.md{claw}}}\n"
        f"  api:\n    expose: ['4000']\n    environment: {{KEY: $API_KEY}}\n"
        f"    x-claw: {{describe-file: api.json{provider}}}\n",
        encoding="utf-8",
    )
    environment = {
        "CLAW_MASTER_SECRET": "a-master-secret-for-tests",
        "API_KEY": "a-key-for-tests",
        **environ,
    }
    result = compile_pod(directory / "claw-pod.yml", environment, directory / "out")
    assert not has_errors(result.diagnostics), result.diagnostics
    file = directory / "out" / "context" / "one" / "tools.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None


def names(manifest: dict[str, Any] | None) -> list[str]:
    return [tool["name"].removeprefix("api.") for tool in manifest["tools"]] if manifest else []


ALL = ", tools: [{service: api, allow: all}]"
