"""A pod whose agent's answers stream live, for the real runners."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

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
    with pod_at(tmp_path_factory.mktemp("live"), Provider(model=model)) as pod:
        pod.service.routes = {
            ("GET", "/balance"): JSONResponse({"usd": PLANTED}),
            ("POST", "/trade"): JSONResponse({"traded": PLANTED}),
        }
        pod.environment = {"CLLAMA_EGRESS": "deny"}
        pod.agent(
            "analyst", pod.tool("balance"), pod.tool("trade", "POST", schema=_PLAY), stream="live"
        )
        pod.start()
        yield LivePod(pod, model)
