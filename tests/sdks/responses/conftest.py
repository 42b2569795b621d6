from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.responses import JSONResponse

from tests.once import make_once
from tests.peers import Provider
from tests.proxy.pod import pod_at
from tests.sdks.responses.model import CaseModel
from tests.sdks.responses.plays import PLANTED, Metronome, Performance, ResponsesPod

_PLAY = {"type": "object", "properties": {"play": {"type": "string"}}, "required": ["play"]}


@pytest.fixture(scope="package")
def responses_pod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ResponsesPod]:
    """Yield a running pod. Streams get events from the first keepalive on."""
    model, metronome = CaseModel(), Metronome()
    with pod_at(tmp_path_factory.mktemp("responses"), Provider(model=model)) as pod:
        pod.service.routes = {
            ("GET", "/balance"): JSONResponse({"usd": PLANTED}),
            ("GET", "/wait"): metronome,
            ("POST", "/trade"): JSONResponse({"traded": PLANTED}),
        }
        pod.environment = {
            "CLLAMA_KEEPALIVE_RESPONSES": "native",
            "CLLAMA_KEEPALIVE_MS": "100",
            "CLLAMA_EGRESS": "deny",
        }
        (pod.home / "runner").mkdir()
        pod.agent(
            "analyst",
            pod.tool("balance"),
            pod.tool("wait", schema=_PLAY),
            pod.tool("trade", "POST", schema=_PLAY),
        )
        pod.start()
        metronome.start(pod)
        try:
            yield ResponsesPod(pod, model, pod.service, metronome)
        finally:
            metronome.stop()


@pytest.fixture(scope="package")
def performance(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Performance:
    """Return the outcome of all clients' conversations, which they have once in a run."""
    return make_once(
        tmp_path_factory, "responses", lambda: request.getfixturevalue("responses_pod").perform()
    )
