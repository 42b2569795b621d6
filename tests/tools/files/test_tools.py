"""write_file and list_directory."""

from __future__ import annotations

import os

import pytest

from claw_tools.errors import ErrorCode
from tests.tools.files.guarded_workspace import GuardedWorkspace, bind, link, own, write


@pytest.mark.requirement("files:write-limit")
async def test_too_much_content_and_half_characters_are_refused_before_anything_is_made(
    kernel_scene: GuardedWorkspace,
) -> None:
    scene = kernel_scene
    for content in ("x" * ((10 << 20) + 1), "é" * ((5 << 20) + 1), "\udfff"):
        assert (
            await scene.refused("write_file", path="new/f", content=content)
            is ErrorCode.INVALID_ARGS
        )
    assert list(scene.ws.iterdir()) == []


@pytest.mark.requirement("files:mode")
async def test_a_file_keeps_its_mode_without_setuid(kernel_scene: GuardedWorkspace) -> None:
    scene = kernel_scene
    for name in ("run", "edited"):
        write(scene.ws / name, "old").chmod(0o6751)
    await scene.call("write_file", path="run", content="new")
    await scene.call("edit_file", path="edited", old_text="old", new_text="new")
    await scene.call("write_file", path="fresh", content="new")
    umask = os.umask(0)
    os.umask(umask)
    modes = {path.name: path.stat().st_mode & 0o7777 for path in scene.ws.iterdir()}
    assert modes == {"run": 0o751, "edited": 0o751, "fresh": 0o666 & ~umask}


@pytest.mark.requirement("files:list")
async def test_a_listing_is_sorted_and_tells_nothing_of_what_a_link_leads_to(
    scene: GuardedWorkspace,
) -> None:
    write(scene.ws / "b", "1234")
    write(scene.ws / "sub" / "f")
    link(scene.ws / "a", "../out/s")
    os.mkfifo(scene.ws / "pipe")
    (scene.ws / os.fsdecode(b"n\xff\n")).touch()
    write(scene.ws / ".claw-new", "left by a kill")
    with bind(scene.ws / "socket"):
        listing = await scene.call("list_directory", path=".")
    assert listing == {
        "entries": [
            {"name": "a", "type": "link"},
            {"name": "b", "type": "file", "size": 4},
            {"name": "n\\xff\n", "type": "file", "size": 0},
            {"name": "pipe", "type": "other"},
            {"name": "socket", "type": "other"},
            {"name": "sub", "type": "folder"},
        ]
    }
    assert await scene.refused("list_directory", path="b") is ErrorCode.FILE_NOT_FOUND
    assert await scene.refused("list_directory", path="nope") is ErrorCode.FILE_NOT_FOUND


@pytest.mark.requirement("files:list")
async def test_a_listing_is_cut_at_its_limit_and_says_how_many_there_are(
    kernel_scene: GuardedWorkspace,
) -> None:
    scene = kernel_scene
    (scene.ws / "many").mkdir()
    for number in range(5_000):
        (scene.ws / "many" / f"{number:04}").touch()
    own(scene.ws / "many")
    listing = await scene.call("list_directory", path="many")
    assert [each["name"] for each in listing["entries"]] == [
        f"{number:04}" for number in range(1_000)
    ]
    assert (listing["truncated"], listing["original_entries"]) == (True, 5_000)
