"""Limits of the bytes of request bodies in flight, in the real proxy."""

from __future__ import annotations

import gzip
import json
import socket
import threading
from contextlib import ExitStack

import httpx2
import pytest

from tests.peers import DelayedAnswer, text
from tests.proxy.pod import Pod, headers
from tests.waiting import eventually

_AGENT, _ALL = 100_000, 150_000
CHAT = "/v1/chat/completions"


def body_of(size: int) -> bytes:
    """Return a chat request of so many bytes."""
    empty = len(json.dumps({"model": "gpt-test", "messages": [{"role": "user", "content": ""}]}))
    asked = {"model": "gpt-test", "messages": [{"role": "user", "content": "x" * (size - empty)}]}
    return json.dumps(asked).encode()


@pytest.fixture
def bounded(pod: Pod) -> Pod:
    """Return a running pod of three agents with small limits."""
    pod.agent("analyst", pod.tool("balance"))
    pod.agent("plain")
    pod.agent("third")
    pod.environment |= {
        "CLLAMA_MAX_AGENT_BODY_BYTES": str(_AGENT),
        "CLLAMA_MAX_BODY_BYTES": str(_ALL),
    }
    pod.start()
    return pod


def begin(pod: Pod, held: ExitStack, agent_id: str, size: int) -> socket.socket:
    """Send the head of a request whose body is not to come yet."""
    peer = held.enter_context(socket.create_connection(("127.0.0.1", pod.port), timeout=30))
    head = (
        f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer "
        f"{pod.token(agent_id)}\r\ncontent-length: {size}\r\n\r\n"
    )
    peer.sendall(head.encode())
    return peer


def post(pod: Pod, agent_id: str, body: bytes, **more: str) -> httpx2.Response:
    return httpx2.post(
        f"{pod.url}{CHAT}", headers=headers(pod, agent_id) | more, content=body, timeout=30
    )


@pytest.mark.requirement("bodies:bounded")
def test_an_agents_bodies_count_from_their_heads_and_until_they_are_answered(bounded: Pod) -> None:
    with ExitStack() as held:
        first = begin(bounded, held, "analyst", 60_000)
        refused = eventually(
            lambda: (
                (answer := post(bounded, "analyst", body_of(50_000))).status_code == 429 and answer
            ),
            "no room is left",
        )
        assert refused.json()["error"]["code"] == "bytes_in_flight"
        assert int(refused.headers["retry-after"]) > 0

        bounded.provider.says(text("Another agent's."))
        assert post(bounded, "plain", body_of(50_000)).status_code == 200
        bounded.provider.says(text("A short one."))
        assert post(bounded, "analyst", body_of(1000)).status_code == 200

        bounded.provider.says(text("The first."))
        first.sendall(body_of(60_000))
        assert first.recv(65_536).startswith(b"HTTP/1.1 200")

    bounded.provider.says(text("Again."))
    assert eventually(
        lambda: post(bounded, "analyst", body_of(90_000)).status_code == 200, "there is room again"
    )
    assert {line["reason"] for line in bounded.log() if line.get("error") == "bytes_in_flight"} == {
        "a request of agent analyst was refused: the limit of bytes in flight of agent analyst"
    }


@pytest.mark.requirement("bodies:bounded")
def test_the_bodies_of_all_agents_have_a_limit_without_those_of_runners_that_left(
    bounded: Pod,
) -> None:
    with ExitStack() as held:
        begin(bounded, held, "analyst", 90_000)
        begin(bounded, held, "plain", 50_000)
        refused = eventually(
            lambda: (
                (answer := post(bounded, "third", body_of(20_000))).status_code == 503 and answer
            ),
            "no room is left",
        )
        assert refused.json()["error"]["code"] == "bytes_in_flight"
        assert int(refused.headers["retry-after"]) > 0

    def has_room() -> bool:
        bounded.provider.says(text("Room."))
        return post(bounded, "third", body_of(90_000)).status_code == 200

    assert eventually(has_room, "their connections have ended")


@pytest.mark.requirement("bodies:bounded")
def test_a_body_counts_as_it_comes_and_as_it_is_unpacked(bounded: Pod) -> None:
    late = DelayedAnswer(text("Late."))
    bounded.provider.says(late)
    answers: list[httpx2.Response] = []
    asking = threading.Thread(
        target=lambda: answers.append(post(bounded, "analyst", body_of(60_000)))
    )
    asking.start()
    eventually(lambda: bounded.provider.received, "the provider is asked")

    chunks = (body_of(50_000)[at : at + 5000] for at in range(0, 50_000, 5000))
    chunked = httpx2.post(
        f"{bounded.url}{CHAT}", headers=headers(bounded, "analyst"), content=chunks, timeout=30
    )
    assert chunked.status_code == 429
    packed = post(
        bounded, "analyst", gzip.compress(body_of(50_000)), **{"content-encoding": "gzip"}
    )
    assert packed.status_code == 429
    assert post(bounded, "analyst", body_of(_AGENT + 1)).status_code == 413

    late.go.set()
    asking.join(30)
    assert [answer.status_code for answer in answers] == [200]
