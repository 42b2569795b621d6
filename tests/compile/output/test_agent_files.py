"""The pages that an agent reads about itself."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

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


@pytest.mark.requirement("compile:agent-page-names-tools-only")
def test_the_agents_own_pages_hold_no_address_and_no_token(desk: Mapping[str, bytes]) -> None:
    for agent in ("analyst", "executor"):
        page = desk[f"context/{agent}/CLAWDAPUS.md"].decode()
        assert "`trading-api__get_quote`: Get the last price of a symbol" in page
        for hidden in ("http", "/api/", "4000", "golden-"):
            assert hidden not in page
