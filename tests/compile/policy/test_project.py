"""The authority of an agent after its grants are expanded, read from the compiled files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from claw_compile.compiler import compile_pod
from tests.compile.granted import ALL, DESCRIPTOR, TOOLS, names, tools_json

DEFAULTS = ", tools-defaults: [{service: api, allow: [get_quote]}]"


@pytest.mark.requirement("compile:grants", "compile:defaults")
@pytest.mark.parametrize(
    ("claw", "pod", "expected"),
    [
        ("", "", []),
        ("", DEFAULTS, ["get_quote"]),
        (", tools: []", DEFAULTS, []),
        (", tools: null", DEFAULTS, []),
        (", tools: [{service: api, allow: [trade]}]", DEFAULTS, ["trade"]),
        (", tools: [{service: api, allow: [trade]}, ...]", DEFAULTS, ["get_quote", "trade"]),
        (", tools: [..., {service: api, allow: all}]", DEFAULTS, list(TOOLS)),
        (
            (
                ", tools: [{service: api, allow: [trade, get_quote]}, {service: api, allow: "
                "[trade, cancel]}]"
            ),
            "",
            ["get_quote", "trade", "cancel"],
        ),
        (
            ", tools: [{service: api, allow: all, deny: [trade]}]",
            "",
            ["get_quote", "get_orders", "cancel"],
        ),
        (", tools: [..., {service: api, allow: [trade], deny: [get_quote]}]", DEFAULTS, ["trade"]),
    ],
)
def test_grants_are_united_in_descriptor_order_and_denied_last(
    tmp_path: Path, claw: str, pod: str, expected: list[str]
) -> None:
    assert names(tools_json(tmp_path, claw, pod)) == expected


FIND = {"name": "find", "description": "Find a page", "inputSchema": {"type": "object"}}


def test_an_agent_without_tools_has_no_tools_json(tmp_path: Path) -> None:
    assert tools_json(tmp_path, ", tools: []") is None


def test_schema_and_annotations_are_kept_as_they_are_written(tmp_path: Path) -> None:
    manifest = tools_json(tmp_path, ALL)
    assert manifest is not None
    tool = manifest["tools"][0]
    assert tool["inputSchema"] == DESCRIPTOR["tools"][0]["inputSchema"]
    assert tool["annotations"] == {"x-claw.terminalOnSuccess": False, "title": "kept"}
    assert tool["execution"]["body_key"] == "order"


@pytest.mark.requirement("compile:policy")
def test_a_policy_is_replaced_whole(tmp_path: Path) -> None:
    pod = ", tool-policy-defaults: {max-rounds: 3, max-parallel: 2}"
    inherited = tools_json(tmp_path, ALL, pod)
    own = tools_json(
        tmp_path, ALL + ", tool-policy: {on-budget: error, max-tool-result-bytes: 10}", pod
    )
    assert inherited is not None
    assert own is not None
    limits = {"timeout_per_tool_ms": 30000, "total_timeout_ms": 120000}
    assert inherited["policy"] == {
        "max_rounds": 3,
        "max_parallel": 2,
        "max_tool_result_bytes": 16384,
        **limits,
    }
    assert own["policy"] == {
        "max_rounds": 8,
        "on_budget": "error",
        "max_tool_result_bytes": 10,
        **limits,
    }


@pytest.mark.requirement("live:policy")
def test_how_an_answer_streams_is_written_only_where_the_pod_file_says_it(tmp_path: Path) -> None:
    pod = ", tool-policy-defaults: {stream: live}"
    without = tools_json(tmp_path, ALL)
    inherited = tools_json(tmp_path, ALL, pod)
    own = tools_json(tmp_path, ALL + ", tool-policy: {preamble: hide}", pod)
    assert without is not None
    assert inherited is not None
    assert own is not None
    assert not {"stream", "preamble"} & without["policy"].keys()
    assert inherited["policy"] == {**without["policy"], "stream": "live"}
    assert own["policy"] == {**without["policy"], "preamble": "hide"}


@pytest.mark.requirement("compile:discovered-descriptor")
@pytest.mark.parametrize(("mcp", "path"), [("", "/mcp"), (", mcp: {path: /rpc}", "/rpc")])
def test_a_discovered_mcp_service_compiles_to_mcp_calls(
    tmp_path: Path, mcp: str, path: str
) -> None:
    (tmp_path / ".claw-discovered").mkdir()
    snapshot = {"version": 2, "mcp": {"path": "/mcp"}, "tools": [FIND]}
    file = tmp_path / ".claw-discovered" / "api.claw-describe.json"
    file.write_text(json.dumps(snapshot), encoding="utf-8")
    (tmp_path / "AGENTS.md").write_text("x", encoding="utf-8")
    (tmp_path / "claw-pod.yml").write_text(
        "x-claw: {pod: desk}\nservices:\n"
        "  one: {x-claw: {agent: AGENTS.md, cllama: passthrough, tools: [{service: api, allow: "
        "[find]}]}}\n"
        f"  api: {{expose: [8080], x-claw: {{mcp-stdio: {{command: npx}}{mcp}}}}}\n",
        encoding="utf-8",
    )
    environ = {"CLAW_MASTER_SECRET": "a-master-secret-for-tests"}
    assert compile_pod(tmp_path / "claw-pod.yml", environ, tmp_path / "out").diagnostics == ()
    written = json.loads(
        (tmp_path / "out" / "context" / "one" / "tools.json").read_text(encoding="utf-8")
    )
    assert written["tools"][0]["execution"] == {
        "transport": "mcp",
        "service": "api",
        "base_url": "http://api:8080",
        "path": path,
        "tool_name": "find",
        "auth": {"type": "none"},
    }
