"""Planted secrets: no verb shows one in any format, nor writes it to a file that
does not need it.
"""

from __future__ import annotations

import shutil
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from claw_cli.app import app
from claw_cli.check import Format
from claw_compile.compiler import check_pod
from claw_compile.diagnostics.report import as_github, as_json, as_sarif, as_text
from claw_compile.identity import agent_token
from claw_contract.secret import Secret
from tests.compile import case as cases
from tests.compile.planted import ENVIRON, HOLDERS, POD, planted_pod
from tests.search_size import each_nth

TOKENS = {
    name: agent_token(Secret(ENVIRON["CLAW_MASTER_SECRET"]), name).reveal()
    for name in ("one", "two")
}
CHECKS = [("check", f"--format={each.value}") for each in Format]
VERBS = [
    *(
        *CHECKS,
        ("plan",),
        ("plan", "--json"),
        ("compile",),
        ("plan",),
        ("plan", "--json"),
        ("compile",),
    ),
    *(("compile", "-o", "elsewhere"), ("compile", "--target", "kubernetes", "-o", "kubernetes")),
    *(
        ("explain", "one"),
        ("explain", "one", "api.look"),
        ("explain", "two", "--json"),
        ("explain", "nobody"),
    ),
    *(
        ("inspect", "one"),
        ("inspect", "api"),
        ("inspect", "kept", "--json"),
        ("inspect", "two", "--json"),
    ),
    *(
        ("lock",),
        ("lock", "--accept", "api"),
        ("rotate", "two"),
        ("plan",),
        ("compile",),
        ("schema",),
        ("down",),
    ),
]
"""The commands that are run one after another in the pod's directory."""
OF_A_BROKEN_POD = [
    *CHECKS,
    ("compile",),
    ("plan", "--json"),
    ("explain", "one"),
    ("inspect", "one"),
    ("lock",),
]


def reported(
    directory: Path,
    environ: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    verbs: list[tuple[str, ...]] = VERBS,
) -> str:
    """Run the commands; return all their output."""
    monkeypatch.chdir(directory)
    # Keep a Docker that may be installed out of it.
    environ = environ | {"PATH": str(directory / "nowhere")}
    runner = CliRunner()
    return "".join(runner.invoke(app, list(verb), env=environ).output for verb in verbs)


def spelled(values: list[str], text: str | bytes) -> list[str]:
    whole = text if isinstance(text, bytes) else text.encode()
    return [value for value in values if value.encode() in whole]


@pytest.mark.requirement("compile:planted-secrets")
def test_every_planted_secret_is_in_the_files_that_must_hold_it_and_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = planted_pod(tmp_path / "pod")
    sources = {path.relative_to(pod.parent) for path in pod.parent.rglob("*")}
    assert [
        diagnostic.message
        for diagnostic in check_pod(pod, ENVIRON).diagnostics
        if diagnostic.is_error
    ] == []
    said = reported(pod.parent, ENVIRON, monkeypatch)
    # The last compile came after a rotation: agent two has another token.
    rotated = agent_token(Secret(ENVIRON["CLAW_MASTER_SECRET"]), "two", 1).reveal()
    values = [*HOLDERS, *TOKENS.values(), rotated]
    assert spelled(values, said) == []
    holders: dict[str, set[str]] = {value: set() for value in values}
    for path in pod.parent.rglob("*"):
        here = path.relative_to(pod.parent)
        if here in sources or not path.is_file() or path.is_symlink() or "kubernetes" in here.parts:
            continue
        held = spelled(values, path.read_bytes())
        assert not held or stat.S_IMODE(path.stat().st_mode) == 0o600, here
        if here.parts[:2] == (".claw-runtime", ".tree"):
            for value in held:
                holders[value].add("/".join(here.parts[2:]))
        else:
            assert not held or here.parts[0] == "elsewhere", here
    expected = {value: set(files) for value, files in HOLDERS.items()}
    for name, token in (("one", TOKENS["one"]), ("two", rotated)):
        expected[token] = {f"agents/{name}/env", f"context/{name}/metadata.json"}
    assert holders == expected | {TOKENS["two"]: set()}


@pytest.mark.requirement("compile:planted-secrets")
def test_what_is_deployed_to_kubernetes_is_for_its_owner_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = planted_pod(tmp_path / "pod")
    monkeypatch.chdir(pod.parent)
    CliRunner().invoke(app, ["compile", "--target", "kubernetes", "-o", "out"], env=ENVIRON)
    files = [
        path for path in (pod.parent / "out").rglob("*") if path.is_file() and not path.is_symlink()
    ]
    holders = [path for path in files if spelled([*HOLDERS, *TOKENS.values()], path.read_bytes())]
    assert {stat.S_IMODE(path.stat().st_mode) for path in holders} == {0o600}


@pytest.mark.requirement("compile:planted-secrets", "compile:secrets-never-printed")
@pytest.mark.parametrize("how", ["]", " }", "\tx", ": [", "gone"])
def test_a_mistake_on_any_line_shows_no_secret_of_it(tmp_path: Path, how: str) -> None:
    pod = planted_pod(tmp_path / "pod")
    for number, line in enumerate(POD.splitlines()):
        lines = POD.splitlines()
        lines[number] = "" if how == "gone" else line + how
        pod.write_text("\n".join(lines), encoding="utf-8")
        diagnostics = check_pod(pod, ENVIRON).diagnostics
        for report in (as_text, as_json, as_sarif, as_github):
            assert spelled([*HOLDERS, *TOKENS.values()], report(diagnostics)) == [], line


@pytest.mark.requirement("compile:planted-secrets")
@pytest.mark.parametrize(
    ("place", "case"),
    [*enumerate(cases.case_files())],
    ids=[f"{case.parent.name}/{case.stem}" for case in cases.case_files()],
)
def test_no_verb_tells_the_value_of_a_variable_of_a_broken_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: int, case: Path
) -> None:
    first = place % 3
    verbs = list(each_nth(3, OF_A_BROKEN_POD[first:] + OF_A_BROKEN_POD[:first]))
    directory = tmp_path / "pod"
    if case.name == "claw-pod.yml":
        shutil.copytree(case.parent, directory)
    else:
        shutil.copytree(
            case.parent, directory, ignore=lambda _, names: [n for n in names if n.endswith(".yml")]
        )
        shutil.copy(case, directory / "claw-pod.yml")
    environ = cases.ENVIRON | {"CLAW_MASTER_SECRET": ENVIRON["CLAW_MASTER_SECRET"]}
    assert spelled(list(environ.values()), reported(directory, environ, monkeypatch, verbs)) == []
