"""read_file: pages of whole lines, in bounded memory."""

from __future__ import annotations

import json
import os
import tracemalloc
from pathlib import Path

import pytest

from claw_contract.toolhost_file import LimitsSection
from claw_tools.errors import ErrorCode, ToolError
from tests.tools.files.guarded_workspace import GuardedWorkspace, opened, write


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
    kernel_scene: GuardedWorkspace,
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
async def test_a_sparse_file_of_1_gib_is_read_in_bounded_memory(
    kernel_scene: GuardedWorkspace,
) -> None:
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
    kernel_scene: GuardedWorkspace,
) -> None:
    scene = kernel_scene
    write(scene.ws / "binary", b"\x7fELF\0\0" + b"x" * 100)
    write(scene.ws / "latin", b"caf\xe9\n")
    assert await scene.refused("read_file", path="binary") is ErrorCode.EXECUTION_FAILED
    assert await scene.call("read_file", path="latin") == {
        "content": "caf\ufffd\n",
        "is_utf8": False,
    }
