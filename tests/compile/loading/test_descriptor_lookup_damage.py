"""One damaged byte in any description of a service gives diagnostics, never a traceback."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claw_compile.codes import CODES
from claw_compile.compiler import check_pod
from claw_compile.diagnostics.report import as_json, as_text
from tests.search_size import scale_examples

ENVIRON = {"TOKEN": "planted-token-of-the-api", "CLAW_MASTER_SECRET": "planted-master-secret"}
SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "pattern": "^[a-z]+$"},
        "other": {"$ref": "#/$defs/other"},
    },
    "required": ["id"],
    "$defs": {"other": {"enum": [1, None]}},
}
TOOL: dict[str, Any] = {"name": "look", "description": "Look.", "inputSchema": SCHEMA}
DESCRIBED = {
    "version": 2,
    "description": "A desk",
    "feeds": [{"name": "news", "path": "/news/{claw_id}", "ttl": 5}],
    "endpoints": [{"method": "GET", "path": "/health"}],
    "auth": {"type": "bearer", "env": "TOKEN"},
    "skill": "/skill.md",
    "memory": {"recall": {"path": "/recall"}},
    "tools": [
        {
            **TOOL,
            "http": {"method": "GET", "path": "/look/{id}"},
            "annotations": {"readOnly": True, "x-claw.timeout_ms": 5},
        }
    ],
}
SNAPSHOT = {
    "version": 2,
    "mcp": {"path": "/mcp"},
    "tools": [TOOL],
    "x-claw-discovery": {"command": "npx", "args": []},
}
FILES = {
    "api/.claw-describe.json": json.dumps(DESCRIBED, indent=1),
    "api/skill.md": "---\nname: look\ndescription: How to look.\n---\n# Look\n",
    "api/Dockerfile": 'FROM a AS b\nLABEL x="y" \\\n  claw.describe=/.claw-describe.json\n',
    ".claw-discovered/wrapped.claw-describe.json": json.dumps(SNAPSHOT),
    "listed/.claw-tools.json": json.dumps(
        {"jsonrpc": "2.0", "id": 1, "result": {"tools": [TOOL], "nextCursor": None}}
    ),
    "listed/Dockerfile": "FROM a\nLABEL claw.mcp /mcp\n",
    "AGENTS.md": "# Contract\n",
    "claw-pod.yml": (
        "x-claw: {pod: desk, cllama-defaults: {proxy: passthrough}}\nservices:\n"
        "  one:\n    x-claw:\n      agent: AGENTS.md\n      feeds: [news]\n      memory: "
        "{service: api}\n      tools:\n"
        "        - {service: api, allow: [look]}\n"
        "        - {service: wrapped, allow: [look]}\n"
        "        - {service: listed, allow: [look]}\n"
        "  api: {build: api, expose: ['80'], environment: {TOKEN: $TOKEN}}\n"
        "  wrapped: {image: w, expose: ['80'], x-claw: {mcp-stdio: {command: npx}}}\n"
        "  listed: {build: listed, expose: ['80']}\n"
    ),
}
DAMAGED = sorted(FILES.keys() - {"AGENTS.md", "claw-pod.yml"})


@pytest.mark.requirement("compile:no-traceback")
@pytest.mark.parametrize("name", DAMAGED)
def test_one_damaged_byte_of_what_describes_a_service_gives_diagnostics(
    tmp_path: Path, name: str
) -> None:
    for file, text in FILES.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text, encoding="utf-8")
    sound = FILES[name].encode()
    assert not [
        diagnostic.code.name
        for diagnostic in check_pod(tmp_path / "claw-pod.yml", ENVIRON).diagnostics
        if diagnostic.is_error
    ]

    @settings(max_examples=scale_examples(250), deadline=None)
    @given(
        st.integers(0, len(sound) - 1),
        st.integers(0, 255),
        st.sampled_from(["change", "insert", "drop", "cut"]),
    )
    def judge(at: int, byte: int, how: str) -> None:
        put = b"" if how in {"drop", "cut"} else bytes([byte])
        rest = b"" if how == "cut" else sound[at if how == "insert" else at + 1 :]
        (tmp_path / name).write_bytes(sound[:at] + put + rest)
        result = check_pod(tmp_path / "claw-pod.yml", ENVIRON)
        assert (result.value is None) == any(
            diagnostic.is_error for diagnostic in result.diagnostics
        )
        assert all(
            diagnostic.code.name in CODES and diagnostic.span.line >= 1
            for diagnostic in result.diagnostics
        )
        report = as_text(result.diagnostics) + as_json(result.diagnostics)
        assert not any(value in report for value in ENVIRON.values())

    judge()
