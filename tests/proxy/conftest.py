from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.peers import Provider, Service
from tests.proxy.pod import Pod


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[Pod]:
    """A pod whose proxy the test starts when its files are there; nothing of it outlives the test."""
    provider, service = Provider(), Service()
    provider.start()
    service.start()
    made = Pod(tmp_path, provider, service)
    yield made
    made.stop()
    provider.stop()
    service.stop()


@pytest.fixture
def running(pod: Pod) -> Pod:
    """The proxy runs, with one agent ``analyst`` that may read the balance and trade."""
    trade = pod.tool("trade", "POST", schema={"type": "object", "properties": {"symbol": {"type": "string"}}})
    pod.agent("analyst", pod.tool("balance"), trade)
    pod.start()
    return pod


@pytest.fixture(scope="module")
def identified(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pod]:
    """A running pod for tests that send nothing upstream: one for the whole module."""
    provider, service = Provider(), Service()
    provider.start()
    service.start()
    made = Pod(tmp_path_factory.mktemp("pod"), provider, service)
    made.agent("analyst", made.tool("balance"))
    made.start()
    yield made
    made.stop()
    provider.stop()
    service.stop()
