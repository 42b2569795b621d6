"""The Dockerfile, read: there is no engine here, so its steps are carried out by the tests as far as that goes."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Step:
    """One instruction, with its words as they stand."""

    name: str
    rest: str

    @property
    def words(self) -> list[str]:
        """Of the form in JSON, or separated by spaces; without flags."""
        if self.rest.startswith("["):
            return [str(word) for word in json.loads(self.rest)]
        return [word for word in self.rest.split() if not word.startswith("--")]

    @property
    def flags(self) -> dict[str, str]:
        found = (word[2:].partition("=") for word in self.rest.split() if word.startswith("--"))
        return {name: value for name, _, value in found}


def stages() -> list[list[Step]]:
    """The steps of each stage."""
    text = "\n".join(line for line in (ROOT / "Dockerfile").read_text("utf-8").splitlines() if not line.startswith("#"))
    lines = re.sub(r"\\\n", " ", text).splitlines()
    found: list[list[Step]] = []
    for line in filter(None, map(str.strip, lines)):
        name, _, rest = line.partition(" ")
        if name == "FROM":
            found.append([])
        found[-1].append(Step(name, rest.strip()))
    return found


def last(name: str) -> Step:
    """The instruction of the image itself that counts."""
    return [step for step in stages()[-1] if step.name == name][-1]


def commanded(step: Step) -> list[str]:
    """The words behind CMD, of HEALTHCHECK too."""
    return [str(word) for word in json.loads(step.rest[step.rest.index("[") :])]


def copied_context(to: Path) -> Path:
    """What ``docker build .`` would be given: what .dockerignore leaves of this checkout."""
    first, *rest = [line for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line[:1] not in {"#", ""}]
    kept = [line[1:] for line in rest if line.startswith("!")]
    assert (first, [line for line in rest if not line.startswith("!")]) == ("*", ["**/__pycache__"])
    context = to / "context"
    context.mkdir()
    for entry in ROOT.iterdir():
        if not any(fnmatch(entry.name, pattern) for pattern in kept):
            continue
        if entry.is_dir():
            shutil.copytree(entry, context / entry.name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(entry, context)
    return context


def installed(context: Path, to: Path) -> Path:
    """What ``pip install .`` puts into site-packages of it: a wheel, built and unpacked."""
    build = "from setuptools.build_meta import build_wheel; import sys; build_wheel(sys.argv[1])"
    wheels, site = to / "wheels", to / "site"
    wheels.mkdir()
    subprocess.run([sys.executable, "-c", build, str(wheels)], cwd=context, check=True, capture_output=True, timeout=100)
    (wheel,) = wheels.iterdir()
    shutil.unpack_archive(wheel, site, "zip")
    return site
