"""Files that other programs run or obey are not written."""

from __future__ import annotations

from pathlib import Path

import pytest

from claw_tools.errors import ErrorCode
from tests.tools.files.guarded_workspace import GuardedWorkspace, link, opened, registered, write
from tests.tools.files.mounts import mounted

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
    kernel_scene: GuardedWorkspace, tool: str
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
    kernel_scene: GuardedWorkspace,
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
        scene = GuardedWorkspace(tmp_path, workspace, registered(workspace))
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
