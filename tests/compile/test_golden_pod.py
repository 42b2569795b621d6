"""The trading desk compiles to the bytes of its ``expected/`` directory, whatever the order of its YAML."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from claw_compile.compiler import compile_pod
from claw_compile.output.emit import digest
from claw_contract.manifest import read_manifest
from claw_contract.metadata import Metadata

DESK = Path(__file__).parents[2] / "pods" / "trading-desk"
ENVIRON = {"CLAW_MASTER_SECRET": "golden-pod-secret-not-for-use", "TRADING_API_TOKEN": "golden-trading-token"}


def files_below(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def compiled(pod_file: Path, output: Path) -> dict[str, bytes]:
    result = compile_pod(pod_file, ENVIRON, output)
    assert [found.code.name for found in result.diagnostics] == ["write-granted-by-all"]
    return files_below(output / ".tree")


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """A copy of the pod's sources, to be changed."""
    for part in ("descriptors", "agents"):
        shutil.copytree(DESK / part, tmp_path / "desk" / part)
    shutil.copy(DESK / "claw-pod.yml", tmp_path / "desk")
    return tmp_path / "desk"


@pytest.mark.requirement("compile:golden-pod", "compile:same-input-same-bytes")
def test_the_trading_desk_compiles_to_its_golden_output(tmp_path: Path) -> None:
    assert compiled(DESK / "claw-pod.yml", tmp_path / "out") == files_below(DESK / "expected")


def reversed_maps(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: reversed_maps(node[key]) for key in reversed(list(node))}
    if isinstance(node, list):
        # Grants and names have no order of their own; the rest of these lists has one entry.
        return [reversed_maps(item) for item in reversed(node)]
    return node


@pytest.mark.requirement("compile:order-of-yaml-is-no-matter")
def test_the_order_of_mappings_and_grants_changes_no_byte(desk: Path, tmp_path: Path) -> None:
    written = yaml.safe_load((desk / "claw-pod.yml").read_text(encoding="utf-8"))
    shuffled = yaml.safe_dump(reversed_maps(written), sort_keys=False)
    assert list(yaml.safe_load(shuffled)) != list(written)
    (desk / "claw-pod.yml").write_text(shuffled, encoding="utf-8")
    assert compiled(desk / "claw-pod.yml", tmp_path / "out") == files_below(DESK / "expected")


def test_another_place_on_the_disk_changes_no_byte(desk: Path, tmp_path: Path) -> None:
    assert compiled(desk / "claw-pod.yml", tmp_path / "one") == compiled(DESK / "claw-pod.yml", tmp_path / "two")


@pytest.mark.requirement("compile:output-loads")
def test_what_is_written_loads_as_the_contract_reads_it(tmp_path: Path) -> None:
    tree = compiled(DESK / "claw-pod.yml", tmp_path / "out")
    manifest, left_out = read_manifest(tree["context/executor/tools.json"])
    assert left_out == ()
    assert [tool.effect for tool in manifest.tools] == ["read", "read", "write", "read", "write"]
    metadata = Metadata.model_validate_json(tree["context/executor/metadata.json"])
    assert metadata.token is not None
    assert metadata.admits("executor", metadata.token.reveal().partition(":")[2])
    assert not metadata.admits("analyst", metadata.token.reveal().partition(":")[2])


@pytest.mark.requirement("compile:digest")
def test_the_digest_is_of_the_agents_files_without_itself(tmp_path: Path) -> None:
    tree = compiled(DESK / "claw-pod.yml", tmp_path / "out")
    prefix = "context/analyst/"
    files = {name.removeprefix(prefix): data for name, data in tree.items() if name.startswith(prefix)}
    metadata = json.loads(files["metadata.json"])
    stated = metadata.pop("digest")
    files["metadata.json"] = (json.dumps(metadata, indent=2, ensure_ascii=False) + "\n").encode()
    assert digest(files) == stated


@pytest.mark.requirement("compile:agent-page-names-tools-only")
def test_the_agents_own_pages_hold_no_address_and_no_token(tmp_path: Path) -> None:
    tree = compiled(DESK / "claw-pod.yml", tmp_path / "out")
    for agent in ("analyst", "executor"):
        page = tree[f"context/{agent}/CLAWDAPUS.md"].decode()
        assert "`trading-api__get_quote`: Get the last price of a symbol" in page
        for hidden in ("http", "/api/", "4000", *ENVIRON.values()):
            assert hidden not in page


@pytest.mark.requirement("compile:deny-by-default")
def test_the_analyst_may_read_and_nothing_else(tmp_path: Path) -> None:
    manifest, _ = read_manifest(compiled(DESK / "claw-pod.yml", tmp_path / "out")["context/analyst/tools.json"])
    assert {tool.name: tool.effect for tool in manifest.tools} == {
        "trading-api.get_market_context": "read",
        "trading-api.get_quote": "read",
    }
