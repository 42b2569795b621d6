"""Finding the compiled tree.

It is next to the pod file given with ``-f``, else at ``CLAW_CONTEXT_ROOT``, else in the current
directory.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from claw_cli.arguments import pod_file

CONTEXT_ROOT = "CLAW_CONTEXT_ROOT"


@dataclass(frozen=True)
class CompiledTree:
    """A directory that ``claw compile`` writes, or would write: it may be missing."""

    root: Path
    context: Path
    """The directory with one folder for each agent."""
    remedy: str
    """The remedy if the tree is missing, in one clause."""

    @property
    def is_compiled(self) -> bool:
        return self.context.is_dir()

    @property
    def missing(self) -> str:
        """The error of a verb that needs the tree, if it is missing."""
        return f"there is no compiled tree at {self.root}: {self.remedy}"

    def agents(self) -> list[str]:
        """Return the agents' ids, sorted. Raise ``OSError``."""
        return sorted(path.name for path in self.context.iterdir() if path.is_dir())

    def runner_env(self, agent: str) -> dict[str, str]:
        """Return the variables of the agent's runner, none if they were not compiled.

        Raise ``OSError``.
        """
        return read_env(self.root / "agents" / agent / "env")


def find_tree(pod: Path | None, environ: Mapping[str, str]) -> CompiledTree:
    """Return the tree of a pod.

    That of the pod file, if one is given; else that of ``CLAW_CONTEXT_ROOT``; else that of the pod
    in the current directory.
    """
    named_context = environ.get(CONTEXT_ROOT)
    if pod is None and named_context:
        context = Path(named_context)
        remedy = f"correct {CONTEXT_ROOT}, which names it, or unset it"
        return CompiledTree(context.parent, context, remedy)

    pod = pod_file(None, pod)
    root = pod.parent / ".claw-runtime"
    remedy = f"run `claw compile {pod}`, or name another pod with -f"
    return CompiledTree(root, root / "context", remedy)


def read_env(file: Path) -> dict[str, str]:
    """Return the ``NAME=value`` lines of a file as a dict, empty if the file is missing.

    Lines end with a line feed only, as for Compose: a value may contain other line breaks of
    Unicode. Raise ``OSError``.
    """
    try:
        data = file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return {}

    variables: dict[str, str] = {}
    for line in data.decode(errors="replace").split("\n"):
        name, equals_sign, value = line.partition("=")
        if equals_sign:
            variables[name] = value
    return variables
