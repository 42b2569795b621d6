"""Each worked pod compiles to the bytes of its ``expected/`` directory, whatever
the order of its YAML.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from claw_compile.output.compose.compose_file import COMPOSE_FILE
from claw_compile.output.emit import digest
from claw_contract.manifest import read_manifest
from claw_contract.metadata import Metadata
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


@pytest.mark.requirement("compile:output-loads")
def test_what_is_written_loads_as_the_contract_reads_it(desk: Mapping[str, bytes]) -> None:
    manifest, left_out = read_manifest(desk["context/executor/tools.json"])
    assert left_out == ()
    assert [tool.effect for tool in manifest.tools] == [
        "read",
        "read",
        "read",
        "write",
        "read",
        "write",
    ]
    metadata = Metadata.model_validate_json(desk["context/executor/metadata.json"])
    assert metadata.token is not None
    assert metadata.admits("executor", metadata.token.reveal().partition(":")[2])
    assert not metadata.admits("analyst", metadata.token.reveal().partition(":")[2])


@pytest.mark.requirement("compile:digest")
def test_the_digest_is_of_the_agents_files_without_itself(desk: Mapping[str, bytes]) -> None:
    prefix = "context/analyst/"
    files = {
        name.removeprefix(prefix): data for name, data in desk.items() if name.startswith(prefix)
    }
    metadata = json.loads(files["metadata.json"])
    stated = metadata.pop("digest")
    files["metadata.json"] = (json.dumps(metadata, indent=2, ensure_ascii=False) + "\n").encode()
    assert digest(files) == stated


@pytest.mark.requirement("compile:agent-page-names-tools-only")
def test_the_agents_own_pages_hold_no_address_and_no_token(desk: Mapping[str, bytes]) -> None:
    for agent in ("analyst", "executor"):
        page = desk[f"context/{agent}/CLAWDAPUS.md"].decode()
        assert "`trading-api__get_quote`: Get the last price of a symbol" in page
        for hidden in ("http", "/api/", "4000", "golden-"):
            assert hidden not in page


@pytest.mark.requirement("compile:deny-by-default")
def test_the_analyst_may_read_and_write_the_journal_only(desk: Mapping[str, bytes]) -> None:
    manifest, _ = read_manifest(desk["context/analyst/tools.json"])
    assert {tool.name: tool.effect for tool in manifest.tools} == {
        "journal.add_entry": "write",
        "journal.find_entries": "read",
        "trading-api.get_market_context": "read",
        "trading-api.get_quote": "read",
    }
