"""read_file, write_file and list_directory."""

from __future__ import annotations

import json
import os
import tracemalloc
from pathlib import Path

import pytest

from claw_contract.toolhost_file import LimitsSection
from claw_tools.errors import ErrorCode, ToolError
from tests.tools.files.scene import OWNER, Scene, bind, link, opened, own, write

needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="the kernel refuses other users: run as root"
)


@pytest.mark.requirement("files:pages")
async def test_a_long_file_comes_in_pages_of_whole_lines_that_fit_a_result(tmp_path: Path) -> None:
    lines = [f'line {number}\t"quoted" é\r\n' for number in range(500)] + ["the last one"]
    with opened(tmp_path, LimitsSection(result_bytes=2_134)) as scene:
        write(scene.ws / "f", "".join(lines))
        offset, seen, pages = 0, "", 0
        while offset is not None:
            page = await scene.call("read_file", path="f", offset=offset)
            assert len(json.dumps(page["content"], ensure_ascii=False).encode()) <= 2_002
            assert page.get("truncated", False) == ("next_offset" in page)
            offset, seen, pages = page.get("next_offset"), seen + page["content"], pages + 1
        assert seen == "".join(lines)
        assert pages > 5


@pytest.mark.requirement("files:pages")
async def test_offset_and_limit_count_lines_and_an_offset_past_the_end_says_how_many_there_are(
    kernel_scene: Scene,
) -> None:
    scene = kernel_scene
    write(scene.ws / "f", "0\n1\n2\n3")
    assert await scene.call("read_file", path="f", offset=1, limit=2) == {
        "content": "1\n2\n",
        "next_offset": 3,
    }
    assert await scene.call("read_file", path="f", offset=3, limit=9) == {"content": "3"}
    assert await scene.call("read_file", path="f", offset=4) == {"content": ""}
    assert await scene.call("read_file", path="f", limit=4) == {"content": "0\n1\n2\n3"}
    assert await scene.call("read_file", path="f", limit=2.0) == {
        "content": "0\n1\n",
        "next_offset": 2,
    }
    with pytest.raises(ToolError, match="has 4 lines") as refusal:
        await scene.call("read_file", path="f", offset=5)
    assert refusal.value.code is ErrorCode.INVALID_ARGS
    for wrong in (
        {"offset": -1},
        {"limit": 0},
        {"offset": 1.5},
        {"limit": "2"},
        {"offset": 1e300},
        {"encoding": "x"},
    ):
        assert await scene.refused("read_file", path="f", **wrong) is ErrorCode.INVALID_ARGS, wrong


@pytest.mark.requirement("files:huge")
async def test_a_sparse_file_of_1_gib_is_read_in_bounded_memory(kernel_scene: Scene) -> None:
    scene = kernel_scene
    head = "text\n" * 2_000
    file = write(scene.ws / "huge", head)
    os.truncate(file, 1 << 30)
    tracemalloc.start()
    page = await scene.call("read_file", path="huge")
    rest = await scene.call("read_file", path="huge", offset=page["next_offset"] - 1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert page["content"].startswith(head)
    assert (page["truncated"], page["original_bytes"]) == (True, 1 << 30)
    assert len(json.dumps(rest)) < 100_000
    assert peak < 20 << 20
    assert (
        await scene.refused("edit_file", path="huge", old_text="a", new_text="b")
        is ErrorCode.EXECUTION_FAILED
    )


@pytest.mark.requirement("files:huge")
async def test_of_a_line_that_fits_no_page_there_is_the_beginning_in_whole_characters(
    tmp_path: Path,
) -> None:
    with opened(tmp_path, LimitsSection().model_copy(update={"result_bytes": 107})) as scene:
        write(scene.ws / "f", "é" * 200 + "\nnext\n")
        page = await scene.call("read_file", path="f")
        assert set(page.pop("content")) == {"é"}
        assert page == {"truncated": True, "original_bytes": 406, "next_offset": 1}
        assert await scene.call("read_file", path="f", offset=1) == {"content": "next\n"}


@pytest.mark.requirement("files:binary")
async def test_a_binary_file_is_told_and_what_is_not_utf8_is_shown_and_said(
    kernel_scene: Scene,
) -> None:
    scene = kernel_scene
    write(scene.ws / "binary", b"\x7fELF\0\0" + b"x" * 100)
    write(scene.ws / "latin", b"caf\xe9\n")
    assert await scene.refused("read_file", path="binary") is ErrorCode.EXECUTION_FAILED
    assert await scene.call("read_file", path="latin") == {
        "content": "caf\ufffd\n",
        "is_utf8": False,
    }


@pytest.mark.requirement("files:write-limit")
async def test_too_much_content_and_half_characters_are_refused_before_anything_is_made(
    kernel_scene: Scene,
) -> None:
    scene = kernel_scene
    for content in ("x" * ((10 << 20) + 1), "é" * ((5 << 20) + 1), "\udfff"):
        assert (
            await scene.refused("write_file", path="new/f", content=content)
            is ErrorCode.INVALID_ARGS
        )
    assert list(scene.ws.iterdir()) == []


@pytest.mark.requirement("files:mode")
async def test_a_file_keeps_its_mode_without_setuid(kernel_scene: Scene) -> None:
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


@needs_root
@pytest.mark.requirement("files:owner")
async def test_the_tools_of_a_host_that_is_root_have_the_rights_of_the_workspaces_owner(
    kernel_scene: Scene,
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


@pytest.mark.requirement("files:list")
async def test_a_listing_is_sorted_and_tells_nothing_of_what_a_link_leads_to(scene: Scene) -> None:
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
    kernel_scene: Scene,
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


PROTECTED = [
    *(
        ".git/hooks/pre-commit",
        "sub/.git/hooks/x/y",
        ".git/config",
        ".bashrc",
        "sub/.mcp.json",
        ".claude/settings.json",
    ),
    *(
        ".git/./hooks/x",
        "sub/../.git/hooks/x",
        ".git//config",
        "hooks/x",
        "hooks/deep/x",
        ".vscode/tasks.json",
    ),
    *(
        ".GIT/hooks/x",
        ".git/HOOKS/x",
        ".Git/Config",
        ".BASHRC",
        "new/.g\u200dit/hooks/x",
        ".bashrc\ufe0f",
        ".\uff42ashrc",
        ".g\u0130t/config",
    ),
    *(".git", "new/.git", "new/.claude", "new/.git/hooks"),
]


@pytest.mark.requirement("files:protected", "files:protected-place")
@pytest.mark.parametrize("tool", ["write_file", "edit_file"])
async def test_what_other_programs_run_is_not_written_however_it_is_reached(
    kernel_scene: Scene, tool: str
) -> None:
    scene = kernel_scene
    write(scene.ws / ".git" / "hooks" / "pre-commit", "old")
    write(scene.ws / ".git" / "config", "old")
    write(scene.ws / ".bashrc", "old")
    (scene.ws / "sub").mkdir()
    link(scene.ws / "hooks", ".git/hooks")
    link(scene.ws / "sub" / ".git", "../.git")
    args = {"content": "x"} if tool == "write_file" else {"old_text": "old", "new_text": "new"}
    before = sorted(str(path) for path in scene.ws.rglob("*"))
    expected = {ErrorCode.PERMISSION_DENIED} | (
        {ErrorCode.FILE_NOT_FOUND} if tool == "edit_file" else set()
    )
    for path in PROTECTED:
        assert await scene.refused(tool, path=path, **args) in expected, path
    assert sorted(str(path) for path in scene.ws.rglob("*")) == before
    assert (scene.ws / ".git" / "hooks" / "pre-commit").read_text() == "old"
    assert await scene.refused(tool, path="hooks/pre-commit", **args) is ErrorCode.PERMISSION_DENIED
    assert await scene.refused(tool, path=".bashrc", **args) is ErrorCode.PERMISSION_DENIED


@pytest.mark.requirement("files:protected-place")
async def test_a_folder_to_which_a_protected_name_links_is_protected_too(
    kernel_scene: Scene,
) -> None:
    scene = kernel_scene
    write(scene.ws / "store" / "hooks" / "x", "old")
    link(scene.ws / ".git", "store")
    for path in ("store/hooks/x", "store/config", ".git/config"):
        assert (
            await scene.refused("write_file", path=path, content="x") is ErrorCode.PERMISSION_DENIED
        ), path
    await scene.call("write_file", path="store/README", content="x")


@pytest.mark.requirement("files:protected-list")
async def test_the_configuration_replaces_the_list_and_other_names_are_free(tmp_path: Path) -> None:
    with opened(tmp_path, protected=("ci/", "Makefile", "conf/secret.yml")) as scene:
        for path in ("ci/run", "sub/ci/deep/run", "sub/Makefile", "makefile", "a/conf/secret.yml"):
            assert (
                await scene.refused("write_file", path=path, content="x")
                is ErrorCode.PERMISSION_DENIED
            ), path
        assert (
            await scene.refused("write_file", path="sub/ci", content="x")
            is ErrorCode.PERMISSION_DENIED
        )
        for path in (
            ".bashrc",
            "cia/run",
            "Makefile.in",
            "sub/xci",
            "Makefile.d/x",
            "b/conf",
            "conf/other",
            "secret.yml",
        ):
            await scene.call("write_file", path=path, content="x")
    with opened(tmp_path / "other") as scene:
        for path in (
            ".github/x",
            ".gitignore",
            "git/config",
            "config",
            "hooks/x",
            ".git/description",
        ):
            await scene.call("write_file", path=path, content="x")
