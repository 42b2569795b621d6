"""``claw`` as a user runs it: the trading desk, its secrets, and the command in its directory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.fork_server import ROOT, run_claw

DESK = ROOT / "pods" / "trading-desk"
SECRETS = {
    "TRADING_API_TOKEN": "planted-trading-token",
    "CLAW_MASTER_SECRET": "planted-master-secret",
}


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def run(directory: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the command in ``directory``, with no more environment than it needs."""
    path = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=directory,
        env=path | environ,
        capture_output=True,
        text=True,
        check=False,
    )


def claw(directory: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return run_claw(
        arguments, directory, {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **environ}
    )
