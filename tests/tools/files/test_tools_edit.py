"""edit_file: one match, literally, and the rest of the file as it was."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from claw_tools.errors import ErrorCode, ToolError
from claw_tools.files.folder import Cancellation, Folder
from claw_tools.files.openat2 import open_by_kernel
from tests.tools.files.guarded_workspace import GuardedWorkspace, write


async def edited(scene: GuardedWorkspace, content: bytes, old: str, new: str) -> bytes:
    file = write(scene.ws / "f", content)
    await scene.call("edit_file", path="f", old_text=old, new_text=new)
    return file.read_bytes()


async def unedited(scene: GuardedWorkspace, content: bytes, old: str, new: str) -> str:
    """Return the message of an edit that is refused, and leaves the file as it was."""
    file = write(scene.ws / "f", content)
    with pytest.raises(ToolError) as refusal:
        await scene.call("edit_file", path="f", old_text=old, new_text=new)
    assert file.read_bytes() == content
    assert refusal.value.code in {ErrorCode.INVALID_ARGS, ErrorCode.EXECUTION_FAILED}
    return f"{refusal.value.code}: {refusal.value.message}"


@pytest.mark.requirement("files:edit-once")
async def test_none_several_and_overlapping_matches_are_told_with_their_number(
    kernel_scene: GuardedWorkspace,
) -> None:
    scene = kernel_scene
    assert await edited(scene, b"one two three", "two", "2") == b"one 2 three"
    assert "2 times" in await unedited(scene, b"aaa", "aa", "b")
    assert "3 times" in await unedited(scene, b"x x x", "x", "b")
    assert "at least 100 times" in await unedited(scene, b"a" * 1_000_000, "a" * 500_000, "b")
    assert "does not stand" in await unedited(scene, b"abc", "d", "b")
    for content in (b"", b"abc"):
        assert "is empty" in await unedited(scene, content, "", "b")
    assert "are the same" in await unedited(scene, b"abc", "b", "b")
    assert (
        await scene.refused("edit_file", path="nope/g", old_text="a", new_text="b")
        is ErrorCode.FILE_NOT_FOUND
    )
    assert (
        await scene.refused("edit_file", path="g", old_text="a", new_text="b")
        is ErrorCode.FILE_NOT_FOUND
    )
    assert [path.name for path in scene.ws.iterdir()] == ["f"]


@pytest.mark.requirement("files:edit-literal")
async def test_texts_are_literal(kernel_scene: GuardedWorkspace) -> None:
    scene = kernel_scene
    assert await edited(scene, b"a.c abc", "a.c", r"\1 $& \g<0>") == rb"\1 $& \g<0> abc"
    assert "does not stand" in await unedited(scene, "é".encode(), "e\u0301", "x")
    assert "not UTF-8" in await unedited(scene, b"caf\xe9 au lait", "lait", "x")
    assert "half a surrogate" in await unedited(scene, b"abc", "b", "\ud800")


@pytest.mark.requirement("files:edit-line-ends")
async def test_a_byte_order_mark_and_crlf_stay(kernel_scene: GuardedWorkspace) -> None:
    scene = kernel_scene
    content = b"\xef\xbb\xbfone\r\ntwo\r\nthree\r\n"
    assert (
        await edited(scene, content, "one\ntwo", "1\n2\n2.5")
        == b"\xef\xbb\xbf1\r\n2\r\n2.5\r\nthree\r\n"
    )
    assert await edited(scene, content, "one\r\ntwo", "1") == b"\xef\xbb\xbf1\r\nthree\r\n"
    mixed = b"one\r\ntwo\nthree\n"
    assert "does not stand" in await unedited(scene, mixed, "one\ntwo", "x")
    assert await edited(scene, mixed, "two\nthree", "2\n3") == b"one\r\n2\n3\n"


@pytest.mark.requirement("files:edit-changed")
@pytest.mark.parametrize("how", ["replaced", "in place", "removed", "a link"])
def test_a_file_that_changed_since_it_was_read_keeps_the_other_writers_content(
    tmp_path: Path, how: str
) -> None:
    file = write(tmp_path / "f", "old")
    with (
        Folder(os.open(tmp_path, os.O_RDONLY), open_by_kernel) as folder,
        folder.lock(Cancellation()),
    ):
        found = folder.find_file("f")
        if how in {"replaced", "removed", "a link"}:
            file.unlink()
        if how == "a link":
            file.symlink_to("elsewhere")
        elif how != "removed":
            file.write_text("theirs")
        with pytest.raises((ToolError, OSError)):
            folder.replace("f", b"ours", Cancellation(), found)
    assert not (tmp_path / "elsewhere").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ([] if how == "removed" else ["f"])
    if how not in {"removed", "a link"}:
        assert file.read_text() == "theirs"


@pytest.mark.requirement("files:edit-changed")
def test_a_change_while_the_new_content_is_written_is_seen(tmp_path: Path) -> None:
    """The other writer comes in the last step before the rename: the call asks then
    whether anybody waits for it still.
    """

    class InterruptingCancellation(Cancellation):
        def check(self) -> None:
            if (
                threading.current_thread() is threading.main_thread()
                and (tmp_path / "f").read_text() == "old"
            ):
                (tmp_path / "f").write_text("theirs")

    write(tmp_path / "f", "old")
    with (
        Folder(os.open(tmp_path, os.O_RDONLY), open_by_kernel) as folder,
        folder.lock(Cancellation()),
        pytest.raises(ToolError, match="changed meanwhile"),
    ):
        folder.replace("f", b"ours", InterruptingCancellation(), folder.find_file("f"))
    assert (tmp_path / "f").read_text() == "theirs"
    assert [path.name for path in tmp_path.iterdir()] == ["f"]
