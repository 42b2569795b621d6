"""docs/pod-file.md tells of every key, and its example compiles."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from claw_compile.compiler import check_pod
from claw_compile.grammar.read_original import ORIGINAL_POD_KEYS, ORIGINAL_SERVICE_KEYS
from claw_compile.grammar.read_pod import POD_KEYS
from claw_compile.grammar.read_service import SERVICE_KEYS

PAGE = (Path(__file__).parents[2] / "docs" / "pod-file.md").read_text(encoding="utf-8")
API = (Path(__file__).parent / "cases" / "descriptors" / "api.json").read_bytes()


@pytest.mark.requirement("compile:keys-are-documented")
def test_every_key_of_the_grammar_is_on_its_page() -> None:
    told = set(re.findall(r"`([a-z-]+)`", PAGE))
    known = {*POD_KEYS, *SERVICE_KEYS, *ORIGINAL_POD_KEYS, *ORIGINAL_SERVICE_KEYS}
    assert sorted(known - told) == []


@pytest.mark.requirement("compile:keys-are-documented")
def test_the_pages_example_compiles(tmp_path: Path) -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "claw-pod.yml").write_text(example, encoding="utf-8")
    (tmp_path / "api.json").write_bytes(API)
    (tmp_path / "agents" / "analyst").mkdir(parents=True)
    (tmp_path / "agents" / "analyst" / "AGENTS.md").write_text("# Contract\n", encoding="utf-8")
    result = check_pod(tmp_path / "claw-pod.yml", {"OPENAI_API_KEY": "planted-provider-key"})
    assert [str(found) for found in result.diagnostics] == []
