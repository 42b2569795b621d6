"""The exchange of the compiled tree while a proxy serves from it, and may have it mounted."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
import threading
from pathlib import Path, PurePosixPath

import pytest

from claw_compile.output.emit import Tree
from claw_compile.output.write import write
from claw_mediate.agents.directory import AgentDirectory
from claw_mediate.telemetry.event_log import EventLog
from tests.not_tested import skip_for_kernel
from tests.search_size import each_nth

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
    return {
        context / "AGENTS.md": f"{contract}\n".encode(),
        context / "metadata.json": json.dumps(metadata).encode(),
    }


@pytest.mark.requirement("compose:live-tree")
def test_a_mount_of_the_directory_sees_the_next_compile_and_one_of_the_tree_does_not(
    tmp_path: Path,
) -> None:
    out, whole, part = (tmp_path / name for name in ("out", "whole", "part"))
    whole.mkdir()
    part.mkdir()
    write(tree("first"), out)
    command = ["unshare", "-Urm", "sh", "-c", MOUNTED, "sh", *map(str, (out, out, whole, part))]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as container:
        assert container.stdout is not None
        if container.stdout.readline() != "mounted\n":
            skip_for_kernel("mounts in a namespace of our own")
        write(tree("second"), out)
        seen, _ = container.communicate("go on\n", timeout=60)
    assert seen == "second\nnothing\n"


@pytest.mark.long
@pytest.mark.requirement("compose:live-tree")
def test_no_request_sees_half_an_agent_while_its_tree_is_exchanged(tmp_path: Path) -> None:
    write(tree("0"), tmp_path / "out")
    agents = AgentDirectory(tmp_path / "out" / "context", EventLog())
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


def generation(out: Path) -> set[str]:
    """Return the contents of the files below ``out``; there is one for each compile
    that they come from.
    """
    return {path.read_text(encoding="utf-8") for path in sorted(out.rglob("part-*"))}


COMPILES = """
import sys
from pathlib import Path, PurePosixPath
from claw_compile.output.write import write

out, made = map(Path, sys.argv[1:])
for number in range(10**6):
    content = str(number).encode()
    tree = {PurePosixPath("context", "one", f"part-{part}"): content for part in range(20)}
    assert write(tree, out, {made: content}) == ()
    print(number, flush=True)
"""


@pytest.mark.long
@pytest.mark.requirement("compose:live-tree")
def test_a_kill_at_any_moment_leaves_one_whole_tree_and_the_next_compile_cleans_up(
    tmp_path: Path,
) -> None:
    out, made = tmp_path / "out", tmp_path / "compose.generated.yml"
    command = [sys.executable, "-c", COMPILES, str(out), str(made)]
    for attempt in each_nth(2, range(6)):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as compiling:
            assert compiling.stdout is not None
            # Kill it somewhere within a compile.
            for _ in range(attempt * 5 + 1):
                assert compiling.stdout.readline() != ""
            for _ in range(attempt * 11):
                next(iter(out.glob("..tree.new-*")), None)
            compiling.kill()
        assert compiling.returncode == -signal.SIGKILL
        assert len(generation(out / "context")) == 1
        assert len(sorted((out / "context" / "one").iterdir())) == 20
        assert made.read_text(encoding="utf-8").isdecimal()
    tree = {PurePosixPath("context", "one", "part-0"): b"last"}
    assert write(tree, out, {made: b"last"}) == ()
    assert generation(out / ".tree") == {"last"}
    assert made.read_text(encoding="utf-8") == "last"
    assert sorted(path.name for path in out.iterdir()) == [".tree", "context"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["compose.generated.yml", "out"]
