"""docs/pod-file.md has every key of the grammar and no other, and its examples and
defaults are true.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from claw_compile.compiler import check_pod
from claw_compile.diagnostics.diagnostic import has_errors
from claw_compile.grammar.access import AUTH_TYPES
from claw_compile.grammar.cllama import BEHAVIORS
from claw_compile.grammar.pod import DELIVERIES, MODES
from claw_compile.grammar.pod_file import (
    AGENT_KEYS,
    ORIGINAL_POD_KEYS,
    ORIGINAL_SERVICE_KEYS,
    POD_KEYS,
    PROVIDER_KEYS,
    SERVICE,
    read_pod,
)
from claw_compile.grammar.prompt import PLACEMENTS
from claw_compile.grammar.reader import Reader
from claw_compile.grammar.shapes import Key
from claw_compile.grammar.tools import SCHEMES
from claw_compile.loading.load import load
from claw_compile.parsing.node import Entry, MapNode, Source
from claw_compile.parsing.yaml_reader import read_yaml
from claw_contract.manifest import Policy
from tests.compile.worked_pods import WORKED_PODS

API = (Path(__file__).parents[1] / "cases" / "descriptors" / "api.json").read_bytes()
ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "pod-file.md").read_text(encoding="utf-8")
ORIGINAL = Path(__file__).parents[1] / "original" / "claw-pod.yml"
ROW = re.compile(r"^\| `(?P<key>[a-z-]+)` \|(?P<cells>.*)\|$", re.MULTILINE)


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def rows(title: str) -> dict[str, list[str]]:
    """Return the other cells of each row by its key."""
    return {
        row["key"]: [cell.strip() for cell in row["cells"].split("|")]
        for row in ROW.finditer(section(title))
    }


def examples(title: str) -> dict[str, str]:
    return {key: cells[-1].strip("`") for key, cells in rows(title).items()}


@pytest.mark.requirement("compile:keys-are-documented")
@pytest.mark.parametrize(
    ("title", "keys"),
    [
        ("The pod", POD_KEYS),
        ("A service that is an agent", (*SERVICE.keys[:2], *AGENT_KEYS)),
        ("A service that provides", PROVIDER_KEYS),
    ],
)
def test_a_table_has_exactly_the_keys_of_the_grammar_each_with_an_example(
    title: str, keys: tuple[Key[Any], ...]
) -> None:
    assert sorted(rows(title)) == sorted(key.name for key in keys)
    assert {
        key for key, example in examples(title).items() if not example.startswith(f"{key}: ")
    } == set()


@pytest.mark.requirement("compile:keys-are-documented")
def test_every_key_that_any_part_of_the_grammar_takes_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken: set[str] = set()
    read = Reader.keys

    def keys(self: Reader, node: MapNode, what: str, known: Collection[str]) -> dict[str, Entry]:
        taken.update(known)
        return read(self, node, what, known)

    monkeypatch.setattr(Reader, "keys", keys)
    for pod in WORKED_PODS:
        load(pod.directory / "claw-pod.yml", pod.environ)
    load(ORIGINAL, {})
    assert {"args", "principal", "dm", "cadence", "username", "file", "deny", "mode"} <= taken
    words = {*SCHEMES, *MODES, *DELIVERIES, *AUTH_TYPES, *BEHAVIORS, *PLACEMENTS} - set(SCHEMES)
    assert sorted(key for key in taken | words if f"`{key}`" not in PAGE) == []
    assert [scheme for scheme in SCHEMES if f"`{scheme}://" not in PAGE] == []


@pytest.mark.requirement("compile:keys-are-documented")
def test_keys_of_the_original_are_told_apart() -> None:
    named = set(
        re.findall(r"`([a-z.-]+)`", section("Keys of the original system").partition(":")[2])
    )
    assert named == {
        *(key.name for key in (*ORIGINAL_POD_KEYS, *ORIGINAL_SERVICE_KEYS)),
        "context.channel",
    }


@pytest.mark.requirement("compile:keys-are-documented")
def test_the_limits_have_the_defaults_of_the_contract() -> None:
    limits = {
        key.replace("-", "_"): cells[0].strip("`") for key, cells in rows("The values").items()
    }
    fields = Policy.model_fields.keys() - {"soft_deadline_ratio"}
    assert limits == {name: str(getattr(Policy(), name)) for name in fields}


@pytest.mark.requirement("compile:keys-are-documented")
def test_the_examples_are_sound_and_go_together() -> None:
    lines = [
        "x-claw:",
        *(f"  {example}" for example in examples("The pod").values()),
        "services:",
        "  one:",
        "    x-claw:",
    ]
    lines += [f"      {example}" for example in examples("A service that is an agent").values()]
    for key, example in examples("A service that provides").items():
        lines += [f"  of-{key}:", "    x-claw:", f"      {example}"]
    tree = read_yaml(Source("docs/pod-file.md", "\n".join(lines)))
    assert tree.value is not None, tree.diagnostics
    pod = read_pod("docs/pod-file.md", tree.value, {"API_TOKEN": "some-token"}.get)
    assert not has_errors(pod.diagnostics), [str(diagnostic) for diagnostic in pod.diagnostics]


@pytest.mark.requirement("compile:keys-are-documented")
def test_the_pages_example_compiles(tmp_path: Path) -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "claw-pod.yml").write_text(example, encoding="utf-8")
    (tmp_path / "api.json").write_bytes(API)
    (tmp_path / "agents" / "analyst").mkdir(parents=True)
    (tmp_path / "agents" / "analyst" / "AGENTS.md").write_text("# Contract\n", encoding="utf-8")
    result = check_pod(tmp_path / "claw-pod.yml", {"OPENAI_API_KEY": "planted-provider-key"})
    assert [str(diagnostic) for diagnostic in result.diagnostics] == []
