"""The developer's loop: skipped tests are listed, GitHub runs targets of the Makefile, and the page
of the stages is true.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path, PurePath
from typing import Any

import pytest
import yaml

from tests import conftest
from tests.not_tested import REMEDIES
from tests.once import make_once
from tests.stages import PAGE, STAGES, stage_of, with_examples

ROOT = Path(__file__).parent.parent
WORKFLOW = ROOT / ".github" / "workflows" / "ci.yml"
SKIPS = """
import pytest
from tests.not_tested import need, skip_for_kernel

def test_runs(): pass
def test_needs_a_program(): need("no-such-program")
def test_needs_another_program_too(): need("no-such-program")
def test_needs_the_kernel(): skip_for_kernel("network namespaces", "Operation not permitted")
@pytest.mark.xfail
def test_fails_as_expected(): assert False
"""


SET_UP = dict.fromkeys(
    (
        "redis-server",
        "nft",
        "ip",
        "chromium",
        "curl",
        "openssl",
        "git",
        "haproxy",
        "setpriv",
        "keytool",
        "id",
    ),
    "",
)


def run_skips(home: Path, **environment: str) -> str:
    """Run SKIPS; return the output."""
    module = home / "test_skips.py"
    module.write_text(SKIPS, encoding="utf-8")
    options = [
        "-p",
        "tests.not_tested",
        "-p",
        "no:cacheprovider",
        "-q",
        "--noconftest",
        f"--rootdir={home}",
        "-c",
        os.devnull,
    ]
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name != "CI" and not name.startswith("PYTEST_")
    }
    inherited["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # half of the start
    command = [sys.executable, "-m", "pytest", *options, str(module)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=inherited | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    return done.stdout


@pytest.mark.long
@pytest.mark.requirement("development:not-tested")
def test_a_run_ends_with_a_list_of_what_was_not_tested(tmp_path: Path) -> None:
    report = run_skips(tmp_path)
    assert re.search(
        (
            r"=+ not tested =+\n2 in .*: no-such-program is not installed: make setup\n1 in "
            r".*: the kernel "
        ),
        report,
    )
    assert "network namespaces (Operation not permitted): run as root" in report
    assert "1 passed, 3 skipped, 1 xfailed" in report


@pytest.mark.long
@pytest.mark.requirement("development:skips-fail-in-ci")
def test_with_ci_a_missing_program_is_a_failure_and_a_refusing_kernel_is_not(
    tmp_path: Path,
) -> None:
    report = run_skips(tmp_path, CI="true")
    assert (
        "not tested, and CI=true: test_skips.py::test_needs_a_program: no-such-program is "
        "not installed"
    ) in report
    assert "2 failed, 1 passed, 1 skipped, 1 xfailed" in report


@pytest.mark.requirement("development:set-up")
@pytest.mark.parametrize(
    ("programs", "reports"),
    [
        (SET_UP, ""),
        (
            {"id": "echo 1000", "apt-get": "exit 1"},
            "not installed: valkey-server,redis-server nftables ",
        ),
        ({"id": "echo 0"}, "As root: apt-get install valkey-server nftables "),
        (
            {"id": "echo 0", "timeout": "exit 100", "apt-get": "exit 1"},
            "could not be installed: nftables",
        ),
    ],
    ids=["all there", "no root", "no apt-get", "no network"],
)
def test_the_set_up_fails_on_no_machine(
    tmp_path: Path, programs: dict[str, str], reports: str
) -> None:
    for name, command in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{command}\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    script = ["/bin/bash", str(ROOT / "scripts" / "get-peers")]
    done = subprocess.run(
        script,
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert reports in done.stderr
    assert bool(done.stderr) == bool(reports)


@pytest.mark.requirement("development:set-up")
def test_every_program_with_a_remedy_is_one_that_the_set_up_installs() -> None:
    script = (ROOT / "scripts" / "get-peers").read_text(encoding="utf-8")
    packages = {command.removeprefix("apt-get install ") for command in REMEDIES.values()}
    assert packages <= set(re.split(r"[\s,]", script))


@pytest.mark.requirement("development:workflow")
def test_githubs_workflow_may_only_read_and_runs_targets_of_the_makefile() -> None:
    workflow: dict[Any, Any] = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))
    assert workflow["permissions"] == {"contents": "read"}
    targets = re.search(
        r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert targets is not None
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    made = {
        line.removeprefix("make ")
        for step in steps
        if (line := step.get("run", "")).startswith("make ")
    }
    assert {"lint", "test"} <= made <= set(targets[1].split())
    assert all(
        re.fullmatch(r"actions/[a-z-]+@v\d+", step["uses"]) for step in steps if "uses" in step
    )
    assert all("timeout-minutes" in job for job in workflow["jobs"].values())


@pytest.mark.requirement("development:workflow")
def test_githubs_workflow_tests_both_ends_of_mitmproxys_pin() -> None:
    matrix = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))["jobs"]["test"]["strategy"][
        "matrix"
    ]
    pin = re.search(
        r'"mitmproxy(>=([\d.]+),<\d+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    )
    assert pin is not None
    assert matrix == {"python": ["3.12", "3.13"], "mitmproxy": [f"=={pin[2]}", pin[1]]}


@pytest.mark.requirement("development:stages")
def test_the_folders_of_tests_and_those_of_the_stages_are_the_same() -> None:
    with_tests = {file.relative_to(PAGE.parent).parts[0] for file in PAGE.parent.rglob("test_*.py")}
    assert with_tests == {place for places in STAGES.values() for place in places}


@pytest.mark.requirement("development:stages")
def test_the_page_of_the_stages_names_each_with_its_folders_and_shows_a_real_test() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_examples(page), "run: make docs"
    for stage, places in STAGES.items():
        section = page.split(f"\n## {stage.capitalize()}\n", 1)[1].split("\n## ", 1)[0]
        assert [place for place in places if f"`{place}`" not in section] == []
        example = re.search(r"From `(.+)::test_\w+`:", section)
        assert example is not None
        assert stage_of(PurePath(example[1])) == stage


@pytest.mark.requirement("development:stages")
def test_modules_of_stages_that_a_run_leaves_out_are_not_even_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folders = [conftest.TESTS / place for places in STAGES.values() for place in places]
    monkeypatch.setattr(conftest, "STAGES_TO_RUN", [])
    assert [folder for folder in folders if conftest.pytest_ignore_collect(folder)] == []
    monkeypatch.setattr(conftest, "STAGES_TO_RUN", ["pure", "desk"])
    left = {folder.name for folder in folders if conftest.pytest_ignore_collect(folder) is None}
    assert left == {*STAGES["pure"], *STAGES["desk"]}
    assert conftest.pytest_ignore_collect(conftest.TESTS) is None
    assert conftest.pytest_ignore_collect(conftest.TESTS / "proxy" / "test_runner.py") is True


@pytest.mark.parametrize("worker", ["gw0", None])
def test_what_processes_of_a_run_share_is_made_once_and_again_where_it_failed(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, worker: str | None
) -> None:
    made: list[str] = []

    def make() -> str:
        made.append("tried")
        if len(made) == 1:
            raise RuntimeError("not yet")
        return "shared"

    if worker is None:
        monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    else:
        monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
    monkeypatch.setattr(
        tmp_path_factory, "_basetemp", tmp_path_factory.mktemp("run") / "of-a-process"
    )
    with pytest.raises(RuntimeError, match="not yet"):
        make_once(tmp_path_factory, "it", make)
    assert [make_once(tmp_path_factory, "it", make) for _ in range(3)] == ["shared"] * 3
    assert len(made) == (2 if worker else 4)
