"""Limits of connections through the real proxy: strangers take no agent's place,
and who waits too long is closed.
"""

from __future__ import annotations

import json
import select
import socket
import ssl
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from openai.types.chat import ChatCompletionMessageParam
from starlette.requests import Request
from starlette.responses import Response

from tests.peers import DelayedAnswer, text
from tests.proxy.frames import FrameRunner, tunnel
from tests.proxy.pod import Pod
from tests.waiting import eventually, eventually_async

_FEW = 128
"""The descriptors of a proxy that is asked for more connections than it can have."""
_GO_ON = "os.execv(sys.argv[1], sys.argv[1:])"
_LIMITED = (
    sys.executable,
    "-c",
    f"import os, resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, ({_FEW}, {_FEW}))\n"
    + _GO_ON,
)
_SHORT = """
from mitmproxy import ctx

class ShortLimits:
    def running(self):
        table = ctx.master.addons.get("claw-connections").table
        table.head_seconds, table.idle_seconds = 1.0, {idle_seconds}

addons = [ShortLimits()]
"""
"""A script that makes the limits of time short: they are minutes."""
HI: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Hi"}]


@pytest.fixture
def short(pod: Pod) -> Pod:
    """Return a running pod whose connections may wait for a second."""
    start_short(pod, idle_seconds=1.0)
    return pod


def start_short(pod: Pod, *, idle_seconds: float) -> None:
    pod.agent("plain")
    script = pod.home / "short.py"
    script.write_text(_SHORT.format(idle_seconds=idle_seconds), encoding="utf-8")
    pod.start("-s", str(script))


@pytest.fixture
def strangers() -> Iterator[ExitStack]:
    """Yield what holds connections open until the test is over."""
    with ExitStack() as held:
        yield held


def connect(pod: Pod, held: ExitStack, *, port: int | None = None) -> socket.socket:
    return held.enter_context(socket.create_connection(("127.0.0.1", port or pod.port), timeout=30))


def is_closed(peer: socket.socket) -> bool:
    peer.setblocking(False)
    try:
        return peer.recv(65_536) == b""
    except (BlockingIOError, ssl.SSLWantReadError):
        return False
    except OSError:
        return True


def is_answered(peer: socket.socket) -> bool:
    return bool(select.select([peer], [], [], 0)[0])


def logged(pod: Pod, error: str) -> list[dict[str, object]]:
    return [line for line in pod.log() if line.get("error") == error]


@pytest.mark.requirement("connections:strangers", "connections:descriptors")
def test_idle_connections_without_a_token_keep_no_agent_out(pod: Pod, strangers: ExitStack) -> None:
    pod.agent("analyst")
    pod.launcher = _LIMITED
    pod.start()
    client = pod.client()
    pod.provider.says(text("Before."))
    client.chat.completions.create(model="gpt-test", messages=HI)

    idle = [
        connect(pod, strangers, port=(pod.port, pod.proxy_port)[number % 2])
        for number in range(3 * _FEW)
    ]

    # All of them are accepted by then: else a newcomer would be the oldest that has shown no token
    # yet.
    closed = 3 * _FEW - _FEW // 4
    eventually(
        lambda: sum(map(is_closed, idle)) >= closed,
        "all that are too many are closed, the oldest first",
    )
    assert is_closed(idle[0])
    for number in range(3):
        pod.provider.says(text(f"Answer {number}."))
        answer = client.chat.completions.create(model="gpt-test", messages=HI)
        assert answer.choices[0].message.content == f"Answer {number}."
    pod.provider.says(text("To a newcomer."))
    assert pod.client(max_retries=0).chat.completions.create(model="gpt-test", messages=HI).choices

    lines = logged(pod, "connections_closed")
    assert [line["reason"] for line in lines] == [
        f"more than {_FEW // 4} descriptors for connections without a token: the oldest were closed"
    ]
    assert len(logged(pod, "descriptors_exhausted")) <= 1
    assert logged(pod, "not_admitted") == []
    assert "Traceback" not in pod.said()


@pytest.mark.requirement("connections:agent-share")
@pytest.mark.parametrize("has_body", [True, False], ids=["unused", "under-way"])
def test_an_agent_with_many_connections_keeps_no_other_out(
    pod: Pod, strangers: ExitStack, *, has_body: bool
) -> None:
    pod.agent("analyst")
    pod.agent("greedy")
    pod.launcher = _LIMITED
    pod.start()
    kept = pod.client(
        max_retries=2
    )  # while the greedy one connects, no descriptor may be left for a moment
    pod.provider.says(text("Before."))
    kept.chat.completions.create(model="gpt-test", messages=HI)

    body = b"{}" if has_body else b""  # of which no byte ever comes
    opened = []
    for _ in range(2 * _FEW):
        peer = connect(pod, strangers)
        peer.sendall(chat_head(pod, "greedy", len(body) or 1000) + body)
        opened.append(peer)

    if has_body:
        eventually(
            lambda: is_closed(opened[0]) or opened[0].recv(65_536), "the first one is answered"
        )
        eventually(lambda: is_closed(opened[0]), "the first one, which is unused, is closed")
    else:
        eventually(
            lambda: logged(pod, "too_many_connections"), "requests beyond the share are refused"
        )
    for client in (kept, pod.client(max_retries=2)):
        pod.provider.says(text("Here."))
        assert (
            client.chat.completions.create(model="gpt-test", messages=HI).choices[0].message.content
            == "Here."
        )


@pytest.mark.requirement("connections:agent-share")
def test_two_agents_whose_requests_never_end_leave_a_third_its_share(
    pod: Pod, strangers: ExitStack
) -> None:
    may_answer = threading.Event()

    async def hold(request: Request) -> Response:
        is_held = b"hold" in await request.body()
        if is_held:
            await eventually_async(may_answer.is_set, "the test lets it answer")
        return text("Here.")

    pod.provider.says(*[hold] * (4 * _FEW))
    for name in ("analyst", "greedy", "gluttonous"):
        pod.agent(name)
    pod.launcher = _LIMITED
    pod.start()
    body = json.dumps(
        {"model": "gpt-test", "messages": [{"role": "user", "content": "hold"}]}
    ).encode()
    for number in range(_FEW):
        sent_on = len(pod.provider.received) + 1
        peer = connect(pod, strangers)
        peer.sendall(chat_head(pod, ("greedy", "gluttonous")[number % 2], len(body)) + body)
        eventually(
            lambda peer=peer, sent_on=sent_on: (
                len(pod.provider.received) == sent_on or is_answered(peer)
            ),
            "it is sent on, or refused",
        )
    for _ in range(3):
        client = pod.client(max_retries=0)
        assert (
            client.chat.completions.create(model="gpt-test", messages=HI).choices[0].message.content
            == "Here."
        )
    assert logged(pod, "descriptors_exhausted") == []
    may_answer.set()


def chat_head(pod: Pod, agent: str, length: int) -> bytes:
    return (
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer "
        f"{pod.token(agent)}\r\n"
        f"content-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    ).encode()


@pytest.mark.requirement("connections:descriptors")
def test_the_soft_limit_of_descriptors_is_raised_to_the_hard_one(pod: Pod) -> None:
    pod.agent("analyst")
    pod.launcher = (
        sys.executable,
        "-c",
        "import os, resource, sys; _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))\n" + _GO_ON,
    )
    pod.start()
    assert pod.process is not None
    limits = Path(f"/proc/{pod.process.pid}/limits").read_text(encoding="utf-8")
    soft, hard = next(
        line for line in limits.splitlines() if line.startswith("Max open files")
    ).split()[3:5]
    assert soft == hard != "100"


@pytest.mark.requirement("connections:head")
def test_a_connection_without_a_complete_head_is_closed(short: Pod, strangers: ExitStack) -> None:
    silent = connect(short, strangers)
    half = connect(short, strangers)
    half.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthor")
    handshake = connect(short, strangers, port=short.proxy_port)
    handshake.sendall(b"CONNECT api.openai.com:443 HTTP/1.1\r\nhost: api.openai.com:443\r\n\r\n")
    assert handshake.recv(4096).startswith(b"HTTP/1.1 200")

    for peer in (silent, half, handshake):
        eventually(lambda peer=peer: is_closed(peer), "it is closed")

    reasons = {line["reason"] for line in logged(short, "connections_closed")}
    assert reasons == {"no complete head of a request came in 1 seconds"}


@pytest.mark.requirement("connections:head")
def test_half_a_head_behind_an_answer_closes_the_connection_long_before_it_is_idle(
    pod: Pod, strangers: ExitStack
) -> None:
    start_short(pod, idle_seconds=300.0)
    request = b"GET /v1/unknown HTTP/1.1\r\nhost: api.openai.com\r\n"
    kept: list[socket.socket] = []
    for _ in range(2):
        kept += [
            connect(pod, strangers),
            strangers.enter_context(tunnel(pod, "api.openai.com", "http/1.1")),
        ]
    for peer in kept:
        peer.sendall(request + b"\r\n")
        assert peer.recv(65_536).startswith(b"HTTP/1.1 401")
    runners = [strangers.enter_context(FrameRunner(pod)) for _ in range(3)]
    for runner in runners:
        runner.ask("GET", "/v1/unknown", [])

    half_a_frame, half_a_block = (
        b"\x00\x00",
        b"\x00\x00\x01\x01\x01\x00\x00\x00\x03\x82",
    )  # HEADERS, which don't end
    halves = [
        (kept[0], request),
        (kept[1], request),
        (runners[0].peer, half_a_frame),
        (runners[1].peer, half_a_block),
    ]
    for peer, half in halves:
        peer.sendall(half)
    for peer, half in halves:
        eventually(lambda peer=peer: is_closed(peer), f"it is closed behind {half!r}")
    for peer in (kept[2], kept[3], runners[2].peer):
        assert not is_closed(peer)


@pytest.mark.requirement("connections:idle")
def test_an_idle_connection_is_closed_and_one_that_waits_for_an_answer_is_not(
    short: Pod, strangers: ExitStack
) -> None:
    late = DelayedAnswer(text("Late."))
    short.provider.says(late)
    waiting = connect(short, strangers)
    body = json.dumps({"model": "gpt-test", "messages": HI}).encode()
    waiting.sendall(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer "
        f"{short.token('plain')}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode()
        + body
    )
    eventually(lambda: short.provider.received, "the provider is asked")
    idle = connect(short, strangers)
    idle.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
    assert idle.recv(4096).startswith(b"HTTP/1.1 200")

    eventually(lambda: is_closed(idle), "the idle one is closed")
    assert not is_closed(waiting)

    waiting.setblocking(True)
    late.go.set()
    assert waiting.recv(65_536).startswith(b"HTTP/1.1 200")
    eventually(lambda: is_closed(waiting), "it is idle now, and closed in its turn")
