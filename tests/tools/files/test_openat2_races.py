"""Another process moves things while the tools work."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from claw_tools.errors import ToolError
from tests.tools.files.guarded_workspace import SECRET, GuardedWorkspace, link, write
from tests.waiting import DEADLINE

FLIPPER = """
import ctypes, os, sys
exchange, folder, aside = ctypes.CDLL(None).renameat2, os.open(sys.argv[1], os.O_PATH), 0

def move(source, target):
    global aside
    while True:
        try:
            return os.rename(source, target, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:  # write_file made a folder where there was nothing for a moment
            aside += 1
            os.rename(target, f"aside{aside}", src_dir_fd=folder, dst_dir_fd=folder)

print("ready", flush=True)
while True:
    exchange(folder, b"d", folder, b"other", 2)
    if sys.argv[2] == "rename":
        move("d", "x")
        move("other", "d")
        move("x", "other")
"""
"""A program that makes ``d`` a folder and a link out of the workspace in turn."""
SECONDS = 0.7


@contextmanager
def flipping(ws: Path, how: str) -> Iterator[None]:
    """Run the program meanwhile."""
    with subprocess.Popen(
        [sys.executable, "-c", FLIPPER, str(ws), how], stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            yield
            assert process.poll() is None
        finally:
            process.kill()


def furnish(scene: GuardedWorkspace) -> None:
    for name in ("s", "edited"):
        write(scene.ws / "d" / name, "inside")
    link(scene.ws / "other", "../out")
    write(scene.out / "edited", "inside")
    (scene.out / "edited").chmod(0o666)


async def try_everything(scene: GuardedWorkspace, number: int) -> tuple[int, int]:
    """Call each tool once; return how many calls were done, and how many of them got out."""
    calls = {
        "read_file": {"path": "d/s"},
        "list_directory": {"path": "d/sub/../"},
        "write_file": {"path": f"d/new/{number % 5}", "content": "inside"},
        "edit_file": {"path": "d/edited", "old_text": "inside", "new_text": "inside too"},
    }
    done = lost = 0
    for tool, args in calls.items():
        try:
            result = await scene.call(tool, **args)
        except ToolError:
            continue
        done += 1
        lost += SECRET in str(result) or "only-outside" in str(result)
    return done, lost


@pytest.mark.requirement("files:race")
@pytest.mark.parametrize("how", ["exchange", "rename"])
async def test_who_exchanges_a_folder_and_a_link_gets_no_call_out(
    scene: GuardedWorkspace, how: str
) -> None:
    furnish(scene)
    write(scene.out / "only-outside", "")
    before = scene.outside()
    done = lost = number = 0
    with flipping(scene.ws, how):
        end = time.monotonic() + SECONDS
        # On the walk ``d`` is a folder half of the time, so some of the calls are done under every
        # opener.
        while time.monotonic() < end or not done:
            results = await asyncio.gather(
                *(try_everything(scene, number + each) for each in range(4))
            )
            done, lost, number = (
                done + sum(each[0] for each in results),
                lost + sum(each[1] for each in results),
                number + 4,
            )
    assert (lost, scene.outside()) == (0, before)


@pytest.mark.requirement("files:race")
def test_the_same_attack_gets_a_path_out_that_is_checked_before_it_is_used(
    kernel_scene: GuardedWorkspace,
) -> None:
    scene = kernel_scene
    furnish(scene)
    top = os.path.realpath(scene.ws)
    end = time.monotonic() + DEADLINE
    with flipping(scene.ws, "exchange"):
        while time.monotonic() < end:
            path = f"{top}/d/s"
            if os.path.realpath(path).startswith(f"{top}/") and Path(path).read_text() == SECRET:
                return
    raise AssertionError("the attack is none: it did not get the naive reader out")


@pytest.mark.requirement("files:atomic")
async def test_of_concurrent_writes_one_is_whole_and_every_reader_sees_a_whole_one(
    scene: GuardedWorkspace,
) -> None:
    write(scene.ws / "f", "0" * 5_000)
    contents = {str(digit) * 5_000 for digit in range(8)}
    written = [scene.call("write_file", path="f", content=content) for content in sorted(contents)]
    read = [scene.call("read_file", path="f") for _ in range(40)]
    results = await asyncio.gather(*written, *read)
    assert {each["content"] for each in results[len(written) :]} <= contents
    assert (scene.ws / "f").read_text() in contents
    assert [path.name for path in scene.ws.iterdir()] == ["f"]


@pytest.mark.requirement("files:edit-concurrent")
async def test_of_concurrent_edits_none_is_lost(scene: GuardedWorkspace) -> None:
    write(scene.ws / "f", "".join(f"<{number}>\n" for number in range(40)))
    edits = [
        scene.call("edit_file", path="f", old_text=f"<{number}>", new_text=f"[{number}]")
        for number in range(40)
    ]
    await asyncio.gather(*edits)
    assert (scene.ws / "f").read_text() == "".join(f"[{number}]\n" for number in range(40))
