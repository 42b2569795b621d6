"""The compiler and the tools host agree: on the tools, and on the ``toolhost.yml`` that one writes
and the other reads.

``python -m tests.tools.test_compiled_host`` writes the compiler's registry of the built-in tools
anew.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from claw_compile.compiler import compile_pod
from tests.compile.composed import MASTER
from tests.compile.tools_host_pod import pod
from tests.fork_server import run_claw

pytest.importorskip("claw_cli.tools", reason="the tools host is not merged yet")
REGISTRY = Path(__file__).parents[2] / "claw_contract" / "tool_host_descriptor.json"
CHANNELS = "{channels}"
"""The name of a channel in the registry, in whose place the compiler puts the configured ones."""
COMMANDS = {"exec_shell", "spawn"}
EVERYTHING: dict[str, Any] = {
    "exec": {"enabled": True},
    "web_search": {"endpoint": "https://search.example/"},
    "message": {"channels": {CHANNELS: {"webhook": "https://hooks.example/"}}},
}
SETTINGS = (
    "{}",
    "{exec: {enabled: true, default_timeout_s: 5, max_timeout_s: 60}, spawn: {max_concurrent: 2}}",
    "{exec: {enabled: true, network: true, allow: [git, ls], deny: [curl], max_timeout_s: 10}}",
    (
        "{message: {channels: {ops: {webhook: 'https://hooks.example/'}, bus: {redis: {env: "
        "BUS}, stream: s}}}}"
    ),
    (
        "{web_search: {endpoint: 'https://search.example/', backend: brave, api_key: {env: "
        "KEY}}, url_policy: {ports: [8443]}}"
    ),
    (
        "{limits: {read_bytes: 1MiB, calls_per_minute: 3, concurrent: 2}, protected: [.git/], "
        "audit_arguments: full}"
    ),
)


def described(directory: Path, config: str) -> dict[str, dict[str, Any]]:
    """Return what ``claw tools describe --offline`` prints, by tool."""
    environ = {"PATH": os.environ["PATH"], "BUS": "redis://bus.example/", "KEY": "k"}
    done = run_claw(["tools", "describe", "--offline", "--config", config], directory, environ)
    assert done.returncode == 0, done.stderr
    return {tool["name"]: tool for tool in json.loads(done.stdout)["tools"]}


def workspace(directory: Path) -> Path:
    """Make a workspace that has exec tools: root's own has none."""
    made = directory / "workspace"
    made.mkdir()
    if os.geteuid() == 0:
        os.chown(made, 65_534, 65_534)
    return made


def everything(directory: Path) -> dict[str, dict[str, Any]]:
    workspace(directory)
    principal = {"workspace": "workspace", "tools": ["*"]}
    config = {"toolhost": {"principals": {"one": principal}}, "tools": EVERYTHING}
    (directory / "toolhost.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
    return described(directory, "toolhost.yml")


@pytest.mark.requirement("toolspod:one-registry")
def test_the_compilers_registry_is_what_the_host_describes(tmp_path: Path) -> None:
    registry = {
        tool["name"]: tool for tool in json.loads(REGISTRY.read_text(encoding="utf-8"))["tools"]
    }
    found = everything(tmp_path)
    # A kernel without Landlock has no commands; that they are there is a test of theirs.
    assert {
        name: tool for name, tool in registry.items() if name in found or name not in COMMANDS
    } == found


@pytest.mark.requirement("tools:typed")
def test_every_part_of_a_built_in_schema_has_a_type(tmp_path: Path) -> None:
    registry = {
        tool["name"]: tool for tool in json.loads(REGISTRY.read_text(encoding="utf-8"))["tools"]
    }
    schemas = {
        name: tool["inputSchema"] for name, tool in {**registry, **everything(tmp_path)}.items()
    }
    assert {name: [*untyped(schema, "")] for name, schema in schemas.items()} == {
        name: [] for name in schemas
    }


def untyped(schema: dict[str, Any], place: str) -> Iterator[str]:
    """Yield the place of each schema that has no type."""
    if not isinstance(schema.get("type"), str):
        yield place
    for name, each in schema.get("properties", {}).items():
        yield from untyped(each, f"{place}/{name}")
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            yield from untyped(schema[name], f"{place}/{name}")


@pytest.mark.requirement("toolspod:host-reads-it", "toolspod:one-registry")
@pytest.mark.parametrize("settings", SETTINGS)
def test_the_host_reads_what_is_compiled_and_describes_the_tools_as_they_are_granted(
    tmp_path: Path, settings: str
) -> None:
    (tmp_path / "AGENTS.md").write_text("# Contract\n", encoding="utf-8")
    (tmp_path / "claw-pod.yml").write_text(pod(settings, one="all"), encoding="utf-8")
    result = compile_pod(
        tmp_path / "claw-pod.yml",
        {"CLAW_MASTER_SECRET": MASTER, "BUS": "redis://bus.example/", "KEY": "k"},
    )
    assert result.value is not None, result.diagnostics
    runtime = tmp_path / ".claw-runtime"
    host = yaml.safe_load((runtime / "tools-hosts" / "files.yml").read_text(encoding="utf-8"))
    # What is another path outside of the container
    host["toolhost"]["principals"]["one"]["workspace"] = str(workspace(tmp_path))
    host["toolhost"]["principals"]["one"]["token"] = {
        "file": str(runtime / "secrets" / "toolhost.files.one")
    }
    (tmp_path / "toolhost.yml").write_text(yaml.safe_dump(host), encoding="utf-8")
    granted = json.loads((runtime / "context" / "one" / "tools.json").read_text(encoding="utf-8"))[
        "tools"
    ]
    mine = {
        tool["execution"]["tool_name"]: (tool["description"], tool["inputSchema"])
        for tool in granted
    }
    found = {
        name: (tool["description"], tool["inputSchema"])
        for name, tool in described(tmp_path, "toolhost.yml").items()
    }
    assert {
        name: tool for name, tool in mine.items() if name in found or name not in COMMANDS
    } == found


def main() -> None:
    """Write the registry; where the kernel contains no commands, these stay as they are."""
    document = json.loads(REGISTRY.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as directory:
        tools = {tool["name"]: tool for tool in document["tools"]} | everything(Path(directory))
    document["tools"] = [tools[name] for name in sorted(tools)]
    REGISTRY.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
