"""Each worked pod compiles to the bytes of its ``expected/`` directory, whatever
the order of its YAML.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from claw_compile.output.compose.compose_file import COMPOSE_FILE
from claw_contract.manifest import read_manifest
from tests.compile.worked_pods import PODS, WORKED_PODS, WorkedPod

UNORDERED = {"tools", "tools-defaults", "allow", "deny"}
"""Lists under x-claw whose order means nothing.

In others it does: surfaces, fallbacks, and all of Compose's own.
"""


HOW = "python -m tests.compile.worked_pods writes it anew"


@pytest.fixture(params=WORKED_PODS, ids=lambda pod: pod.name)
def pod(request: pytest.FixtureRequest) -> WorkedPod:
    pod: WorkedPod = request.param
    return pod


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, bytes]:
    """Return the compiled files of the trading desk."""
    (pod,) = (each for each in WORKED_PODS if each.name == "trading-desk")
    return pod.compiled(pod.directory / "claw-pod.yml", tmp_path_factory.mktemp("desk"))


def test_every_pod_of_the_repository_is_one_of_them() -> None:
    assert sorted(path.parent.name for path in PODS.glob("*/claw-pod.yml")) == [
        each.name for each in WORKED_PODS
    ]


@pytest.mark.requirement("compile:golden-pod", "compile:same-input-same-bytes")
def test_a_worked_pod_compiles_to_its_golden_output(pod: WorkedPod, tmp_path: Path) -> None:
    assert pod.compiled(pod.directory / "claw-pod.yml", tmp_path / "out") == pod.expected(), HOW


def reversed_maps(node: Any, key: str = "") -> Any:
    if isinstance(node, dict):
        return {name: reversed_maps(node[name], name) for name in reversed(list(node))}
    if isinstance(node, list):
        return [reversed_maps(item) for item in (reversed(node) if key in UNORDERED else node)]
    return node


@pytest.mark.requirement("compile:order-of-yaml-is-no-matter")
def test_the_order_of_mappings_and_grants_changes_no_authority(
    pod: WorkedPod, tmp_path: Path
) -> None:
    file = pod.copy(tmp_path)
    written = yaml.safe_load(file.read_text(encoding="utf-8"))
    shuffled = yaml.safe_dump(reversed_maps(written), sort_keys=False, width=1000)
    assert list(yaml.safe_load(shuffled)) != list(written)
    file.write_text(shuffled, encoding="utf-8")
    compiled, expected = dict(pod.compiled(file, tmp_path / "out")), dict(pod.expected())
    # The Compose file keeps the user's spelling, and PyYAML quotes values differently: compare the
    # data.
    one, other = (yaml.safe_load(files.pop(COMPOSE_FILE)) for files in (compiled, expected))
    assert one == other
    assert compiled == expected


def test_another_place_on_the_disk_changes_no_byte(pod: WorkedPod, tmp_path: Path) -> None:
    assert pod.compiled(pod.copy(tmp_path / "elsewhere"), tmp_path / "one") == pod.expected()


@pytest.mark.requirement("compile:deny-by-default")
def test_the_analyst_may_read_and_write_the_journal_only(desk: Mapping[str, bytes]) -> None:
    manifest, _ = read_manifest(desk["context/analyst/tools.json"])
    assert {tool.name: tool.effect for tool in manifest.tools} == {
        "journal.add_entry": "write",
        "journal.find_entries": "read",
        "trading-api.get_market_context": "read",
        "trading-api.get_quote": "read",
    }
