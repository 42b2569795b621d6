"""The configuration of a runner's MCP client, for ``delivery: native``."""

from __future__ import annotations

import base64
import json
import tomllib
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from typer.testing import CliRunner

from claw_cli.app import app
from claw_compile.compiler import CompileResult, compile_pod
from claw_compile.output.agent_files import BASE_URL
from claw_compile.output.mcp_client import RUNNERS
from claw_contract.manifest import read_manifest
from tests.compile import manifests as kubernetes
from tests.compile.composed import DESCRIPTOR, MASTER, compiled

URL = f"{BASE_URL}/mcp/one"
SECONDS = 125
READ: dict[str, Callable[[str], Any]] = {"toml": tomllib.loads, "json": json.loads}


def pod(
    runner: str = "generic", delivery: str = "native", more: str = "", tool: str = "get"
) -> str:
    return f"""
x-claw: {{pod: desk}}
services:
  one:
    image: runner
    x-claw:
      agent: AGENTS.md
      type: {runner}
      cllama: passthrough
      delivery: {delivery}
      tools: [{{service: desk, allow: [{tool}]}}]
{more}
  desk:
    image: desk
    expose: ["4000"]
    x-claw: {{describe-file: desk.json}}
"""


def compile_in(directory: Path, text: str, descriptor: str = DESCRIPTOR) -> CompileResult:
    (directory / "AGENTS.md").write_text("# Contract\n", encoding="utf-8")
    (directory / "desk.json").write_text(descriptor, encoding="utf-8")
    (directory / "claw-pod.yml").write_text(text, encoding="utf-8")
    result = compile_pod(directory / "claw-pod.yml", {"CLAW_MASTER_SECRET": MASTER})
    assert result.value is not None, [str(each) for each in result.diagnostics]
    assert [
        each.code.name for each in result.diagnostics if each.code.name.startswith("native")
    ] == []
    return result.value


def context(result: CompileResult) -> Path:
    return result.directory / "context" / "one"


def configuration(result: CompileResult) -> tuple[str, Any]:
    (file,) = (context(result) / "mcp").iterdir()
    return file.name, READ[file.suffix.removeprefix(".")](file.read_text(encoding="utf-8"))


FORMS: dict[str, tuple[str, Any]] = {
    "claude-code": (
        ".mcp.json",
        {
            "mcpServers": {
                "claw": {
                    "type": "http",
                    "url": URL,
                    "headers": {"Authorization": "Bearer ${CLLAMA_TOKEN}"},
                }
            }
        },
    ),
    "codex": (
        "config.toml",
        {
            "mcp_servers": {
                "claw": {
                    "url": URL,
                    "bearer_token_env_var": "CLLAMA_TOKEN",
                    "tool_timeout_sec": SECONDS,
                }
            }
        },
    ),
    "openclaw": (
        "openclaw.json",
        {
            "mcp": {
                "servers": {
                    "claw": {
                        "url": URL,
                        "transport": "streamable-http",
                        "headers": {"Authorization": "Bearer ${CLLAMA_TOKEN}"},
                        "timeout": SECONDS,
                    }
                }
            }
        },
    ),
    "opencode": (
        "opencode.json",
        {
            "$schema": "https://opencode.ai/config.json",
            "mcp": {
                "claw": {
                    "type": "remote",
                    "url": URL,
                    "enabled": True,
                    "oauth": False,
                    "headers": {"Authorization": "Bearer {env:CLLAMA_TOKEN}"},
                }
            },
        },
    ),
    "nanobot": (
        "config.json",
        {
            "tools": {
                "mcpServers": {
                    "claw": {
                        "type": "streamableHttp",
                        "url": URL,
                        "headers": {"Authorization": "Bearer ${CLLAMA_TOKEN}"},
                        "toolTimeout": SECONDS,
                    }
                }
            }
        },
    ),
    "generic": (
        "mcp.json",
        {
            "mcpServers": {
                "claw": {
                    "type": "http",
                    "url": URL,
                    "headers": {"Authorization": "Bearer ${CLLAMA_TOKEN}"},
                }
            }
        },
    ),
}


@pytest.mark.requirement("broker:client-files")
@pytest.mark.parametrize("runner", FORMS)
def test_each_runner_gets_the_form_that_it_reads(tmp_path: Path, runner: str) -> None:
    assert configuration(compile_in(tmp_path, pod(runner))) == FORMS[runner]
    assert FORMS.keys() - {"generic"} == RUNNERS


@pytest.mark.requirement("broker:client-files")
def test_any_other_runner_gets_the_generic_form(tmp_path: Path) -> None:
    assert configuration(compile_in(tmp_path, pod("my-own"))) == FORMS["generic"]


@pytest.mark.requirement("broker:client-files")
def test_mediated_tools_and_no_tools_have_no_configuration(tmp_path: Path) -> None:
    result = compile_in(tmp_path, pod("codex", "mediated"))
    assert not (context(result) / "mcp").exists()
    assert (
        "delivery"
        not in json.loads((context(result) / "tools.json").read_text(encoding="utf-8"))["tools"][0]
    )
    without = pod("codex").replace("tools: [{service: desk, allow: [get]}]", "tools: []")
    assert not (context(compile_in(tmp_path, without)) / "mcp").exists()


@pytest.mark.requirement("broker:delivery")
def test_delivery_stands_on_each_tool_and_on_the_agents_page(tmp_path: Path) -> None:
    result = compile_in(tmp_path, pod())
    manifest, problems = read_manifest((context(result) / "tools.json").read_bytes())
    assert ([tool.delivery for tool in manifest.tools], problems) == (["native"], ())
    page = (context(result) / "CLAWDAPUS.md").read_text(encoding="utf-8")
    assert (
        "They are the tools of your MCP server `claw`; you may see them as `mcp__claw__…`." in page
    )
    assert "- `desk__get`: Get it." in page


@pytest.mark.requirement("broker:client-token")
@pytest.mark.parametrize("runner", FORMS)
def test_no_token_is_in_the_file_and_its_bytes_are_the_same_anywhere(
    tmp_path: Path, runner: str
) -> None:
    contents, token = [], ""
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        result = compile_in(tmp_path / name, pod(runner))
        env = (result.directory / "agents" / "one" / "env").read_text(encoding="utf-8")
        token = dict(line.split("=", 1) for line in env.splitlines())["CLLAMA_TOKEN"]
        (file,) = (context(result) / "mcp").iterdir()
        contents.append(file.read_bytes())
        assert file.stat().st_mode & 0o777 == 0o644
    assert contents[0] == contents[1]
    assert token.partition(":")[2].encode() not in contents[0]
    assert b"CLLAMA_TOKEN" in contents[0]


@pytest.mark.requirement("broker:client-claude")
@pytest.mark.parametrize(
    ("runner", "delivery", "is_set"),
    [
        ("claude-code", "native", True),
        ("claude-code", "mediated", False),
        ("codex", "native", False),
    ],
)
def test_claude_code_searches_no_tools(
    tmp_path: Path, runner: str, delivery: str, *, is_set: bool
) -> None:
    env = (
        compile_in(tmp_path, pod(runner, delivery)).directory / "agents" / "one" / "env"
    ).read_text(encoding="utf-8")
    assert ("ENABLE_TOOL_SEARCH=false" in env.splitlines()) is is_set


@pytest.mark.requirement("broker:client-names")
@pytest.mark.parametrize(("length", "server"), [(46, "claw"), (47, "c"), (48, "c")])
def test_the_servers_name_keeps_names_short(tmp_path: Path, length: int, server: str) -> None:
    tool = "t" * length
    result = compile_in(
        tmp_path, pod("codex", tool=tool), DESCRIPTOR.replace('"get",', f'"{tool}",')
    )
    ((name, _),) = configuration(result)[1]["mcp_servers"].items()
    assert name == server
    assert len(f"mcp__{name}__desk__{tool}") < 64
    assert f"`{server}`" in (context(result) / "CLAWDAPUS.md").read_text(encoding="utf-8")


@pytest.mark.requirement("broker:client-mounts")
def test_compose_mounts_it_where_the_agents_other_files_are(tmp_path: Path) -> None:
    config = compiled(tmp_path, pod("codex"))
    mounts = {mount["target"]: mount for mount in config["services"]["one"]["volumes"]}
    assert mounts["/claw/mcp/config.toml"]["read_only"] is True
    assert mounts["/claw/mcp/config.toml"]["source"].endswith(
        ".claw-runtime/context/one/mcp/config.toml"
    )


@pytest.mark.requirement("broker:client-mounts")
def test_kubernetes_mounts_it_where_the_agents_other_files_are(tmp_path: Path) -> None:
    objects = kubernetes.manifests(tmp_path, pod("claude-code"))
    volumes = kubernetes.spec_of(objects, "desk-one")["volumes"]
    (pages,) = (volume["configMap"] for volume in volumes if volume["name"] == "pages")
    (key,) = (item["key"] for item in pages["items"] if item["path"] == "mcp/.mcp.json")
    content = base64.b64decode(objects["ConfigMap", pages["name"]]["binaryData"][key])
    assert json.loads(content) == FORMS["claude-code"][1]


@pytest.mark.requirement("broker:client-mounts")
def test_plan_names_the_file_and_the_change_of_delivery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAW_MASTER_SECRET", MASTER)
    compile_in(tmp_path, pod("codex", "mediated"))
    (tmp_path / "claw-pod.yml").write_text(pod("codex"), encoding="utf-8")
    result = CliRunner().invoke(app, ["plan", str(tmp_path / "claw-pod.yml"), "--json"])
    planned = json.loads(result.stdout)
    assert {"path": str(PurePosixPath("context/one/mcp/config.toml")), "change": "new"} in planned[
        "files"
    ]
    assert [(tool["tool"], tool["parts"]) for tool in planned["tools"]] == [
        ("desk.get", ["delivery"])
    ]
