"""A pod whose agent's answers stream live, for the real runners."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from starlette.responses import JSONResponse

from tests.peers import Provider
from tests.proxy.pod import Pod, pod_at
from tests.sdks.live.model import LiveModel

PLANTED = "planted-in-a-result"
_PLAY = {"type": "object", "properties": {"play": {"type": "string"}}, "required": ["play"]}


@dataclass
class LivePod:
    """A running pod with the model of its provider."""

    pod: Pod
    model: LiveModel
    other: Pod
    """The same pod behind a proxy of its own, which has nothing of the first one's state."""

    def traded(self, number: int) -> int:
        """Return how often the write of a play ran."""
        plays = [
            json.loads(request.body)["play"]
            for request in self.pod.service.received
            if request.path == "/trade"
        ]
        return plays.count(str(number))


@pytest.fixture(scope="package")
def live_pod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LivePod]:
    model = LiveModel()
    homes = tmp_path_factory.mktemp("live"), tmp_path_factory.mktemp("other")
    others = Provider(model=replace(model, remembers_thoughts=False))
    with pod_at(homes[0], Provider(model=model)) as pod, pod_at(homes[1], others) as other:
        for each in (pod, other):
            each.service.routes = {
                ("GET", "/balance"): JSONResponse({"usd": PLANTED}),
                ("POST", "/trade"): JSONResponse({"traded": PLANTED}),
            }
            each.environment = {"CLLAMA_EGRESS": "deny"}
            trade = each.tool("trade", "POST", schema=_PLAY)
            each.agent("analyst", each.tool("balance"), trade, stream="live")
            each.start()
        yield LivePod(pod, model, other)
