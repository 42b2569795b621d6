"""``claw init``: a new pod compiles at once, and existing files are not touched."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from tests.cli.running import claw
from tests.compile.oracle import compose_config

MINIMAL = Path(__file__).parents[2] / "pods" / "minimal"


@pytest.mark.requirement("cli:init")
def test_a_new_pod_compiles_without_a_warning_and_compose_takes_it(tmp_path: Path) -> None:
    made = claw(tmp_path, "init", "desk-1")
    assert (made.returncode, made.stderr) == (0, "")
    pod = tmp_path / "desk-1"
    checked = claw(pod, "check", "--format", "json")
    assert (checked.returncode, json.loads(checked.stdout)) == (
        0,
        {"diagnostics": [], "errors": 0, "warnings": 0},
    )
    compiled = claw(pod, "compile")
    assert compiled.returncode == 0
    assert (
        compiled.stderr
        == "made .claw-master: the pod's master secret; keep it, and keep it private\n"
    )
    assert compiled.stdout.startswith("assistant: 1 tool\n  clock.get_time  read\n")
    config = compose_config(pod / "compose.generated.yml")
    assert (config["name"], sorted(config["services"])) == (
        "desk-1",
        ["assistant", "cllama", "clock"],
    )
    (modeline, *_) = (pod / "claw-pod.yml").read_text(encoding="utf-8").splitlines()
    schema = pod / modeline.partition("$schema=")[2]
    assert schema.read_text(encoding="utf-8") == claw(pod, "schema").stdout
    ignored = (pod / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert {".claw-runtime/", ".claw-master", ".env", ".claw-ca/", schema.name} <= set(ignored)


@pytest.mark.requirement("cli:init")
def test_what_it_runs_is_the_smallest_worked_pod(tmp_path: Path) -> None:
    assert claw(tmp_path, "init", "one").returncode == 0
    for file in (
        "runner.py",
        "AGENTS.md",
        "clock/clock.py",
        "clock/Dockerfile",
        "clock/.claw-describe.json",
    ):
        assert (tmp_path / "one" / file).read_bytes() == (MINIMAL / file).read_bytes(), file


@pytest.mark.requirement("cli:init-live")
@pytest.mark.parametrize("form", [(), ("--with-tools",)], ids=["plain", "with-tools"])
def test_the_agent_of_a_new_pod_streams_live(tmp_path: Path, form: tuple[str, ...]) -> None:
    assert claw(tmp_path, "init", "one", *form).returncode == 0
    assert claw(tmp_path / "one", "compile").returncode == 0
    written = (tmp_path / "one/.claw-runtime/context/assistant/tools.json").read_bytes()
    assert json.loads(written)["policy"]["stream"] == "live"


@pytest.mark.requirement("cli:init")
@pytest.mark.parametrize(
    ("name", "code", "says"),
    [
        ("there", 1, "error: there exists; nothing was written\n"),
        ("Desk", 2, "error: 'Desk' can't name a pod: [a-z0-9][a-z0-9_-]*\n"),
        ("../up", 2, "error: '../up' can't name a pod: [a-z0-9][a-z0-9_-]*\n"),
    ],
)
def test_nothing_is_overwritten_and_no_bad_name_is_taken(
    tmp_path: Path, name: str, code: int, says: str
) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "claw-pod.yml").write_text("mine", encoding="utf-8")
    refused = claw(tmp_path, "init", name)
    assert (refused.returncode, refused.stdout, refused.stderr) == (code, "", says)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["claw-pod.yml", "there"]


@pytest.mark.requirement("toolspod:init")
def test_a_new_pod_with_tools_compiles_without_a_warning_and_has_a_tools_host(
    tmp_path: Path,
) -> None:
    made = claw(tmp_path, "init", "desk-1", "--with-tools")
    assert (made.returncode, made.stderr) == (0, "")
    pod = tmp_path / "desk-1"
    checked = claw(pod, "check", "--format", "json")
    assert (checked.returncode, json.loads(checked.stdout)) == (
        0,
        {"diagnostics": [], "errors": 0, "warnings": 0},
    )
    assert claw(pod, "compile").stdout.startswith("assistant: 8 tools\n")
    tools = {
        tool["name"]
        for tool in json.loads((pod / ".claw-runtime/context/assistant/tools.json").read_bytes())[
            "tools"
        ]
    }
    wanted = (
        "read_file",
        "write_file",
        "edit_file",
        "list_directory",
        "exec_shell",
        "memory_read",
        "memory_write",
        "web_fetch",
    )
    assert tools == {f"tools.{name}" for name in wanted}
    config = compose_config(pod / "compose.generated.yml")
    assert (config["name"], sorted(config["services"])) == (
        "desk-1",
        ["assistant", "cllama", "tools"],
    )
    ignored = (pod / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert {
        ".claw-runtime/",
        ".claw-master",
        ".env",
        ".claw-ca/",
        ".claw-schema.json",
        "workspaces/",
    } <= set(ignored)


@pytest.mark.requirement("toolspod:init")
def test_what_its_readme_sets_makes_the_proxy_and_the_host_meet_on_this_machine(
    tmp_path: Path,
) -> None:
    assert claw(tmp_path, "init", "one", "--with-tools").returncode == 0
    pod = tmp_path / "one"
    (url,) = set(re.findall(r"TOOLS_URL=(\S+)", (pod / "README.md").read_text(encoding="utf-8")))
    assert claw(pod, "compile", TOOLS_URL=url).returncode == 0
    host = yaml.safe_load((pod / "toolhost.yml").read_text(encoding="utf-8"))["toolhost"]
    assert url == f"http://{host['listen']['host']}:{host['listen']['port']}"
    (principal,) = host["principals"].values()
    tools = json.loads((pod / ".claw-runtime/context/assistant/tools.json").read_bytes())["tools"]
    assert {tool["execution"]["base_url"] for tool in tools} == {url}
    (secret,) = {tool["execution"]["auth"]["token"]["secret"] for tool in tools}
    assert principal["token"]["file"] == f".claw-runtime/secrets/{secret}"
    assert (pod / principal["token"]["file"]).is_file()
    assert (pod / principal["workspace"]).is_dir()


@pytest.mark.requirement("cli:init")
def test_without_docker_its_agent_asks_the_clock_of_this_machine(tmp_path: Path) -> None:
    assert claw(tmp_path, "init", "one").returncode == 0
    pod = tmp_path / "one"
    readme = (pod / "README.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"`(x-claw: \{base-url: [^`]+)` below `clock:`", readme)
    text = (pod / "claw-pod.yml").read_text(encoding="utf-8")
    (pod / "claw-pod.yml").write_text(
        text.replace("  clock:\n", f"  clock:\n    {line}\n"), encoding="utf-8"
    )
    assert claw(pod, "compile").returncode == 0
    (tool,) = json.loads(
        (pod / ".claw-runtime/context/assistant/tools.json").read_text(encoding="utf-8")
    )["tools"]
    assert tool["execution"]["base_url"] == "http://localhost:8000"
