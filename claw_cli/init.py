"""``claw init NAME``: make a new pod that compiles. ``claw schema``: print the schema of pod files.

Both are in docs/spec/compile.md, "Verbs".
"""

import sys
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from claw_cli.screen import fail
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
"""The files of a new pod, each with its template in ``new_pod/``."""

_FILES_WITH_TOOLS = {
    "claw-pod.yml": "tools/claw-pod.yml.in",
    "toolhost.yml": "tools/toolhost.yml.in",
    "AGENTS.md": "tools/AGENTS.md.in",
    "README.md": "tools/README.md.in",
    "workspaces/assistant/notes.md": "tools/notes.md.in",
    "runner.py": "runner.py.in",
    ".gitignore": "tools/gitignore.in",
}
"""The same for a pod with a tools host."""

Name = Annotated[str, typer.Argument(metavar="NAME", help="The pod's name, and its directory.")]
WithTools = Annotated[
    bool,
    typer.Option(
        "--with-tools", help="Give its agent files, commands, memory and the web, by a tools host."
    ),
]


def init(name: Name, *, with_tools: WithTools = False) -> None:
    """Make a new pod that compiles, in a directory of its name.

    Exit 0; 1 when the directory exists or can't be made, 2 for wrong usage.
    """
    if POD_NAME.fullmatch(name) is None:
        fail(f"{name!a} can't name a pod: [a-z0-9][a-z0-9_-]*", 2)

    directory = Path(name)
    try:
        directory.mkdir()
    except FileExistsError:
        fail(f"{name} exists; nothing was written", 1)
    except OSError as error:
        fail(f"{name} can't be made: {error.strerror}", 1)

    templates = resources.files("claw_cli").joinpath("new_pod")
    files = _FILES_WITH_TOOLS if with_tools else _FILES
    texts = {".claw-schema.json": as_text(editor_schema())}
    for file, template in files.items():
        texts[file] = templates.joinpath(template).read_text(encoding="utf-8")

    for file, text in texts.items():
        path = directory / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("@NAME@", name), encoding="utf-8")

    sys.stdout.write(f"made {name}: cd {name} && claw compile; README.md has the next steps\n")


def schema() -> None:
    """Print the JSON Schema of pod files, for editors.

    Exit 0; 2 for wrong usage.
    """
    sys.stdout.write(as_text(editor_schema()))
