"""Rules for all verbs: their help, their exit codes, how they find the pod, and
where they write.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from claw_cli.app import app

DOCS = Path(__file__).parents[2] / "docs"
VERBS = sorted(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
CLAW = [sys.executable, "-c", "from claw_cli.app import main; main()"]
OF_A_POD = ["check", "compile", "down", "lock", "plan", "up"]
OF_A_PART = ["discover", "explain", "inspect", "rotate", "token"]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), env={"TERM": "dumb", "COLUMNS": "80"})


@pytest.mark.requirement("cli:help")
def test_every_verb_has_its_line_its_exit_codes_and_its_row_in_the_page() -> None:
    listed = run("--help").stdout
    page = (DOCS / "cli.md").read_text(encoding="utf-8")
    for verb in VERBS:
        (line,) = re.findall(rf"^  {verb} +(.*)$", listed, re.MULTILINE)
        assert line.endswith("."), line
        assert not line.endswith("..."), line
        own = run(verb, "--help")
        assert (own.exit_code, own.stderr) == (0, "")
        assert " ".join(own.stdout.split("\n\n")[1].split()) == line
        (codes,) = re.findall(r"^  (Exit .+?)\n\n", own.stdout, re.MULTILINE | re.DOTALL)
        assert re.search(r"\b2\b", codes), codes
        assert re.search(rf"^\| `claw {verb}\b", page, re.MULTILINE), verb


@pytest.mark.requirement("cli:help")
def test_the_version_is_printed() -> None:
    result = run("--version")
    assert (result.exit_code, result.stderr) == (0, "")
    assert re.fullmatch(r"claw [0-9]+(\.[0-9]+)+\n", result.stdout)


@pytest.mark.requirement("cli:help-is-light")
@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["token", "--help"], ["proxy", "--help"]]
)
def test_help_imports_no_verb_and_nothing_heavy(arguments: list[str]) -> None:
    program = (
        "import sys\nfrom claw_cli.app import main\ntry:\n    main()\nfinally:\n    "
        "sys.stderr.write('|'.join(sys.modules))"
    )
    result = subprocess.run(
        [CLAW[0], "-c", program, *arguments], capture_output=True, text=True, check=False
    )
    loaded = {name.partition(".")[0] for name in result.stderr.rpartition("\n")[2].split("|")}
    assert "claw_cli" in loaded
    ours = {
        "claw_audit",
        "claw_certs",
        "claw_compile",
        "claw_contract",
        "claw_mcp",
        "claw_state",
        "claw_tools",
    }
    assert (
        loaded & (ours | {"cryptography", "mitmproxy", "msgspec", "rich", "yaml", "jsonschema"})
        == set()
    )
    if arguments[0].startswith("-"):  # typer itself imports these two to read a verb's arguments
        assert loaded & {"pydantic", "asyncio"} == set()


@pytest.mark.requirement("cli:pod-argument")
def test_every_verb_about_a_pod_takes_its_file_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert {
        *OF_A_POD,
        *OF_A_PART,
        "audit",
        "certs",
        "doctor",
        "init",
        "mcp-stdio",
        "proxy",
        "schema",
        "state",
        "tools",
    } == set(VERBS)
    for verb in OF_A_POD:
        results = [run(verb), run(verb, "claw-pod.yml"), run(verb, "-f", "claw-pod.yml")]
        assert {(each.exit_code, each.output) for each in results} == {(1, results[0].output)}, verb
        assert "claw-pod.yml" in results[0].output or verb == "down"
        twice = run(verb, "one.yml", "-f", "two.yml")
        assert (twice.exit_code, twice.stdout) == (2, "")
        assert "the pod file is named twice" in twice.stderr
    for verb in OF_A_PART:
        results = [run(verb, "someone"), run(verb, "someone", "--file", "claw-pod.yml")]
        assert {(each.exit_code, each.output) for each in results} == {(1, results[0].output)}, verb
    assert list(tmp_path.iterdir()) == []


@pytest.mark.requirement("cli:streams")
def test_what_is_no_answer_goes_to_standard_error_without_colors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = [run(verb) for verb in OF_A_POD if verb != "check"]
    refused += [run(verb, "someone") for verb in OF_A_PART] + [
        run("init", "A"),
        run("state"),
        run("nonsense"),
    ]
    for result in refused:
        assert result.exit_code in {1, 2}
        assert (result.stdout, bool(result.stderr)) == ("", True)
        assert "\x1b" not in result.stderr


@pytest.mark.requirement("cli:streams")
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full, which refuses every byte")
def test_an_answer_that_cannot_be_written_is_one_line_and_an_error() -> None:
    for arguments in (["schema"], ["--version"]):
        with Path("/dev/full").open("w", encoding="utf-8") as full:
            refused = subprocess.run(
                [*CLAW, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False
            )
        assert (refused.returncode, refused.stderr) == (1, "error: No space left on device\n")
    with subprocess.Popen(
        [*CLAW, "schema"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as left:
        assert left.stdout is not None
        assert left.stderr is not None
        left.stdout.close()
        assert (left.stderr.read(), left.wait(timeout=60)) == ("", 1)
