"""``claw lock`` as a user runs it. A script takes Docker's place."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.cli.running import SECRETS, claw

DOCKER = """#!{python}
import io, json, pathlib, sys, tarfile
here = pathlib.Path(__file__).parent
with (here / "asked").open("a") as asked:
    asked.write(" ".join(sys.argv[1:]) + chr(10))
match sys.argv[1:]:
    case ["image", "inspect", "api:1"]:
        labels = json.loads((here / "labels.json").read_text())
        digests = {{"Id": "sha256:" + "1" * 64, "RepoDigests": ["api@sha256:" + "2" * 64]}}
        print(json.dumps([{{**digests, "Config": {{"Labels": labels}}}}]))
    case ["create", "api:1", _]:
        print("made")
    case ["cp", "-L", place, "-"] if (here / place.removeprefix("made:/")).is_file():
        with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as tar:
            tar.add(here / place.removeprefix("made:/"), arcname="file")
    case ["rm", "made"]:
        pass
    case _:
        sys.exit(1)
"""
POD = """x-claw: {pod: desk, cllama-defaults: {proxy: passthrough}}
services:
  one: {image: runner, x-claw: {agent: AGENTS.md, tools: [{service: api, allow: [look]}]}}
  api: {image: "api:1", expose: ["80"]}
  other: {image: "other:1"}
"""
DESCRIPTOR = {
    "version": 2,
    "tools": [
        {
            "name": "look",
            "description": "Look.",
            "inputSchema": {"type": "object"},
            "http": {"method": "GET", "path": "/look"},
        }
    ],
}


@pytest.mark.requirement("cli:lock")
def test_a_changed_tool_is_refused_until_its_service_is_accepted(desk: Path) -> None:
    first = claw(desk, "lock", **SECRETS)
    assert first.returncode == 0, first.stderr
    assert first.stdout == (
        "journal: 2 tools, from snapshot .claw-discovered/journal.claw-describe.json\n"
        "trading-api: 5 tools, from describe-file descriptors/trading-api.claw-describe.json\n"
        "added: journal, trading-api\n"
        "wrote claw.lock\n"
    )
    descriptor = desk / "descriptors" / "trading-api.claw-describe.json"
    descriptor.write_text(
        descriptor.read_text(encoding="utf-8").replace('"GET"', '"POST"', 1), encoding="utf-8"
    )
    for verb in ("compile", "check", "lock"):
        refused = claw(desk, verb, **SECRETS)
        assert refused.returncode == 1
        assert "error[lock-drift]: the tools of trading-api are not those that claw.lock has" in (
            refused.stdout + refused.stderr
        )
    assert not (desk / ".claw-runtime").exists()
    accepted = claw(desk, "lock", "--accept", "trading-api", **SECRETS)
    assert accepted.stdout.splitlines()[2:] == ["accepted: trading-api", "wrote claw.lock"]
    assert claw(desk, "check", **SECRETS).returncode == 0


def played(directory: Path, labels: dict[str, str], **files: str) -> dict[str, str]:
    """Write a pod; return a PATH on which ``docker`` is the script."""
    (directory / "AGENTS.md").write_text("# Contract\n", encoding="utf-8")
    (directory / "claw-pod.yml").write_text(POD, encoding="utf-8")
    bin_directory = directory / "bin"
    bin_directory.mkdir()
    script = bin_directory / "docker"
    script.write_text(DOCKER.format(python=sys.executable), encoding="utf-8")
    script.chmod(0o755)
    (bin_directory / "labels.json").write_text(json.dumps(labels), encoding="utf-8")
    for name, content in files.items():
        (bin_directory / name).write_text(content, encoding="utf-8")
    return {"PATH": f"{bin_directory}{os.pathsep}{os.environ['PATH']}"}


@pytest.mark.requirement("compile:lock-image")
def test_what_an_image_says_of_itself_is_locked_and_its_container_is_removed(
    tmp_path: Path,
) -> None:
    path = played(tmp_path, {"claw.describe": "/descriptor"}, descriptor=json.dumps(DESCRIPTOR))
    locked = claw(tmp_path, "lock", "--images", **path)
    assert locked.returncode == 0, locked.stderr
    assert locked.stdout.splitlines()[0] == "api: 1 tools, from image /descriptor"
    assert "other:1 is not on this machine" in locked.stderr
    asked = (tmp_path / "bin" / "asked").read_text(encoding="utf-8").splitlines()
    copied = ["create api:1 claw", "cp -L made:/descriptor -", "rm made"]
    assert asked == ["image inspect api:1", *copied, "image inspect other:1"]
    entry = json.loads((tmp_path / "claw.lock").read_text(encoding="utf-8"))["services"]["api"]
    assert (entry["image"], entry["image_digest"], entry["descriptor"]) == (
        "api:1",
        "sha256:" + "2" * 64,
        DESCRIPTOR,
    )
    assert claw(tmp_path, "check").returncode == 0


@pytest.mark.requirement("compile:lock-image")
def test_a_labelled_file_must_be_in_its_image_and_an_unlabelled_one_need_not(
    tmp_path: Path,
) -> None:
    path = played(tmp_path, {"claw.describe": "/nowhere"})
    refused = claw(tmp_path, "lock", "--images", **path)
    assert refused.returncode == 1
    assert "error[bad-describe-label]" in refused.stderr
    (tmp_path / "bin" / "labels.json").write_text("null", encoding="utf-8")
    silent = claw(tmp_path, "lock", "--images", **path)
    assert silent.returncode == 0, silent.stderr
    assert silent.stdout == "wrote claw.lock\n"


def test_without_docker_only_the_images_are_out_of_reach(tmp_path: Path) -> None:
    played(tmp_path, {})
    empty = tmp_path / "empty"
    empty.mkdir()
    refused = claw(tmp_path, "lock", "--images", PATH=str(empty))
    assert refused.returncode == 1
    assert refused.stderr == (
        "error: there is no 'docker' on this machine, which is needed to look into an "
        "image: install Docker Engine\n"
    )
    assert claw(tmp_path, "lock", PATH=str(empty)).returncode == 0
