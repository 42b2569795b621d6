"""The file claw.lock, sound and damaged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claw_compile.codes import CODES
from claw_compile.compiler import check_pod, compile_pod
from claw_compile.descriptors.lock import LockContent
from claw_compile.lock_update import rotate_pod
from tests.compile.locked_pod import (
    ENVIRON,
    QUOTE,
    TRADE,
    codes,
    describe,
    locked,
)
from tests.search_size import scale_examples


@pytest.mark.requirement("compile:lock")
def test_what_is_locked_compiles_and_locks_to_the_same_bytes_again(tmp_path: Path) -> None:
    pod = describe(tmp_path, QUOTE, TRADE)
    assert locked(pod).added == ("api",)
    written = (tmp_path / "claw.lock").read_bytes()
    assert codes(compile_pod(pod, ENVIRON).diagnostics) == []
    assert locked(pod).added == ()
    assert (tmp_path / "claw.lock").read_bytes() == written
    assert list(json.loads(written)["services"]["api"]["tools"]) == ["quote", "trade"]


@st.composite
def damaged(draw: Callable[[st.SearchStrategy[Any]], Any], text: str) -> str:
    at = draw(st.integers(0, len(text) - 1))
    char = draw(st.sampled_from(list('\n :-[]{}"0aé\x00\\,.9')) | st.characters(codec="utf-8"))
    return text[:at] + draw(st.sampled_from(["", char])) + text[at + draw(st.integers(0, 1)) :]


@pytest.mark.long
@pytest.mark.requirement("compile:no-traceback")
def test_one_damaged_character_of_a_lock_is_told_or_does_not_matter(tmp_path: Path) -> None:
    pod = describe(tmp_path, QUOTE, TRADE)
    rotate_pod(pod, ENVIRON, "one")
    locked(pod)
    lock = tmp_path / "claw.lock"
    sound = lock.read_text(encoding="utf-8")
    plain = LockContent.model_validate_json(sound)

    @settings(max_examples=scale_examples(800), deadline=None)
    @given(damaged(sound))
    def judge(text: str) -> None:
        lock.write_text(text, encoding="utf-8", newline="")
        result = check_pod(pod, ENVIRON)
        assert all(diagnostic.code.name in CODES for diagnostic in result.diagnostics)
        if result.value is not None:
            # If the pod still compiles, the lock has the same entries for every tool.
            content = LockContent.model_validate_json(text)
            assert (
                content.services is None
                or content.services["api"].tools == plain.services["api"].tools
            )  # type: ignore[index]

    judge()
