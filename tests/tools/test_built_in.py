"""The compiler and the tools host agree: on the tools, and on the ``toolhost.yml`` that one writes
and the other reads.

``python -m tests.tools.test_built_in`` writes the compiler's registry of the built-in tools
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

from claw_compile.codes import BAD_LIMIT
from claw_compile.compiler import CompileResult, compile_pod
from claw_compile.diagnostics.diagnostic import Result
from claw_tools.settings import SettingsError, read_settings
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
    "{exec: {enabled: true, default_timeout_s: 1.5, max_timeout_s: 2.5}}",
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


def compiled(directory: Path, settings: str) -> Result[CompileResult]:
    """Compile a pod whose tools host has these settings."""
    (directory / "AGENTS.md").write_text("# Contract\n", encoding="utf-8")
    (directory / "claw-pod.yml").write_text(pod(settings, one="all"), encoding="utf-8")
    environ = {"CLAW_MASTER_SECRET": MASTER, "BUS": "redis://bus.example/", "KEY": "k"}
    return compile_pod(directory / "claw-pod.yml", environ)


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
    result = compiled(tmp_path, settings)
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


@pytest.mark.requirement("toolspod:fractions")
@pytest.mark.parametrize("seconds", ["1.5", ".5", "15e-1", "+2", "0x10", "3.0"])
@pytest.mark.parametrize("in_file", [True, False], ids=["file", "pod"])
def test_the_compiler_takes_the_seconds_that_the_host_takes(
    tmp_path: Path, seconds: str, in_file: bool
) -> None:
    tools = f"exec: {{enabled: true, default_timeout_s: {seconds}}}"
    own = f"""
toolhost: {{principals: {{one: {{workspace: {workspace(tmp_path)}, tools: []}}}}}}
tools: {{{tools}}}
"""
    (tmp_path / "toolhost.yml").write_text(own, encoding="utf-8")
    read = read_settings(tmp_path / "toolhost.yml", {}).tools.exec.default_timeout_s

    result = compiled(tmp_path, "{file: toolhost.yml}" if in_file else f"{{{tools}}}")
    assert result.value is not None, result.diagnostics
    file = tmp_path / ".claw-runtime" / "tools-hosts" / "files.yml"
    host = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert host["tools"]["exec"]["default_timeout_s"] == read > 0


@pytest.mark.requirement("toolspod:fractions")
@pytest.mark.parametrize("seconds", ["0", "-1.5", "300.5", ".inf", ".nan", "1_000", "true", "1.5s"])
def test_the_compiler_refuses_the_seconds_that_the_host_refuses(
    tmp_path: Path, seconds: str
) -> None:
    tools = f"exec: {{enabled: true, default_timeout_s: {seconds}}}"
    own = f"""
toolhost: {{principals: {{one: {{workspace: {workspace(tmp_path)}, tools: []}}}}}}
tools: {{{tools}}}
"""
    (tmp_path / "toolhost.yml").write_text(own, encoding="utf-8")
    with pytest.raises(SettingsError):
        read_settings(tmp_path / "toolhost.yml", {})
    for settings in ("{file: toolhost.yml}", f"{{{tools}}}"):
        result = compiled(tmp_path, settings)
        errors = [each.code for each in result.diagnostics if each.is_error]
        assert (result.value, errors) == (None, [BAD_LIMIT])


def main() -> None:
    """Write the registry; where the kernel contains no commands, these stay as they are."""
    document = json.loads(REGISTRY.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as directory:
        tools = {tool["name"]: tool for tool in document["tools"]} | everything(Path(directory))
    document["tools"] = [tools[name] for name in sorted(tools)]
    REGISTRY.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
