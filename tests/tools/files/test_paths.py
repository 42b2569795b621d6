"""The file that a path may mean: never anything outside of the workspace, nor what is no file."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from claw_tools.errors import ErrorCode
from claw_tools.files import workspace
from claw_tools.files.openat2 import open_by_walk
from tests.tools.files.guarded_workspace import (
    SECRET,
    GuardedWorkspace,
    bind,
    link,
    opened,
    own,
    write,
)

WRITING = {"write_file": {"content": "x"}, "edit_file": {"old_text": "s", "new_text": "x"}}
EVERY = {"read_file": {}, "list_directory": {}, **WRITING}
ESCAPES = [
    *(
        "../out/s",
        "a/../../out/s",
        "/etc/passwd",
        "../ws-evil/s",
        "..",
        "../",
        "a/../..",
        "nope/../../x",
        "nope/../../../etc/x",
    ),
    *(
        "out-link/s",
        "out-link/new",
        "out-link",
        "up/out/s",
        "a/up/../out/s",
        "absolute/s",
        "dangling",
        "dangling/x",
        "s-link",
    ),
]


def furnish(scene: GuardedWorkspace) -> None:
    """Put links into the workspace, in and out, and a file below a folder."""
    write(scene.ws / "a" / "deep" / "f", "inside")
    write(scene.ws / "f", "inside")
    targets = {
        "out-link": "../out",
        "up": "..",
        "a/up": "../..",
        "absolute": scene.out,
        "dangling": "../out/new",
    }
    for name, target in {
        **targets,
        "s-link": "../out/s",
        "in-link": "a/deep",
        "f-link": "f",
    }.items():
        link(scene.ws / name, target)


@pytest.mark.requirement("files:escapes")
@pytest.mark.parametrize("tool", EVERY)
async def test_every_way_out_is_an_invalid_path_and_nothing_outside_changes(
    scene: GuardedWorkspace, tool: str
) -> None:
    furnish(scene)
    before, within = scene.outside(), sorted(scene.ws.rglob("*"))
    for path in ESCAPES:
        assert await scene.refused(tool, path=path, **EVERY[tool]) is ErrorCode.INVALID_PATH, path
    assert scene.outside() == before
    assert sorted(scene.ws.rglob("*")) == within


@pytest.mark.requirement("files:inside")
async def test_dots_and_links_that_stay_inside_are_followed_and_a_link_at_the_end_is_not_written(
    kernel_scene: GuardedWorkspace,
) -> None:
    scene = kernel_scene
    furnish(scene)
    link(scene.ws / "a" / "root", "..")
    for path in ("a/../f", "in-link/f", "a/./deep//f", "f-link", "a/root/f", "in-link/../../f"):
        assert await scene.call("read_file", path=path) == {"content": "inside"}, path
    await scene.call("write_file", path="in-link/../new", content="by the kernel's rules")
    assert (scene.ws / "a" / "new").read_text() == "by the kernel's rules"
    for tool, args in WRITING.items():
        assert await scene.refused(tool, path="f-link", **args) is ErrorCode.INVALID_PATH
    assert (scene.ws / "f").read_text() == "inside"
    assert (scene.ws / "f-link").is_symlink()


@pytest.mark.requirement("files:no-openat2")
async def test_without_openat2_no_link_is_followed_and_dots_still_lead_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspace, "find_opener", lambda _: open_by_walk)
    with opened(tmp_path) as scene:
        furnish(scene)
        for path in ("a/../f", "a/deep/../../f", "./a//deep/f"):
            assert await scene.call("read_file", path=path) == {"content": "inside"}, path
        for path in ("in-link/f", "f-link", "in-link/../f"):
            assert await scene.refused("read_file", path=path) is ErrorCode.INVALID_PATH, path
        assert await scene.refused("list_directory", path="in-link") is ErrorCode.INVALID_PATH
        assert (
            await scene.refused("write_file", path="in-link/new", content="x")
            is ErrorCode.INVALID_PATH
        )
        assert not (scene.ws / "a" / "deep" / "new").exists()


@pytest.mark.requirement("files:missing-folders")
async def test_missing_folders_are_made_and_never_through_a_link_that_hangs(
    scene: GuardedWorkspace,
) -> None:
    link(scene.ws / "hangs", "later")
    assert await scene.call("write_file", path="x/y/z", content="new") == {
        "bytes": 3,
        "created": True,
    }
    assert (scene.ws / "x" / "y" / "z").read_text() == "new"
    refused = await scene.refused("write_file", path="hangs/f", content="x")
    assert refused in {ErrorCode.INVALID_PATH, ErrorCode.FILE_NOT_FOUND}
    assert (
        await scene.refused("write_file", path="new/../f", content="x") is ErrorCode.FILE_NOT_FOUND
    )
    assert sorted(path.name for path in scene.ws.iterdir()) == ["hangs", "x"]


@pytest.mark.requirement("files:hard-link")
async def test_a_hard_link_is_replaced_and_never_written_through(scene: GuardedWorkspace) -> None:
    for name in ("w", "e", "MEMORY.md"):
        os.link(scene.out / "s", scene.ws / name)
    before = scene.outside()
    await scene.call("write_file", path="w", content="mine")
    await scene.call("edit_file", path="e", old_text="secret", new_text="mine")
    await scene.call("memory_write", content="mine")
    assert scene.outside() == before
    assert (scene.ws / "w").read_text() == "mine"
    assert (scene.out / "s").stat().st_nlink == 1


def count_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.mark.requirement("files:no-file")
async def test_what_is_no_file_is_an_invalid_path_at_once_and_no_descriptor_is_left(
    scene: GuardedWorkspace,
) -> None:
    os.mkfifo(scene.ws / "pipe")
    own(scene.ws / "pipe")
    (scene.ws / "folder").mkdir()
    link(scene.ws / "environ", "/proc/self/environ")
    link(scene.ws / "zero", "/dev/zero")
    names = ["pipe", "socket", "folder", "environ", "zero", ".", "folder/"]
    if os.geteuid() == 0:
        os.mknod(scene.ws / "device", 0o600 | 0o020000, os.makedev(1, 5))
        own(scene.ws / "device")
        names.append("device")
    with bind(scene.ws / "socket"):
        await scene.refused("read_file", path="pipe")  # The first call starts a thread
        before = count_descriptors()
        async with asyncio.timeout(30):  # For a hang
            for tool, args in {"read_file": {}, **WRITING}.items():
                for name in names:
                    assert await scene.refused(tool, path=name, **args) is ErrorCode.INVALID_PATH, (
                        name
                    )
        assert count_descriptors() == before
    assert await scene.refused("list_directory", path="pipe") is ErrorCode.FILE_NOT_FOUND


ODD = {
    "": ErrorCode.INVALID_PATH,
    "a\0b": ErrorCode.INVALID_PATH,
    "a\nb": ErrorCode.INVALID_PATH,
    "a\x7f": ErrorCode.INVALID_PATH,
    "a\x9bb": ErrorCode.INVALID_PATH,
    "n" * 300: ErrorCode.INVALID_PATH,
    "n/" * 600: ErrorCode.INVALID_PATH,
    "/".join("n" * 33): ErrorCode.INVALID_PATH,
    "\ud800": ErrorCode.INVALID_PATH,
    "n" * 2_000 + "\ud800": ErrorCode.INVALID_PATH,
    "f/": ErrorCode.FILE_NOT_FOUND,
    "f/g": ErrorCode.FILE_NOT_FOUND,
    "..\\out\\s": ErrorCode.FILE_NOT_FOUND,
    "~/x": ErrorCode.FILE_NOT_FOUND,
}


@pytest.mark.requirement("files:odd-paths")
async def test_odd_paths_have_defined_errors_and_a_backslash_is_a_letter(
    scene: GuardedWorkspace,
) -> None:
    write(scene.ws / "f")
    for path, code in ODD.items():
        assert await scene.refused("read_file", path=path) is code, path
    assert await scene.refused("write_file", path="f/", content="x") is ErrorCode.INVALID_PATH
    await scene.call("write_file", path="..\\out\\s", content="literal")
    assert (scene.ws / "..\\out\\s").read_text() == "literal"
    deepest = "/".join("n" * 32)
    await scene.call("write_file", path=deepest, content="x")
    assert await scene.call("read_file", path=deepest) == {"content": "x"}


PARTS = st.sampled_from(
    [
        "..",
        "..",
        ".",
        "",
        "a",
        "deep",
        "f",
        "up",
        "out",
        "s",
        "in-link",
        "out-link",
        "absolute",
        "dangling",
        "s-link",
        "nope",
        "ws",
    ]
)
PATHS = st.one_of(
    st.lists(PARTS, min_size=1, max_size=7).map("/".join),
    st.lists(st.one_of(PARTS, st.text(max_size=3))).map("/".join),
)


@pytest.mark.requirement("files:any-path")
@settings(
    max_examples=300,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(path=PATHS, tool=st.sampled_from(sorted(EVERY)))
def test_whatever_the_path_nothing_outside_is_read_or_written(
    scene: GuardedWorkspace, path: str, tool: str
) -> None:
    for left in scene.ws.iterdir():
        shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
    furnish(scene)
    before = scene.outside()
    told = asyncio.run(scene.tell(tool, path=path, **EVERY[tool]))
    assert SECRET not in told
    assert "ws-evil" not in told
    assert str(scene.home) not in told
    assert not told.startswith(("execution_failed", "permission_denied", "busy"))
    assert scene.outside() == before
