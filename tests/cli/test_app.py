"""All verbs: their help, their version, and what their help imports."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.cli.running import SECRETS, claw
from tests.cli.verbs import CLAW, DOCS, VERBS, run


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


@pytest.mark.requirement("cli:exit-codes")
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["check", "missing.yml"], 1),
        (["compile", "."], 1),
        (["check", "--bad"], 2),
        (["nonsense"], 2),
    ],
)
def test_errors_exit_1_and_wrong_usage_exits_2(desk: Path, arguments: list[str], code: int) -> None:
    result = claw(desk, *arguments, **SECRETS)
    assert result.returncode == code
    assert "Traceback" not in result.stderr
