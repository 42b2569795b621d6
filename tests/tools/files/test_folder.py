"""A kill or a full disk leaves the old file or the new one."""

from __future__ import annotations

import asyncio
import os
import platform
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from claw_tools.errors import ErrorCode
from tests.not_tested import skip_for_kernel
from tests.tools.files.guarded_workspace import GuardedWorkspace, registered, write
from tests.tools.files.mounts import mounted
from tests.tools.files.poor_process import OPENAT

ROOT = Path(__file__).parents[3]
DOOMED = """
import os, signal, sys
from pathlib import Path
from claw_tools.files.folder import Cancellation
from claw_tools.files.protection import ProtectedFiles
from claw_tools.files.tools import EditFile, WriteFile
from claw_tools.files.workspace import Workspace
from claw_contract.toolhost_file import LimitsSection
from tests.tools.files.poor_process import refuse_new_calls

def write_until(moment):
    workspace, happened = Workspace.open(Path(sys.argv[1])), 0
    def count(event, _):
        nonlocal happened
        if event == "open" or event.startswith(("os.", "fcntl.")):
            happened += 1
            if happened == moment:
                os.kill(os.getpid(), signal.SIGKILL)
    if moment % 2:
        tool, args = WriteFile(workspace, LimitsSection(), ProtectedFiles(())), {"path": "x/f", "content": "new" * 100_000}
    else:
        tool, args = EditFile(workspace, LimitsSection(), ProtectedFiles(())), {"path": "x/f", "old_text": "old", "new_text": "new" * 100_000}
    sys.addaudithook(count)
    tool.work(args, Cancellation())

if sys.argv[2:] == ["old"]:
    refuse_new_calls()
moment = 0
while True:
    moment += 1
    if (child := os.fork()) == 0:
        write_until(moment)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(moment, status, flush=True)
    if sys.stdin.readline() == "":
        break
"""
"""A program that writes again and again, killed at a later access to the file system each time."""


@pytest.mark.requirement("files:killed")
@pytest.mark.parametrize("kernel", ["new", "old"])
def test_a_kill_leaves_the_old_file_or_the_new_one_and_the_next_write_tidies_up(
    kernel_scene: GuardedWorkspace, kernel: str
) -> None:
    scene = kernel_scene
    if kernel == "old" and platform.machine() not in OPENAT:
        skip_for_kernel("a filter of this architecture's calls")
    file, seen, left = write(scene.ws / "x" / "f", "old"), set(), 0
    command = [sys.executable, "-c", DOOMED, str(scene.ws), kernel]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        ended_twice = 0
        while ended_twice < 2:
            _, status = program.stdout.readline().split()
            assert status in {"0", str(-signal.SIGKILL)}
            ended_twice = ended_twice + 1 if status == "0" else 0
            content = file.read_text()
            assert content in {"old", "new" * 100_000}
            seen.add(content)
            assert {path.name for path in file.parent.iterdir()} <= {"f", ".claw-new"}
            left += (file.parent / ".claw-new").exists()
            assert [
                each["name"]
                for each in asyncio.run(scene.call("list_directory", path="x"))["entries"]
            ] == ["f"]
            asyncio.run(scene.call("write_file", path="x/f", content="old"))
            assert [path.name for path in file.parent.iterdir()] == ["f"]
            program.stdin.write("go on\n")
            program.stdin.flush()
        program.stdin.close()
        program.stdout.read()
    assert len(seen) == 2
    assert left > 0  # Some were killed just before the rename


@pytest.mark.requirement("files:full-disk")
async def test_a_full_disk_is_an_error_and_the_old_file_is_whole(tmp_path: Path) -> None:
    with mounted(tmp_path, ("tmpfs", tmp_path, "size=256k,mode=0777")) as workspace:
        scene = GuardedWorkspace(tmp_path, workspace, registered(workspace))
        await scene.call("write_file", path="f", content="old" * 30_000)
        for tool, args in {
            "write_file": {"path": "f", "content": "new" * 100_000},
            "edit_file": {"path": "f", "old_text": "old" * 30_000, "new_text": "new" * 90_000},
            "memory_write": {"content": "n" * 250_000},
        }.items():
            assert await scene.refused(tool, **args) is ErrorCode.EXECUTION_FAILED
        assert await scene.call("list_directory", path=".") == {
            "entries": [{"name": "f", "type": "file", "size": 90_000}]
        }
        assert (await scene.call("read_file", path="f", limit=1))["content"].startswith("oldold")
        await scene.call(
            "write_file", path="f", content="new" * 30_000
        )  # There is room: nothing was left
