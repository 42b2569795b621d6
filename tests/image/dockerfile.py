"""The parsed Dockerfile: there is no engine here, so the tests carry out its steps
themselves as far as possible.
"""

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
        """Return the words without flags, from the JSON form or separated by spaces."""
        if self.rest.startswith("["):
            return [str(word) for word in json.loads(self.rest)]
        return [word for word in self.rest.split() if not word.startswith("--")]

    @property
    def flags(self) -> dict[str, str]:
        found = (word[2:].partition("=") for word in self.rest.split() if word.startswith("--"))
        return {name: value for name, _, value in found}


def stages() -> list[list[Step]]:
    """Return the steps of each stage."""
    text = "\n".join(
        line
        for line in (ROOT / "Dockerfile").read_text("utf-8").splitlines()
        if not line.startswith("#")
    )
    lines = re.sub(r"\\\n", " ", text).splitlines()
    found: list[list[Step]] = []
    for line in filter(None, map(str.strip, lines)):
        name, _, rest = line.partition(" ")
        if name == "FROM":
            found.append([])
        found[-1].append(Step(name, rest.strip()))
    return found


def last(name: str) -> Step:
    """Return the effective instruction of that name in the image's own stage."""
    return [step for step in stages()[-1] if step.name == name][-1]


def commanded(step: Step) -> list[str]:
    """Return the words after CMD, also after that of HEALTHCHECK."""
    return [str(word) for word in json.loads(step.rest[step.rest.index("[") :])]


def copied_context(to: Path) -> Path:
    """Copy the context that ``docker build .`` would send: the files of this
    checkout that .dockerignore leaves.
    """
    first, *rest = [
        line
        for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines()
        if line[:1] not in {"#", ""}
    ]
    kept = [line[1:] for line in rest if line.startswith("!")]
    assert (first, [line for line in rest if not line.startswith("!")]) == ("*", ["**/__pycache__"])
    context = to / "context"
    context.mkdir()
    for entry in ROOT.iterdir():
        if not any(fnmatch(entry.name, pattern) for pattern in kept):
            continue
        if entry.is_dir():
            shutil.copytree(
                entry, context / entry.name, ignore=shutil.ignore_patterns("__pycache__")
            )
        else:
            shutil.copy(entry, context)
    return context


def installed(context: Path, to: Path) -> Path:
    """Build and unpack the context's wheel, as ``pip install .`` does; return the directory."""
    build = "from setuptools.build_meta import build_wheel; import sys; build_wheel(sys.argv[1])"
    wheels, site = to / "wheels", to / "site"
    wheels.mkdir()
    subprocess.run(
        [sys.executable, "-c", build, str(wheels)],
        cwd=context,
        check=True,
        capture_output=True,
        timeout=100,
    )
    (wheel,) = wheels.iterdir()
    shutil.unpack_archive(wheel, site, "zip")
    return site
