"""The rights of the file tools, and the files that a call leaves when it ends."""

from __future__ import annotations

import asyncio
import fcntl
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from claw_tools.errors import ErrorCode
from tests.not_tested import skip_for_kernel
from tests.tools.files.guarded_workspace import (
    OWNER,
    GuardedWorkspace,
    guarded_at,
    link,
    opened,
    write,
)
from tests.tools.files.poor_process import OPENAT

needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="the kernel refuses other users: run as root"
)


@needs_root
@pytest.mark.requirement("files:owner")
async def test_the_tools_of_a_host_that_is_root_have_the_rights_of_the_workspaces_owner(
    kernel_scene: GuardedWorkspace,
) -> None:
    scene = kernel_scene
    await scene.call("write_file", path="x/y", content="mine")
    await scene.call("edit_file", path="x/y", old_text="mine", new_text="ours")
    await scene.call("memory_write", content="note")
    made = [scene.ws / "x", scene.ws / "x" / "y", scene.ws / "MEMORY.md"]
    assert {(path.stat().st_uid, path.stat().st_gid) for path in made} == {(OWNER, OWNER)}
    (scene.ws / "roots").write_text("for root only")
    (scene.ws / "roots").chmod(0o600)
    (scene.ws / "theirs").mkdir(mode=0o755)
    assert await scene.refused("read_file", path="roots") is ErrorCode.PERMISSION_DENIED
    assert (
        await scene.refused("write_file", path="theirs/f", content="x")
        is ErrorCode.PERMISSION_DENIED
    )
    assert os.geteuid() == 0
    (scene.home / "still-root").write_text("")  # The other threads keep what they have


ROOT = Path(__file__).parents[3]


@pytest.mark.requirement("files:dropped", "files:no-openat2")
@pytest.mark.parametrize("kernel", ["new", "old"])
def test_a_process_without_roots_rights_works_and_refuses_as_on_an_old_kernel(
    kernel_scene: GuardedWorkspace, kernel: str
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
async def test_a_cancelled_call_changes_nothing_afterwards(kernel_scene: GuardedWorkspace) -> None:
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
    with guarded_at(tmp_path / "a") as one:
        assert await one.call("memory_read") == {"content": ""}
