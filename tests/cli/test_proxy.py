"""``claw proxy``: the program that it becomes, its options, and the files that it finds."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pytest
from typer.testing import CliRunner, Result

from claw_cli.app import app

ROOT = Path(__file__).parents[2]
HEAD = [sys.executable, "-P", "-c"]


@dataclass
class StartedProgram:
    """The program that replaced the process of ``claw``."""

    command: Sequence[str] = ()
    environment: Mapping[str, str] | None = None

    @property
    def options(self) -> Sequence[str]:
        return self.command[6:]


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StartedProgram:
    program = StartedProgram()

    def execve(path: str, command: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
        assert path == sys.executable
        program.command, program.environment = command, environment
        raise SystemExit(0)

    monkeypatch.setattr(os, "execve", execve)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CLAW_CONTEXT_ROOT", raising=False)
    return program


def compiled_tree(directory: Path, **files: str) -> Path:
    tree = directory / ".claw-runtime"
    for name in ("context/analyst", "auth"):
        (tree / name).mkdir(parents=True)
    for name, content in files.items():
        (tree / "auth" / name).write_text(content, encoding="utf-8")
    return tree


def claw(*arguments: str, **environ: str) -> Result:
    return CliRunner().invoke(app, list(arguments), env=environ)


@pytest.mark.requirement("cli:proxy")
@pytest.mark.parametrize(
    ("arguments", "program", "options"),
    [
        ([], "mitmdump", []),
        (
            ["-w", "flows", "--set", "a=b", "~d x"],
            "mitmdump",
            ["-w", "flows", "--set", "a=b", "~d x"],
        ),
        (["--web", "--web-port", "9000"], "mitmweb", ["--web-port", "9000"]),
        (["-q", "--web"], "mitmweb", ["-q"]),
        (["-f", "claw-pod.yml", "-q", "--", "-f"], "mitmdump", ["-q", "--", "-f"]),
        (["--file=claw-pod.yml", "-p", "1"], "mitmdump", ["-p", "1"]),
    ],
)
def test_it_becomes_mitmproxy_with_the_addon_and_every_option_as_it_stands(
    started: StartedProgram, tmp_path: Path, arguments: list[str], program: str, options: list[str]
) -> None:
    compiled_tree(tmp_path)
    result = claw("proxy", *arguments)
    assert (result.exit_code, result.output) == (0, "")
    head, start, scripts, script = (started.command[:3], *started.command[3:6])
    assert (head, scripts, started.options) == (HEAD, "-s", options)
    assert f"run('{program}')" in start
    assert Path(script).read_bytes() == (ROOT / "addons" / "cllama.py").read_bytes()


@pytest.mark.requirement("workers:option")
@pytest.mark.parametrize("count", ["2", "64"])
def test_workers_have_a_supervisor_of_their_own(
    started: StartedProgram, tmp_path: Path, count: str
) -> None:
    compiled_tree(tmp_path)
    assert claw("proxy", "--workers", count, "-q").exit_code == 0
    assert f"supervise({count}, run_worker)" in started.command[3]
    assert started.options == ["-q"]


@pytest.mark.requirement("workers:option")
@pytest.mark.parametrize(
    "arguments", [["--workers", "1"], ["--workers=1"], ["--workers", "4", "--version"]]
)
def test_one_worker_is_mitmproxy_itself(
    started: StartedProgram, tmp_path: Path, arguments: list[str]
) -> None:
    compiled_tree(tmp_path)
    assert claw("proxy", *arguments).exit_code == 0
    assert "run('mitmdump')" in started.command[3]
    assert "supervise" not in started.command[3]


@pytest.mark.requirement("workers:option")
def test_auto_is_a_worker_for_each_usable_core(
    started: StartedProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled_tree(tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(3)))
    monkeypatch.setattr("claw_cli.proxy.CPU_LIMIT", limit := tmp_path / "cpu.max")
    counts = []
    for words in (None, "max 100000", "250000 100000", "50000 100000"):
        if words is not None:
            limit.write_text(f"{words}\n", encoding="ascii")
        assert claw("proxy", "--workers", "auto").exit_code == 0
        counts.append(started.command[3].partition("supervise(")[2].partition(",")[0] or "mitmdump")
    assert counts == ["3", "3", "2", "mitmdump"]


@pytest.mark.requirement("workers:option", "workers:refused")
@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--workers", "0"], "--workers takes a number from 1 to 64, or auto, not '0'"),
        (["--workers=-1"], "not '-1'"),
        (["--workers", "9" * 5000], "--workers takes a number from 1 to 64"),
        (["--workers", "65"], "not '65'"),
        (["--workers", "many"], "not 'many'"),
        (["--workers", "²"], "not '²'"),
        (["--workers", ""], "not ''"),
        (
            ["--workers", "2", "--web"],
            "--web shows the turns of one process, and there are 2 workers",
        ),
    ],
)
def test_what_is_no_number_of_workers_is_one_line(
    started: StartedProgram, tmp_path: Path, arguments: list[str], line: str
) -> None:
    compiled_tree(tmp_path)
    result = claw("proxy", *arguments)
    assert result.exit_code == 2
    assert line in result.output
    assert started.command == ()


@pytest.mark.requirement("cli:proxy")
def test_the_installed_addon_is_the_one_of_the_checkout_alone_in_its_folder() -> None:
    # mitmproxy puts the folder of a script first on sys.path.
    (script,) = (
        each for each in (ROOT / "claw_cli" / "addons").iterdir() if each.name != "__pycache__"
    )
    assert script.read_bytes() == (ROOT / "addons" / "cllama.py").read_bytes()


@pytest.mark.requirement("cli:proxy")
def test_the_program_is_the_one_beside_it(tmp_path: Path) -> None:
    (tmp_path / "mitmproxy.py").write_text(
        "raise SystemExit('a module of the current directory')", encoding="utf-8"
    )
    command = [
        sys.executable,
        "-P",
        "-c",
        "from claw_cli.app import main; main()",
        "proxy",
        "--version",
    ]
    shown = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100
    )
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.startswith("Mitmproxy: ")


@pytest.mark.requirement("cli:proxy-tree")
def test_the_tree_beside_the_pod_is_used_as_compose_uses_it(
    started: StartedProgram, tmp_path: Path
) -> None:
    tree = compiled_tree(tmp_path, env="CLLAMA_EGRESS=deny\nCLLAMA_TIME_LINE=on\n")
    (tmp_path / ".claw-ca" / "private").mkdir(parents=True)
    assert claw("proxy", CLLAMA_TIME_LINE="off").exit_code == 0
    first = dict(started.environment or {})
    assert (
        claw(
            "proxy", "-f", str(tmp_path / "claw-pod.yml"), CLAW_CONTEXT_ROOT="/elsewhere"
        ).exit_code
        == 0
    )
    for environment in (first, started.environment or {}):
        assert environment["CLAW_CONTEXT_ROOT"] == str(tree / "context")
        assert environment["CLAW_AUTH_DIR"] == str(tree / "auth")
        assert environment["CLLAMA_CA"] == str(tmp_path / ".claw-ca" / "private")
        assert environment["CLLAMA_EGRESS"] == "deny"
        assert not Path(environment["CLAW_KEY_STATES_DIR"]).is_relative_to(tree)
        assert "CLAW_SECRETS_DIR" not in environment
    assert first["CLLAMA_TIME_LINE"] == "off"


@pytest.mark.requirement("cli:proxy-tree")
def test_what_the_operator_names_is_left_as_it_is(started: StartedProgram, tmp_path: Path) -> None:
    compiled_tree(tmp_path)
    assert claw("proxy", CLAW_CONTEXT_ROOT="/elsewhere").exit_code == 0
    assert (started.environment or {})["CLAW_CONTEXT_ROOT"] == "/elsewhere"
    assert claw("proxy", "--set", "cllama_context=/elsewhere").exit_code == 0
    for name in ("CLAW_CONTEXT_ROOT", "CLAW_AUTH_DIR", "CLAW_KEY_STATES_DIR"):
        assert name not in (started.environment or {})


@pytest.mark.requirement("cli:proxy-tree")
@pytest.mark.parametrize("arguments", [[], ["--web"], ["-q"], ["-f", "pods/desk/claw-pod.yml"]])
def test_without_a_compiled_tree_it_is_one_line_with_place_and_remedy(
    started: StartedProgram, arguments: list[str]
) -> None:
    result = claw("proxy", *arguments)
    assert (result.exit_code, result.stdout, started.command) == (1, "", ())
    beside = "pods/desk/" if "-f" in arguments else ""
    assert result.stderr.startswith(
        f"error: there is no compiled tree at {beside}.claw-runtime: run `claw compile"
    )
    assert result.stderr.count("\n") == 1


@pytest.mark.requirement("cli:proxy-tree")
@pytest.mark.parametrize("option", ["-n", "-h", "--options"])
def test_what_serves_nobody_needs_no_tree(started: StartedProgram, option: str) -> None:
    assert claw("proxy", option).exit_code == 0
    assert list(started.options) == [option]


@pytest.mark.requirement("cli:proxy-tree")
def test_a_file_in_the_way_is_one_line(started: StartedProgram, tmp_path: Path) -> None:
    (tmp_path / ".claw-runtime").mkdir()
    (tmp_path / ".claw-runtime" / "context").write_text("no directory", encoding="utf-8")
    result: Any = claw("proxy")
    assert (result.exit_code, result.stdout, result.stderr.count("\n"), started.command) == (
        1,
        "",
        1,
        (),
    )
