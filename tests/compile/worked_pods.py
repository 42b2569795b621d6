"""The worked pods: the variables that each needs, the warnings that it
demonstrates, and its golden output.

``python -m tests.compile.worked_pods`` writes every ``expected/`` anew: look at the difference
before you keep it.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from claw_compile.compiler import compile_pod

PODS = Path(__file__).parents[2] / "pods"
EXPECTED = "expected"
MASTER = {"CLAW_MASTER_SECRET": "golden-pod-secret-not-for-use"}
_FLEET = ("TICKETS_TOKEN", "RESOLVER_TICKETS_TOKEN", "BILLING_PASSWORD", "CUSTOMERS_TOKEN")
_LEFT_BEHIND = (EXPECTED, ".claw-runtime", ".claw-master", "compose.generated.yml", "__pycache__")


@dataclass(frozen=True)
class WorkedPod:
    """``variables`` are those that its README names; ``warnings`` are those that it
    is meant to earn.

    ``is_fleet``: its golden output also has the manifests of a fleet of proxies.
    """

    name: str
    variables: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    is_fleet: bool = False

    @property
    def directory(self) -> Path:
        return PODS / self.name

    @property
    def environ(self) -> Mapping[str, str]:
        """Return all variables that the pod needs, and no others."""
        return MASTER | {
            name: f"golden-{name.lower().replace('_', '-')}" for name in self.variables
        }

    def expected(self) -> dict[str, bytes]:
        return files_below(self.directory / EXPECTED)

    def copy(self, directory: Path) -> Path:
        """Copy the sources, to be changed or compiled there; return the pod file."""
        shutil.copytree(
            self.directory, directory / self.name, ignore=shutil.ignore_patterns(*_LEFT_BEHIND)
        )
        return directory / self.name / "claw-pod.yml"

    def compiled(self, pod_file: Path, output: Path) -> dict[str, bytes]:
        """Return the files of a compile, with compose.generated.yml; its
        diagnostics must be the expected warnings.
        """
        result = compile_pod(pod_file, self.environ, output)
        assert tuple(diagnostic.code.name for diagnostic in result.diagnostics) == self.warnings, (
            result.diagnostics
        )
        files = files_below(output / ".tree")
        if self.is_fleet:
            fleet = compile_pod(
                pod_file, self.environ, output.with_name("fleet"), "kubernetes", "gateway"
            )
            assert fleet.value is not None, fleet.diagnostics
            files[fleet.value.deployed.name] = fleet.value.deployed.read_bytes()
        return files


WORKED_PODS = (
    WorkedPod("fleet", ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", *_FLEET), ("write-granted-by-all",)),
    WorkedPod("gateway", ("OPENAI_API_KEY", "STATE_PASSWORD"), is_fleet=True),
    WorkedPod("minimal", ("OPENAI_API_KEY",)),
    WorkedPod("research", ("ANTHROPIC_API_KEY", "ARCHIVE_TOKEN", "NOTEBOOK_TOKEN")),
    WorkedPod("trading-desk", ("TRADING_API_TOKEN",), ("write-granted-by-all",)),
    WorkedPod("workshop", ("ANTHROPIC_API_KEY", "SEARCH_KEY", "HOOK_TOKEN")),
)


def files_below(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def main() -> None:
    """Write every golden output."""
    for pod in WORKED_PODS:
        with tempfile.TemporaryDirectory() as output:
            tree = pod.compiled(pod.directory / "claw-pod.yml", Path(output))
        shutil.rmtree(pod.directory / EXPECTED, ignore_errors=True)
        for name, content in tree.items():
            path = pod.directory / EXPECTED / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


if __name__ == "__main__":
    main()
