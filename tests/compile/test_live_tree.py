"""The tree is exchanged under a proxy that is serving, and that may have it mounted."""

from __future__ import annotations

import hashlib
import json
import subprocess
import threading
from pathlib import Path, PurePosixPath

import pytest

from claw_compile.output.emit import Tree
from claw_compile.output.write import write
from claw_mediate.io.agents import Agents
from claw_mediate.io.log import EventLog

MOUNTED = """
mount --bind "$1" "$3" && mount --bind "$1/context" "$4" || exit 77
echo mounted; read -r _; cat "$3/context/one/AGENTS.md"; cat "$4/one/AGENTS.md" 2>/dev/null || echo nothing
"""


def tree(contract: str) -> Tree:
    metadata = {
        "service": "one",
        "pod": "p",
        "type": "generic",
        "token": "one:" + "0" * 48,
        "digest": hashlib.sha256(contract.encode()).hexdigest(),
    }
    context = PurePosixPath("context", "one")
    return {context / "AGENTS.md": f"{contract}\n".encode(), context / "metadata.json": json.dumps(metadata).encode()}


@pytest.mark.requirement("compose:live-tree")
def test_who_has_the_directory_mounted_sees_the_next_compile_and_who_mounted_the_tree_sees_nothing(
    tmp_path: Path,
) -> None:
    out, whole, part = (tmp_path / name for name in ("out", "whole", "part"))
    whole.mkdir()
    part.mkdir()
    write(tree("first"), out)
    command = ["unshare", "-Urm", "sh", "-c", MOUNTED, "sh", *map(str, (out, out, whole, part))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as container:
        assert container.stdout is not None
        if container.stdout.readline() != "mounted\n":
            pytest.skip("this kernel lets nobody mount in a namespace of their own")
        write(tree("second"), out)
        seen, _ = container.communicate("go on\n", timeout=60)
    assert seen == "second\nnothing\n"


@pytest.mark.requirement("compose:live-tree")
def test_no_request_sees_half_an_agent_while_its_tree_is_exchanged(tmp_path: Path) -> None:
    write(tree("0"), tmp_path / "out")
    agents = Agents(tmp_path / "out" / "context", EventLog())
    done = threading.Event()

    def compile_again_and_again() -> None:
        for number in range(150):
            write(tree(str(number)), tmp_path / "out")
        done.set()

    compiling = threading.Thread(target=compile_again_and_again)
    compiling.start()
    seen = set()
    while not done.is_set():
        agent = agents.find("one")
        assert agent is not None
        seen.add(agent.digest)
    compiling.join()
    assert len(seen) > 1
