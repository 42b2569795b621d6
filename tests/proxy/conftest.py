from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import JSONResponse

from tests.peers import Provider, Service
from tests.proxy.frames import FrameProvider
from tests.proxy.live_pod import Scene, is_idle, start_live
from tests.proxy.live_runners import WIRES
from tests.proxy.pod import ANTHROPIC_KEY, Pod, pod_at
from tests.proxy.scraped import ScrapedPod, started
from tests.proxy.wire import Runner, Wire
from tests.proxy.worker_pair import start
from tests.waiting import eventually, free_port, nobody_listens


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[Pod]:
    """Yield a pod whose proxy the test starts once its files are there; nothing of
    it outlives the test.
    """
    with pod_at(tmp_path) as made:
        yield made


@pytest.fixture
def unhurried(pod: Pod) -> None:
    """Let a stream's headers wait for the provider's status, which on a busy
    machine takes longer than a pod's 300 ms.
    """
    pod.environment["CLLAMA_KEEPALIVE_FIRST_MS"] = "60000"


@pytest.fixture
def running(pod: Pod) -> Pod:
    """Return a running pod with one agent ``analyst`` that may read the balance and trade."""
    pod.agent("analyst", *pod.balance_and_trade())
    pod.start()
    return pod


@pytest.fixture
def nobody() -> Iterator[str]:
    """Yield the address of a peer that is down."""
    with nobody_listens() as address:
        yield address


@dataclass
class WiredPod:
    """A running pod whose provider is scripted byte by byte: ``plain`` has no
    tools, ``analyst`` has one.
    """

    pod: Pod
    wire: Wire

    def head(self, line: str, *headers: str, agent_id: str = "plain") -> bytes:
        """Return a request's head, with the agent's credential."""
        rows = [
            f"{line} HTTP/1.1",
            "host: x",
            f"authorization: Bearer {self.pod.token(agent_id)}",
            *headers,
        ]
        return "\r\n".join([*rows, "", ""]).encode("latin-1")

    def idle(self) -> bool:
        """Return True if the log has the end of every request that it has the beginning of."""
        turns: dict[str, set[str]] = {"request": set(), "response": set(), "error": set()}
        for event in self.pod.log():
            turns.setdefault(event["type"], set()).add(event["turn_id"])
        return turns["request"] <= turns["response"] | turns["error"]

    def ended(self, said: int) -> dict[str, Any]:
        """Return the event that ends the one request after so many events."""
        return self.ends(said, 1)[0]

    def ends(self, said: int, requests: int) -> list[dict[str, Any]]:
        """Return the events that end so many requests after so many events."""

        def found() -> list[dict[str, Any]]:
            ended = [
                each for each in self.pod.log()[said:] if each["type"] in {"response", "error"}
            ]
            return ended if len(ended) >= requests else []

        return eventually(found, "the ends are logged")

    def recorded(self, lines: int) -> dict[str, Any]:
        """Return the next line of history after so many."""
        return eventually(lambda: self.pod.history("plain")[lines:], "it is in history")[0]

    def runner(self) -> Runner:
        return Runner(self.pod.port)


@pytest.fixture(scope="module")
def wired_pod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WiredPod]:
    wire = Wire()
    pod = Pod(tmp_path_factory.mktemp("pod"), Provider(), Service(port=free_port()))
    pod.environment |= {"OPENAI_BASE_URL": f"{wire.url}/v1", "ANTHROPIC_BASE_URL": f"{wire.url}/v1"}
    pod.environment["ANTHROPIC_API_KEY"] = ANTHROPIC_KEY
    pod.agent("plain")
    pod.agent("analyst", pod.tool("balance"))
    pod.start()
    yield WiredPod(pod, wire)
    pod.stop()
    wire.close()


@pytest.fixture
def wired(wired_pod: WiredPod) -> WiredPod:
    """Return the module's one pod, cleared of the test before."""
    eventually(wired_pod.idle, "what the test before has asked is over")
    wired_pod.wire.forget()
    return wired_pod


@pytest.fixture(scope="module")
def multiplexed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Pod, FrameProvider]]:
    """Yield a pod whose provider speaks HTTP/2, and that provider."""
    home = tmp_path_factory.mktemp("pod")
    provider = FrameProvider(home)
    pod = Pod(home, Provider(), Service())
    url = f"https://localhost:{provider.port}/v1"
    pod.environment |= {"OPENAI_BASE_URL": url, "ANTHROPIC_BASE_URL": url}
    pod.agent("plain")
    pod.start("--set", f"ssl_verify_upstream_trusted_ca={provider.certificate}")
    yield pod, provider
    pod.stop()
    provider.close()


@pytest.fixture(scope="module")
def identified(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pod]:
    """Yield a running pod for tests that send nothing upstream: one for the whole module."""
    with pod_at(tmp_path_factory.mktemp("pod")) as made:
        made.agent("analyst", made.tool("balance"))
        made.start()
        yield made


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pod]:
    """The proxy with two workers, for tests that end none, or wait until it is replaced."""
    with pod_at(tmp_path_factory.mktemp("pair")) as pod:
        start(pod)
        yield pod


@pytest.fixture(scope="module")
def scraped_pod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScrapedPod]:
    with pod_at(tmp_path_factory.mktemp("pod")) as pod:
        pod.service.routes["GET", "/balance"] = JSONResponse({"usd": 7})
        for agent_id in ("analyst", "broker"):
            pod.agent(agent_id, pod.tool("balance"))
        yield started(pod)


@pytest.fixture
def scraped(scraped_pod: ScrapedPod) -> ScrapedPod:
    """Return the module's one pod: tests look at the growth of its figures."""
    scraped_pod.pod.provider.script.clear()
    return scraped_pod


@pytest.fixture(scope="module")
def live_pod(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Pod]:
    """Yield a pod whose answers stream live, with the ``SETTINGS`` of the module."""
    with pod_at(tmp_path_factory.mktemp("pod")) as made:
        made.environment |= getattr(request.module, "SETTINGS", {})
        start_live(made, *getattr(request.module, "ARGUMENTS", ()))
        yield made


@pytest.fixture(params=WIRES)
def protocol(request: pytest.FixtureRequest) -> str:
    """Return each protocol of a runner's."""
    return str(request.param)


@pytest.fixture
def scene(live_pod: Pod, protocol: str) -> Scene:
    """Return the part of the module's live pod that this test sees."""
    eventually(lambda: is_idle(live_pod), "what the test before has asked is over")
    live_pod.provider.forget_script()
    live_pod.service.routes["GET", "/balance"] = JSONResponse({"usd": 50})
    live_pod.service.routes["POST", "/trade"] = JSONResponse({"order": 1})
    return Scene(live_pod, protocol)
