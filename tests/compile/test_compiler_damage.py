"""Damaged pod files: the compiler answers with diagnostics that have places, and
never with a traceback.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from claw_compile.codes import CODES
from claw_compile.compiler import check_pod
from claw_compile.diagnostics.report import as_json, as_text

DESK = Path(__file__).parents[2] / "pods" / "trading-desk"
POD = (DESK / "claw-pod.yml").read_text(encoding="utf-8")
DESCRIPTOR = (DESK / "descriptors" / "trading-api.claw-describe.json").read_text(encoding="utf-8")
ENVIRON = {
    "TRADING_API_TOKEN": "planted-trading-token",
    "CLAW_MASTER_SECRET": "planted-master-secret",
}
CHARACTERS = st.one_of(
    st.sampled_from(list("\n\t :-[]{}&*!|>'\"%@`#,?$.<\\\x00\x07\ufeff\u2028é")),
    st.characters(codec="utf-8"),
)


@st.composite
def damaged(draw: Callable[[st.SearchStrategy[object]], object], text: str) -> str:
    at = draw(st.integers(0, len(text) - 1))
    assert isinstance(at, int)
    how = draw(st.sampled_from(["change", "insert", "drop"]))
    char = str(draw(CHARACTERS))
    return text[:at] + ("" if how == "drop" else char) + text[at if how == "insert" else at + 1 :]


def judge(pod: str, descriptor: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for agent in ("analyst", "executor"):
            (directory / "agents" / agent).mkdir(parents=True)
            (directory / "agents" / agent / "AGENTS.md").write_text(
                "# Contract\n", encoding="utf-8"
            )
        (directory / "descriptors").mkdir()
        (directory / "descriptors" / "trading-api.claw-describe.json").write_text(
            descriptor, encoding="utf-8"
        )
        shutil.copytree(DESK / ".claw-discovered", directory / ".claw-discovered")
        (directory / "claw-pod.yml").write_text(pod, encoding="utf-8", newline="")
        result = check_pod(directory / "claw-pod.yml", ENVIRON)
        report = as_text(result.diagnostics) + as_json(result.diagnostics)
    assert (result.value is None) == any(diagnostic.is_error for diagnostic in result.diagnostics)
    for diagnostic in result.diagnostics:
        assert diagnostic.code.name in CODES
        assert diagnostic.span.line >= 1
        assert 1 <= diagnostic.span.column <= diagnostic.span.end_column
    assert not any(value in report for value in ENVIRON.values())


@pytest.mark.requirement("compile:no-traceback")
@settings(max_examples=300)
@given(damaged(POD))
@example(POD.replace("...", "\n..."))
def test_one_damaged_character_of_the_pod_file_gives_diagnostics_and_raises_nothing(
    pod: str,
) -> None:
    judge(pod, DESCRIPTOR)


@settings(max_examples=200)
@given(damaged(DESCRIPTOR))
def test_one_damaged_character_of_a_descriptor_gives_diagnostics_and_raises_nothing(
    descriptor: str,
) -> None:
    judge(POD, descriptor)
