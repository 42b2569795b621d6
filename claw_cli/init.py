"""``claw init NAME``: a new pod that compiles (spec/compile.md "Verbs")."""

from __future__ import annotations

import sys
from importlib import resources
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from claw_compile.grammar.pod_file import POD_NAME
from claw_compile.schema.editor import as_text, editor_schema

_FILES = {
    "claw-pod.yml": "claw-pod.yml.in",
    "AGENTS.md": "AGENTS.md.in",
    "runner.py": "runner.py.in",
    "clock/.claw-describe.json": "claw-describe.json.in",
    "clock/Dockerfile": "Dockerfile.in",
    "clock/clock.py": "clock.py.in",
    "README.md": "README.md.in",
    ".gitignore": "gitignore.in",
}
"""File → what it is made from, in ``new_pod/``."""
_SCHEMA = ".claw-schema.json"


def init(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The pod's name, and its directory.")],
) -> None:
    """Make a new pod that compiles, in a directory of its name.

    Exit 0; 1 when that is there or can't be made, 2 for wrong usage.
    """
    if POD_NAME.fullmatch(name) is None:
        _fail(f"{name!a} can't name a pod: [a-z0-9][a-z0-9_-]*", 2)
    directory = Path(name)
    try:
        directory.mkdir()
    except FileExistsError:
        _fail(f"{name} is there already; nothing was written", 1)
    except OSError as error:
        _fail(f"{name} can't be made: {error.strerror}", 1)
    for file, content in _contents(name).items():
        path = directory / file
        path.parent.mkdir(exist_ok=True)
        path.write_text(content, encoding="utf-8")
    sys.stdout.write(f"made {name}: cd {name}, and read README.md; or at once: claw check\n")


def _contents(name: str) -> dict[str, str]:
    source = resources.files("claw_cli").joinpath("new_pod")
    texts = {file: source.joinpath(made).read_text(encoding="utf-8") for file, made in _FILES.items()}
    return {file: text.replace("@NAME@", name) for file, text in texts.items()} | {_SCHEMA: as_text(editor_schema())}


def _fail(why: str, code: int) -> NoReturn:
    sys.stderr.write(f"error: {why}\n")
    raise typer.Exit(code)
