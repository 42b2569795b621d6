"""The memory of the real process while answers stream live (docs/spec/live.md sections 3 and 11)."""

from __future__ import annotations

import contextlib
import http.client
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from starlette.requests import Request

from tests.peers import Answer, wire_of
from tests.proxy.live_pod import Flood, Scene, stream
from tests.proxy.live_runners import WIRES, data_of, word_of
from tests.proxy.pod import Pod, headers
from tests.proxy.unread import UnreadAnswer, request
from tests.waiting import eventually

pytestmark = pytest.mark.long
SETTINGS = {"CLLAMA_LIVE_FIRST_MS": "60000"}
MIB = 1 << 20


@pytest.fixture(scope="module", autouse=True)
def warm(live_pod: Pod) -> None:
    """Let the process have what it keeps once it has streamed anything large."""
    hears(Scene(live_pod, "chat"), 5 * MIB)


def hears(scene: Scene, size: int) -> None:
    """Let a text of this size stream, and check that the runner gets it."""

    async def flood(asked: Request) -> Answer:
        return stream(Flood(wire_of(asked.url.path), size))

    scene.pod.provider.model = flood
    connection = http.client.HTTPConnection("127.0.0.1", scene.pod.port, timeout=60)
    with contextlib.closing(connection):
        body = json.dumps({**scene.request(), "stream": True})
        connection.request("POST", scene.wire.PATH, body, headers(scene.pod, "analyst"))
        answer = connection.getresponse().read()
    words = (word_of(data_of(event)) for event in answer.split(b"\n\n"))
    assert sum(map(len, words)) == size


def queued(port: int) -> int:
    """Return the bytes that the kernel holds, of those sent from this port."""
    size = 0
    for line in Path("/proc/net/tcp").read_text(encoding="utf-8").splitlines()[1:]:
        _, local, remote, _, queues, *_ = line.split()
        unsent, unread_size = (int(each, 16) for each in queues.split(":"))
        size += unsent if int(local[-4:], 16) == port else 0
        size += unread_size if int(remote[-4:], 16) == port else 0
    return size


@pytest.mark.requirement("live:memory-of-a-stream")
@pytest.mark.parametrize("protocol", ["chat"])
def test_a_text_of_5_mb_costs_a_few_times_its_body(scene: Scene) -> None:
    before = scene.pod.memory(anew=True)
    hears(scene, 5 * MIB)
    assert scene.pod.memory() - before < 40 * MIB  # The body, as read, redacted and recorded
    assert scene.recorded()["response"]["format"] == "sse"


@pytest.mark.requirement("live:memory-of-a-stream")
@pytest.mark.parametrize("protocol", ["chat"])
def test_32_streams_at_once_cost_a_few_times_their_texts(scene: Scene) -> None:
    before = scene.pod.memory(anew=True)
    size = MIB // 4
    scenes = [Scene(scene.pod, protocol) for protocol in [*WIRES] * 11][:32]
    with ThreadPoolExecutor(32) as pool:
        assert [*pool.map(hears, scenes, [size] * 32)] == [None] * 32
    assert scene.pod.memory() - before < 32 * 5 * size


@pytest.mark.requirement("live:memory-of-a-stream")
@pytest.mark.parametrize("protocol", ["chat"])
def test_a_provider_is_read_no_further_than_1_mib_ahead_of_a_runner_that_does_not_read(
    scene: Scene,
) -> None:
    before = scene.pod.memory(anew=True)
    flood = Flood(scene.wire, 15 * MIB)
    scene.says(stream(flood))
    body = json.dumps({**scene.request(), "stream": True}).encode()
    asks = request(scene.wire.PATH, scene.pod.token(), body)
    with UnreadAnswer(scene.pod.port, asks):
        provider, runner = scene.pod.provider.port, scene.pod.port
        seen: list[int] = []

        def stands_still() -> bool:
            seen.append(flood.bytes - queued(provider))
            return len(seen) > 20 and seen[-1] == seen[-20] > MIB

        eventually(stands_still, "the proxy reads no more")
        assert seen[-1] - queued(runner) < 3 * MIB
        assert scene.pod.memory() - before < 8 * MIB
    assert scene.ended()["error"] == "runner_left"
