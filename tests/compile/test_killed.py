"""A compiler that is killed in the middle, and one that runs elsewhere (edge case 40)."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from claw_compile.compiler import compile_pod
from claw_compile.output.emit import digest
from claw_mediate.io.agents import Agents
from claw_mediate.io.log import EventLog
from tests.compile.worked_pods import WORKED_PODS, files_below

ROOT = Path(__file__).parents[2]
FLEET = next(pod for pod in WORKED_PODS if pod.name == "fleet")
AGAIN_AND_AGAIN = """
import itertools, os, sys
from pathlib import Path
from claw_compile.compiler import compile_pod
pod = Path(sys.argv[1])
for number in itertools.count():
    (pod.parent / "agents" / "triage" / "AGENTS.md").write_text(f"# Contract {number} of {os.getpid()}")
    assert compile_pod(pod, os.environ).value is not None
    print(number, flush=True)
"""


def is_whole(agent: Path) -> bool:
    """Whether the files of an agent are of one compile: the digest among them is of all the others."""
    files = files_below(agent)
    metadata = json.loads(files["metadata.json"])
    stated = metadata.pop("digest")
    files["metadata.json"] = (json.dumps(metadata, indent=2, ensure_ascii=False) + "\n").encode()
    return digest(files) == stated


@pytest.mark.requirement("compile:same-input-same-bytes")
def test_clock_locale_hashes_and_directory_of_the_process_change_no_byte(tmp_path: Path) -> None:
    output = tmp_path / "out"
    environ = {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "7", "TZ": "Asia/Kolkata", "LC_ALL": "C", "HOME": "/"}
    command = [sys.executable, "-m", "claw_compile", str(FLEET.directory / "claw-pod.yml"), "-o", str(output)]
    done = subprocess.run(command, cwd="/", env={**environ, **FLEET.environ}, check=False, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert files_below(output / ".tree") == FLEET.expected()


@pytest.mark.requirement("compile:killed")
def test_a_compiler_that_is_killed_leaves_every_agent_whole_and_the_next_one_goes_on(tmp_path: Path) -> None:
    file = FLEET.copy(tmp_path)
    context = file.parent / ".claw-runtime" / "context"
    command = [sys.executable, "-c", AGAIN_AND_AGAIN, str(file)]
    environ = {**FLEET.environ, "PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
    seed = random.randrange(2**32)
    draw = random.Random(seed)
    for _ in range(3):
        with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE) as compiler:
            assert compiler.stdout is not None
            assert compiler.stdout.readline() == b"0\n"
            # Somewhere in one of the next compiles, each of which takes some ten milliseconds.
            time.sleep(draw.uniform(0, 0.1))
            compiler.kill()
        agents = Agents(context, EventLog(lambda _: None))
        assert agents.ids() == ["auditor", "resolver", "triage-0", "triage-1", "triage-2"], seed
        assert [name for name in agents.ids() if agents.find(name) is None or not is_whole(context / name)] == [], seed
        contracts = {(context / f"triage-{ordinal}" / "AGENTS.md").read_bytes() for ordinal in range(3)}
        assert len(contracts) == 1, seed
    assert compile_pod(file, FLEET.environ).value is not None
    assert sorted(path.name for path in context.parent.iterdir() if path.name.startswith(".")) == [".tree"]
