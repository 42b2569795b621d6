"""A compiler that is killed while it writes, and one that runs in another environment."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from claw_compile.output.emit import digest
from claw_mediate.agents.directory import AgentDirectory
from claw_mediate.telemetry.event_log import EventLog
from tests.compile.worked_pods import WORKED_PODS, files_below

ROOT = Path(__file__).parents[2]
FLEET = next(pod for pod in WORKED_PODS if pod.name == "fleet")
DOOMED = """
import os, signal, sys
from pathlib import Path
from claw_compile.compiler import compile_pod

def compile_until(moment):
    happened = 0
    def count(event, _):
        nonlocal happened
        if event == "open" or event.startswith(("os.", "shutil.", "ctypes.")):
            happened += 1
            if happened == moment:
                os.kill(os.getpid(), signal.SIGKILL)
    (pod.parent / "agents" / "triage" / "AGENTS.md").write_text(f"# Contract {moment}")
    sys.addaudithook(count)
    assert compile_pod(pod, os.environ).value is not None
    print(happened, flush=True)

pod = Path(sys.argv[1])
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        compile_until(int(line))
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""A program that compiles for each number it reads, and is killed at that many accesses to the file
system; 0: at none.
"""
MOMENTS = 12


def is_whole(agent: Path) -> bool:
    """Return True if the files of an agent come from one compile: the digest among
    them is that of all the others.
    """
    files = files_below(agent)
    metadata = json.loads(files["metadata.json"])
    stated = metadata.pop("digest")
    files["metadata.json"] = (json.dumps(metadata, indent=2, ensure_ascii=False) + "\n").encode()
    return digest(files) == stated


def answer(compiler: subprocess.Popen[str], moment: int | None = None) -> str:
    """Send a number, if there is one, and return the next line of the output."""
    assert compiler.stdin is not None
    assert compiler.stdout is not None
    if moment is not None:
        compiler.stdin.write(f"{moment}\n")
        compiler.stdin.flush()
    return compiler.stdout.readline().strip()


def lived(compiler: subprocess.Popen[str]) -> int:
    """Return the number of accesses to the file system of a compile that is not killed."""
    touches = int(answer(compiler, 0))
    assert answer(compiler) == "0"
    return touches


def hidden(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.name.startswith("."))


@pytest.mark.requirement("compile:same-input-same-bytes")
def test_clock_locale_hashes_and_directory_of_the_process_change_no_byte(tmp_path: Path) -> None:
    output = tmp_path / "out"
    environ = {
        "PYTHONPATH": str(ROOT),
        "PYTHONHASHSEED": "7",
        "TZ": "Asia/Kolkata",
        "LC_ALL": "C",
        "HOME": "/",
    }
    command = [
        sys.executable,
        "-m",
        "claw_compile",
        str(FLEET.directory / "claw-pod.yml"),
        "-o",
        str(output),
    ]
    done = subprocess.run(
        command, cwd="/", env={**environ, **FLEET.environ}, check=False, capture_output=True
    )
    assert done.returncode == 0, done.stderr
    assert files_below(output / ".tree") == FLEET.expected()


@pytest.mark.requirement("compile:killed")
@pytest.mark.long
def test_a_compiler_that_is_killed_leaves_every_agent_whole_and_the_next_one_goes_on(
    tmp_path: Path,
) -> None:
    file = FLEET.copy(tmp_path)
    context = file.parent / ".claw-runtime" / "context"
    command = [sys.executable, "-c", DOOMED, str(file)]
    environ = {**FLEET.environ, "PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
    with subprocess.Popen(
        command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as compiler:
        lived(compiler)
        touches, seen = lived(compiler), set()
        for moment in (1 + touches * number // MOMENTS for number in range(MOMENTS)):
            assert answer(compiler, moment) == str(-signal.SIGKILL)
            agents = AgentDirectory(context, EventLog(lambda _: None))
            assert agents.ids() == ["auditor", "resolver", "triage-0", "triage-1", "triage-2"], (
                moment
            )
            assert [
                name
                for name in agents.ids()
                if not (agents.find(name) and is_whole(context / name))
            ] == [], moment
            contracts = {
                (context / f"triage-{ordinal}" / "AGENTS.md").read_bytes() for ordinal in range(3)
            }
            assert len(contracts) == 1, moment
            seen |= contracts
            lived(compiler)
            assert hidden(context.parent) == [".tree"], moment
        assert compiler.stdin is not None
        compiler.stdin.close()
    # Some were killed before the exchange of the trees, and some after it.
    assert 1 < len(seen) < MOMENTS
