"""The README's first screen: its grant compiles to what it names, and its two commands come first.

That the demo prints the transcript is tested with the demo, in tests/pods.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from claw_compile.compiler import compile_pod
from tests.docs.pages import ROOT, blocks
from tests.docs.readme import hidden_calls, seen_answer

README = ROOT / "README.md"
DESK = ROOT / "pods" / "trading-desk"
ENVIRONMENT = {"CLAW_MASTER_SECRET": "the-master-secret-of-these-tests", "TRADING_API_TOKEN": "t"}


@pytest.fixture
def pod(tmp_path: Path) -> Path:
    """Return the trading desk, with the agent of the README in place of its own."""
    for name in ("descriptors", ".claw-discovered"):
        shutil.copytree(DESK / name, tmp_path / name)
    (tmp_path / "AGENTS.md").write_text("Trade.\n", encoding="utf-8")

    described: dict[str, Any] = yaml.safe_load((DESK / "claw-pod.yml").read_bytes())
    del described["services"]["analyst"], described["services"]["executor"]
    (grant,) = blocks(README, "grant")
    described["services"] |= yaml.safe_load(grant.text)["services"]

    file = tmp_path / "claw-pod.yml"
    file.write_text(yaml.safe_dump(described), encoding="utf-8")
    return file


@pytest.mark.requirement("docs:first-screen")
def test_the_grant_compiles_to_the_tools_that_the_transcript_calls(pod: Path) -> None:
    compiled = compile_pod(pod, ENVIRONMENT)
    assert compiled.value is not None, [str(found) for found in compiled.diagnostics]
    written = (pod.parent / ".claw-runtime/context/executor/tools.json").read_bytes()
    granted = [tool["name"] for tool in json.loads(written)["tools"]]

    called = [re.split(r"[ :]+", call)[2] for call in hidden_calls()]
    assert called == granted
    assert "trading-api.cancel_order" not in granted
    assert "`cancel_order`, which was not granted" in README.read_text(encoding="utf-8")


@pytest.mark.requirement("docs:first-screen")
def test_the_first_screen_is_a_grant_of_eight_lines_and_a_transcript_of_six() -> None:
    assert [len(blocks(README, word)[0].text.splitlines()) for word in ("grant", "transcript")] == [
        8,
        6,
    ]
    assert seen_answer()
    commands = re.findall(
        r"^ {4}(make \w+)|^```sh", README.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert commands[:2] == ["make demo", "make test"]


@pytest.mark.requirement("docs:where")
def test_a_reader_finds_who_decides_about_a_native_call_before_a_managed_one() -> None:
    assert "(ARCHITECTURE.md#where-is-)" in README.read_text(encoding="utf-8")
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    (row,) = [line for line in page.splitlines() if "a native call before a managed one" in line]
    named = re.findall(r"`([^`]+)`", row)
    assert named[0] == "claw_mediate/core/judge.py"
    judge = (ROOT / named[0]).read_text(encoding="utf-8")
    assert "a native call before one of ours" in judge

    tests = "\n".join(file.read_text(encoding="utf-8") for file in ROOT.glob("tests/**/test_*.py"))
    assert f"def {named[1]}(" in tests
    assert f'("{named[2]}")\n' in tests
