"""memory_read and memory_write."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from claw_contract.toolhost_file import LimitsSection
from claw_tools.errors import ErrorCode
from tests.tools.files.guarded_workspace import SECRET, GuardedWorkspace, link, opened, write

ROOT = Path(__file__).parents[3]
WRITER = """
import asyncio, sys
from pathlib import Path
from claw_tools.files.memory import MemoryWrite
from claw_tools.files.workspace import Workspace
from claw_contract.toolhost_file import LimitsSection

async def main():
    tool = MemoryWrite(Workspace.open(Path(sys.argv[1])), LimitsSection())
    await asyncio.gather(*(tool.execute({"content": f"{sys.argv[2]}-{number}"}) for number in range(25)))

asyncio.run(main())
"""


@pytest.mark.requirement("memory:append")
async def test_notes_are_added_as_paragraphs_or_written_over(scene: GuardedWorkspace) -> None:
    assert await scene.call("memory_read") == {"content": ""}
    await scene.call("memory_write", content="one")
    await scene.call("memory_write", content="two\nlines\n", mode="append")
    assert await scene.call("memory_read", query=" ") == {"content": "one\n\ntwo\nlines\n"}
    await scene.call("memory_write", content="three", mode="overwrite")
    assert (scene.ws / "MEMORY.md").read_text() == "three"
    await scene.call("memory_write", content="four")
    assert (await scene.call("memory_read"))["content"] == "three\n\nfour\n"
    assert await scene.refused("memory_write", content="x", mode="apend") is ErrorCode.INVALID_ARGS


@pytest.mark.requirement("memory:search")
async def test_a_query_finds_the_first_paragraphs_with_all_its_words(
    scene: GuardedWorkspace,
) -> None:
    paragraphs = [f"Straße {number}\nis LONG." for number in range(30)] + [
        "A short STRASSE.",
        "long only",
    ]
    await scene.call("memory_write", content="\n \n\n".join(paragraphs))
    found = await scene.call("memory_read", query="long strasse")
    assert found == {"matches": paragraphs[:20], "count": 30}
    assert await scene.call("memory_read", query="short") == {
        "matches": ["A short STRASSE."],
        "count": 1,
    }
    assert await scene.call("memory_read", query="nowhere") == {"matches": [], "count": 0}
    assert await scene.refused("memory_read", query="s " * 501) is ErrorCode.INVALID_ARGS


@pytest.mark.requirement("memory:concurrent")
async def test_of_fifty_concurrent_appends_each_is_there_once(scene: GuardedWorkspace) -> None:
    await asyncio.gather(
        *(scene.call("memory_write", content=f"note-{number}") for number in range(50))
    )
    notes = (await scene.call("memory_read"))["content"].split("\n\n")
    assert sorted(note.strip() for note in notes) == sorted(
        f"note-{number}" for number in range(50)
    )


@pytest.mark.requirement("memory:concurrent", "files:edit-concurrent")
def test_of_appends_by_two_processes_each_is_there_once(kernel_scene: GuardedWorkspace) -> None:
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", WRITER, str(kernel_scene.ws)]
    writers = [subprocess.Popen([*command, name], env=environ) for name in ("a", "b")]
    assert [writer.wait() for writer in writers] == [0, 0]
    notes = (kernel_scene.ws / "MEMORY.md").read_text().split("\n\n")
    assert sorted(note.strip() for note in notes) == sorted(
        f"{name}-{number}" for name in "ab" for number in range(25)
    )


@pytest.mark.requirement("memory:full")
async def test_what_would_be_too_much_is_refused_whole(tmp_path: Path) -> None:
    with opened(tmp_path, LimitsSection().model_copy(update={"memory_bytes": 1_000})) as scene:
        await scene.call("memory_write", content="x" * 990)
        for mode, size in (("append", 20), ("overwrite", 1_001)):
            assert (
                await scene.refused("memory_write", content="y" * size, mode=mode)
                is ErrorCode.MEMORY_FULL
            )
        assert (scene.ws / "MEMORY.md").read_text() == "x" * 990 + "\n"
        await scene.call("memory_write", content="y" * 1_000, mode="overwrite")
        write(scene.ws / "MEMORY.md", "z" * 5_000)
        assert await scene.call("memory_read") == {"content": "z" * 1_000, "truncated": True}
        assert await scene.refused("memory_write", content="y") is ErrorCode.MEMORY_FULL
    assert LimitsSection().memory_bytes == 256 << 10


@pytest.mark.requirement("memory:link")
@pytest.mark.parametrize("target", ["../out/s", "../out/new", "/proc/self/environ"])
async def test_a_memory_that_leads_out_is_neither_read_nor_written(
    scene: GuardedWorkspace, target: str
) -> None:
    link(scene.ws / "MEMORY.md", target)
    before = scene.outside()
    assert await scene.refused("memory_read") is ErrorCode.INVALID_PATH
    for mode in ("append", "overwrite"):
        assert await scene.refused("memory_write", content="x", mode=mode) is ErrorCode.INVALID_PATH
    assert scene.outside() == before


@pytest.mark.requirement("memory:principals")
async def test_each_workspace_has_notes_of_its_own(tmp_path: Path) -> None:
    with opened(tmp_path / "a") as one, opened(tmp_path / "b") as other:
        await one.call("memory_write", content=SECRET)
        assert await other.call("memory_read", query="secret") == {"matches": [], "count": 0}
        assert (
            await other.refused("read_file", path="../../a/ws/MEMORY.md") is ErrorCode.INVALID_PATH
        )
