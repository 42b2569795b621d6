from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.responses import JSONResponse

from tests.once import make_once
from tests.peers import Provider, Service
from tests.proxy.pod import Pod
from tests.sdks.responses.model import CaseModel
from tests.sdks.responses.plays import PLANTED, Metronome, Performance, ResponsesPod

_PLAY = {"type": "object", "properties": {"play": {"type": "string"}}, "required": ["play"]}


@pytest.fixture(scope="package")
def responses_pod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ResponsesPod]:
    """Yield a running pod. Streams get events from the first keepalive on."""
    model, service, metronome = CaseModel(), Service(), Metronome()
    provider = Provider(model=model)
    service.routes = {
        ("GET", "/balance"): JSONResponse({"usd": PLANTED}),
        ("GET", "/wait"): metronome,
        ("POST", "/trade"): JSONResponse({"traded": PLANTED}),
    }
    provider.start()
    service.start()
    made = Pod(tmp_path_factory.mktemp("responses"), provider, service)
    made.environment = {
        "CLLAMA_KEEPALIVE_RESPONSES": "native",
        "CLLAMA_KEEPALIVE_MS": "100",
        "CLLAMA_EGRESS": "deny",
    }
    (made.home / "runner").mkdir()
    made.agent(
        "analyst",
        made.tool("balance"),
        made.tool("wait", schema=_PLAY),
        made.tool("trade", "POST", schema=_PLAY),
    )
    made.start()
    metronome.start(made)
    try:
        yield ResponsesPod(made, model, service, metronome)
    finally:
        metronome.stop()
        made.stop()
        provider.stop()
        service.stop()


@pytest.fixture(scope="package")
def performance(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Performance:
    """Return the outcome of all clients' conversations, which they have once in a run."""
    return make_once(
        tmp_path_factory, "responses", lambda: request.getfixturevalue("responses_pod").perform()
    )
