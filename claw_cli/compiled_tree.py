"""The compiled tree that verbs read: the one beside the pod file that is named, else
CLAW_CONTEXT_ROOT, else the one here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from claw_cli.arguments import pod_file

CONTEXT_ROOT = "CLAW_CONTEXT_ROOT"


@dataclass(frozen=True)
class CompiledTree:
    """``root`` is the directory that ``claw compile`` writes; ``remedy`` is what to
    do where it is not there, one clause.
    """

    root: Path
    context: Path
    remedy: str

    @property
    def is_compiled(self) -> bool:
        return self.context.is_dir()

    @property
    def missing(self) -> str:
        return f"there is no compiled tree at {self.root}: {self.remedy}"

    def agents(self) -> list[str]:
        """Return the agents' ids, sorted. Raises ``OSError``."""
        return sorted(path.name for path in self.context.iterdir() if path.is_dir())

    def runner_env(self, agent: str) -> dict[str, str]:
        """Return the variables that the agent's runner gets; none where the file is not there.

        Raises ``OSError``.
        """
        return read_env(self.root / "agents" / agent / "env")


def find_tree(pod: Path | None, environ: Mapping[str, str]) -> CompiledTree:
    """Return the tree of ``pod`` where that is named, else the one of
    CLAW_CONTEXT_ROOT, else that of the pod here.
    """
    if pod is None and (named := environ.get(CONTEXT_ROOT)):
        context = Path(named)
        return CompiledTree(
            context.parent, context, f"correct {CONTEXT_ROOT}, which names it, or unset it"
        )
    pod = pod_file(None, pod)
    root = pod.parent / ".claw-runtime"
    return CompiledTree(
        root, root / "context", f"run `claw compile {pod}`, or name another pod with -f"
    )


def read_env(file: Path) -> dict[str, str]:
    """Return ``NAME=value`` lines as a dict, empty where the file is missing. Raises ``OSError``.

    Only a line feed ends a line, as for Compose: other line breaks of Unicode may stand in a value.
    """
    try:
        data = file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return {}

    lines = data.decode(errors="replace").split("\n")
    pairs = (line.partition("=") for line in lines)
    return {name: value for name, is_set, value in pairs if is_set}
