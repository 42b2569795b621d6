"""What a kill, a full disk, a cancelled call and a poor process leave."""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from claw_tools.errors import ErrorCode
from claw_tools.files.workspace import Workspace
from tests.not_tested import skip_for_kernel
from tests.tools.files.poor_process import OPENAT
from tests.tools.files.scene import Scene, link, opened, registered, scene_at, write

ROOT = Path(__file__).parents[3]
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
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
    kernel_scene: Scene, kernel: str
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


@contextmanager
def mounted(home: Path, *mounts: tuple[str, Path, str]) -> Iterator[Workspace]:
    """Yield a workspace with mounts, each of a source, a place and options, that
    only one thread's namespace has.
    """

    def mount() -> Workspace:
        os.unshare(os.CLONE_FS | os.CLONE_NEWNS)
        mount_one("none", Path("/"), "", MS_REC | MS_PRIVATE)
        for source, place, options in mounts:
            mount_one(source, place, options, 0 if source == "tmpfs" else MS_BIND)
        return Workspace.open(home)

    with ThreadPoolExecutor(1) as thread:
        try:
            workspace = thread.submit(mount).result()
        except OSError as error:
            skip_for_kernel("mounts", error.strerror)
        try:
            yield workspace
        finally:
            workspace.close()


def mount_one(source: str, place: Path, options: str, flags: int) -> None:
    names = [each.encode() for each in (source, str(place), source)]
    if ctypes.CDLL(None, use_errno=True).mount(*names, flags, options.encode()):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@pytest.mark.requirement("files:full-disk")
async def test_a_full_disk_is_an_error_and_the_old_file_is_whole(tmp_path: Path) -> None:
    with mounted(tmp_path, ("tmpfs", tmp_path, "size=256k,mode=0777")) as workspace:
        scene = Scene(tmp_path, workspace, registered(workspace))
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


@pytest.mark.requirement("files:protected-place")
async def test_where_the_file_system_has_two_names_for_a_protected_folder_both_are_protected(
    tmp_path: Path,
) -> None:
    """As one that folds case has: a bind mount is the same folder under another name."""
    for name in ("a/.git/hooks/deep", "a/other"):
        (tmp_path / name).mkdir(parents=True)
    with mounted(
        tmp_path, (str(tmp_path / "a" / ".git"), tmp_path / "a" / "other", "")
    ) as workspace:
        scene = Scene(tmp_path, workspace, registered(workspace))
        for path in (
            "a/other/hooks/x",
            "a/other/hooks/deep/x",
            "a/other/HOOKS/x",
            "a/other/config",
        ):
            assert (
                await scene.refused("write_file", path=path, content="x")
                is ErrorCode.PERMISSION_DENIED
            )
        await scene.call("write_file", path="a/other/description", content="x")
    assert (tmp_path / "a" / ".git" / "description").read_text() == "x"


@pytest.mark.requirement("files:dropped", "files:no-openat2")
@pytest.mark.parametrize("kernel", ["new", "old"])
def test_a_process_without_roots_rights_works_and_refuses_as_on_an_old_kernel(
    kernel_scene: Scene, kernel: str
) -> None:
    if kernel == "old" and platform.machine() not in OPENAT:
        skip_for_kernel("a filter of this architecture's calls")
    link(kernel_scene.ws / "link", "../out")
    before = kernel_scene.outside()
    command = [
        sys.executable,
        "-m",
        "tests.tools.files.poor_process",
        str(kernel_scene.home),
        kernel,
    ]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert kernel_scene.outside() == before


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder's lock, as a command of the principal's can."""
    descriptor = os.open(folder, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(descriptor)


@pytest.mark.requirement("files:cancelled")
async def test_a_cancelled_call_changes_nothing_afterwards(kernel_scene: Scene) -> None:
    scene = kernel_scene
    write(scene.ws / "f", "old")
    calls = {
        "write_file": {"path": "f", "content": "new"},
        "edit_file": {"path": "f", "old_text": "old", "new_text": "new"},
        "memory_write": {"content": "new"},
    }
    with locked(scene.ws):
        tasks = [
            asyncio.create_task(scene.call(tool, **args))
            for tool, args in calls.items()
            for _ in range(4)
        ]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(result) for result in results} == {asyncio.CancelledError}
    await scene.call("write_file", path="g", content="the threads are free")
    assert (scene.ws / "f").read_text() == "old"
    assert sorted(path.name for path in scene.ws.iterdir()) == ["f", "g"]


@pytest.mark.requirement("files:principals")
async def test_calls_that_wait_in_one_workspace_do_not_hold_up_another(tmp_path: Path) -> None:
    with opened(tmp_path / "a") as one, opened(tmp_path / "b") as other, locked(one.ws):
        waiting = [
            asyncio.create_task(one.call("memory_write", content=str(number)))
            for number in range(20)
        ]
        await other.call("memory_write", content="at once")
        assert not any(task.done() for task in waiting)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    with scene_at(tmp_path / "a") as one:
        assert await one.call("memory_read") == {"content": ""}
