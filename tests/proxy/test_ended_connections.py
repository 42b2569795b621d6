"""The memory of a connection that has ended: nothing that must be collected."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest
from starlette.responses import JSONResponse

from tests.peers import DelayedAnswer, calls, text
from tests.proxy.frames import FrameRunner
from tests.proxy.pod import ROOT, Pod, authority, headers, pod_at, through
from tests.proxy.unread import UnreadAnswer, request
from tests.waiting import eventually

PATH = "/v1/chat/completions"
TIMES = 20
LARGE = "b" * 300_000
"""A part of a request that streams up and is read in several steps."""
FEW = 5
"""Objects of a connection that may be left; mitmproxy leaves fifty, and the body of each request."""
FEW_AFTER_LEAVING = 15
"""The same with those of the provider's connection, which is cut; the turn alone has 300."""
FEW_OVER_TLS = 40
"""The same with those by which mitmproxy reads the beginning of a handshake."""


@pytest.fixture(scope="module")
def pod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pod]:
    script = ROOT / "tests" / "proxy" / "tells_garbage.py"
    with pod_at(tmp_path_factory.mktemp("pod"), script=script) as pod:
        pod.agent("analyst", *pod.balance_and_trade())
        pod.agent("plain")
        pod.service.routes["GET", "/balance"] = JSONResponse({"usd": 7})
        pod.start()
        yield pod


def asked(words: str, *, stream: bool = False) -> dict[str, Any]:
    return {
        "model": "gpt-test",
        "messages": [{"role": "user", "content": words}],
        "stream": stream,
    }


def garbage(pod: Pod) -> dict[str, Any]:
    """Return what waits for the collector, once no connection is left but the one that asks."""

    def alone() -> dict[str, Any] | None:
        found: dict[str, Any] = httpx2.get(f"{pod.url}/garbage", timeout=30).json()
        kept.append(found["objects"])
        return found if found["others"] == 0 else None

    kept: list[int] = []
    found = eventually(alone, "all other connections have ended")
    return {**found, "objects": sum(kept)}


def turns(pod: Pod) -> None:
    for number in range(TIMES):
        pod.provider.says(calls((f"c{number}", "desk__balance", {})), text("Seven."))
        answer = httpx2.post(
            pod.url + PATH,
            headers=headers(pod, "analyst"),
            json=asked(f"{number} {LARGE}", stream=number % 2 == 0),
            timeout=30,
        )
        assert "Seven." in answer.text


def kept_connection(pod: Pod) -> None:
    with httpx2.Client(headers=headers(pod, "analyst"), timeout=30) as client:
        for number in range(TIMES):
            pod.provider.says(text("Hi."))
            assert "Hi." in client.post(pod.url + PATH, json=asked(f"kept {number}")).text
        # The streams of a connection that goes on are gone, too.
        assert client.get(f"{pod.url}/garbage").json()["objects"] <= TIMES * FEW


def forwarded(pod: Pod) -> None:
    for number in range(TIMES):
        pod.provider.says(text("Passed."))
        answer = httpx2.post(
            pod.url + PATH, headers=headers(pod), json=asked(f"{number} {LARGE}"), timeout=30
        )
        assert "Passed." in answer.text


def over_tls(pod: Pod) -> None:
    for number in range(TIMES):
        pod.provider.says(text("Hi."))
        with through(pod, authority(pod)) as client:
            answer = client.post(
                f"https://api.openai.com{PATH}",
                headers=headers(pod, "analyst"),
                json=asked(f"tls {number}"),
            )
        assert "Hi." in answer.text


def over_http_2(pod: Pod) -> None:
    with FrameRunner(pod) as runner:
        for _ in range(TIMES):
            refused = runner.ask("POST", PATH, list(headers(pod, "analyst").items()), [b"{"])
            assert refused.ended


def refused(pod: Pod) -> None:
    for _ in range(TIMES):
        assert httpx2.post(pod.url + PATH, json=asked("Who am I?")).status_code == 401


def left_in_the_middle(pod: Pod) -> None:
    for number in range(TIMES):
        ended = len(pod.history("analyst"))
        held = DelayedAnswer(text("too late"))
        pod.provider.says(held)
        body = json.dumps(asked(f"leave {number}", stream=number % 2 == 0)).encode()
        with UnreadAnswer(pod.port, request(PATH, pod.token(), body)):
            assert held.asked.wait(30)
        eventually(lambda: len(pod.history("analyst")) > ended, "its turn is over")  # noqa: B023
        held.go.set()


@pytest.mark.requirement("memory:no-circles")
@pytest.mark.parametrize(
    ("ask", "few"),
    [
        (turns, FEW),
        (kept_connection, FEW),
        (forwarded, FEW),
        (over_tls, FEW_OVER_TLS),
        (over_http_2, FEW_OVER_TLS),
        (refused, FEW),
        (left_in_the_middle, FEW_AFTER_LEAVING),
    ],
)
def test_connections_that_have_ended_leave_nothing_to_collect(
    pod: Pod, ask: Callable[[Pod], None], few: int
) -> None:
    ask(pod)  # what is made once
    garbage(pod)
    ask(pod)
    assert garbage(pod)["objects"] <= TIMES * few


@pytest.mark.requirement("memory:no-circles")
def test_a_connection_whose_runner_leaves_in_the_middle_ends_in_order(pod: Pod) -> None:
    ended = len(pod.history("analyst"))
    held = DelayedAnswer(text("too late"))
    pod.provider.says(held)
    body = b'{"model": "gpt-test", "messages": [{"role": "user", "content": "Leave"}]}'
    with UnreadAnswer(pod.port, request(PATH, pod.token(), body)):
        assert held.asked.wait(30)
    eventually(lambda: len(pod.history("analyst")) > ended, "its turn is over")
    assert pod.history("analyst")[-1]["status_code"] == 499
    held.go.set()
    garbage(pod)
    assert "crashed" not in pod.said()


@pytest.mark.requirement("memory:young-collections")
def test_a_young_collection_waits_for_many_objects(pod: Pod) -> None:
    young, middle, _ = garbage(pod)["thresholds"]
    assert young >= 120_000
    assert young * (middle + 2) <= 240_000
