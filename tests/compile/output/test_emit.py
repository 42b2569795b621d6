"""The files of an agent, as they are emitted."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from claw_compile.output.emit import digest
from claw_contract.manifest import read_manifest
from claw_contract.metadata import Metadata
from tests.compile.worked_pods import WORKED_PODS, WorkedPod


@pytest.fixture(params=WORKED_PODS, ids=lambda pod: pod.name)
def pod(request: pytest.FixtureRequest) -> WorkedPod:
    pod: WorkedPod = request.param
    return pod


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, bytes]:
    """Return the compiled files of the trading desk."""
    (pod,) = (each for each in WORKED_PODS if each.name == "trading-desk")
    return pod.compiled(pod.directory / "claw-pod.yml", tmp_path_factory.mktemp("desk"))


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
