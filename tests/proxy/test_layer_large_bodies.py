"""Large bodies: streaming costs no memory, and a body that must be read has a limit."""

from __future__ import annotations

import contextlib
import hashlib
import json
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.proxy.conftest import WiredPod
from tests.proxy.frames import FrameProvider, FrameRunner, tunnel
from tests.proxy.pod import Pod
from tests.proxy.wire import Connection, Runner, WireMessage
from tests.waiting import DEADLINE, eventually
from tests.wires.openai import completion

BLOCK = bytes(range(256)) * 4096
MANY = 200
"""A number of megabyte blocks: more than the limit, and more than a machine should
keep in memory.
"""
SLACK = 24 << 20
"""Bytes that the process may need for other reasons."""
REPLY = json.dumps(completion("I see.")).encode()
ANSWER = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(REPLY)
    + REPLY
)


def digest(blocks: int) -> str:
    found = hashlib.sha256()
    for _ in range(blocks):
        found.update(BLOCK)
    return found.hexdigest()


def image(megabytes: int) -> Iterator[bytes]:
    """Yield a chat with an image, in parts."""
    yield b'{"model":"gpt-test","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:'
    for _ in range(megabytes):
        yield b"A" * (1 << 20)
    yield b'"}}]}]}'


@pytest.mark.requirement("large:streams")
@pytest.mark.parametrize(
    ("path", "chunked"), [("/v1/files", False), ("/v1/audio/transcriptions", True)]
)
def test_an_upload_beyond_every_limit_passes_and_the_proxys_memory_stays_flat(
    wired: WiredPod, path: str, chunked: bool
) -> None:
    framing = "transfer-encoding: chunked" if chunked else f"content-length: {MANY * len(BLOCK)}"
    before = wired.pod.memory(anew=True)
    with wired.runner() as runner:
        runner.send(wired.head(f"POST {path}", framing))
        for _ in range(MANY):
            runner.send(b"%x\r\n%s\r\n" % (len(BLOCK), BLOCK) if chunked else BLOCK)
        assert runner.ask(b"0\r\n\r\n" if chunked else b"").status == 200
    (seen,) = wired.wire.seen
    assert (seen.size, seen.digest) == (MANY * len(BLOCK), digest(MANY))
    assert wired.pod.memory() - before < SLACK


@pytest.mark.requirement("large:streams")
@pytest.mark.parametrize("content_type", ["audio/mpeg", "application/json"])
def test_a_download_beyond_every_limit_passes_and_the_proxys_memory_stays_flat(
    wired: WiredPod, content_type: str
) -> None:
    def long(connection: Connection, _seen: WireMessage) -> None:
        rows = f"content-type: {content_type}\r\ncontent-length: {MANY * len(BLOCK)}\r\n\r\n"
        connection.send(b"HTTP/1.1 200 OK\r\n" + rows.encode())
        for _ in range(MANY):
            connection.send(BLOCK)

    wired.wire.answers.put(long)
    before = wired.pod.memory(anew=True)
    with wired.runner() as runner:
        seen = runner.ask(wired.head("GET /v1/models/f"))
    assert (seen.size, seen.digest) == (MANY * len(BLOCK), digest(MANY))
    assert wired.pod.memory() - before < SLACK


@pytest.mark.requirement("large:streams")
def test_a_runner_that_does_not_read_slows_its_provider_down(wired: WiredPod) -> None:
    sent = 0

    def endless(connection: Connection, _seen: WireMessage) -> None:
        nonlocal sent
        connection.send(b"HTTP/1.1 200 OK\r\ncontent-type: audio/mpeg\r\n\r\n")
        connection.peer.settimeout(1.0)  # nobody reads from us any more
        try:
            while sent < 1 << 30:
                connection.send(BLOCK)
                sent += len(BLOCK)
        except TimeoutError:
            stalled.append(sent)

    stalled: list[int] = []
    wired.wire.answers.put(endless)
    before = wired.pod.memory(anew=True)
    with wired.runner() as runner:
        runner.send(wired.head("GET /v1/models/f"))
        eventually(lambda: stalled, "the provider is not read from any more")
    assert wired.pod.memory() - before < SLACK


@pytest.mark.requirement("large:mediated")
@pytest.mark.parametrize("agent_id", ["plain", "analyst"])
def test_thirty_megabytes_of_images_are_read_and_go_on(wired: WiredPod, agent_id: str) -> None:
    wired.wire.answers.put(ANSWER)
    body = b"".join(image(30))
    with wired.runner() as runner:
        head = wired.head(
            "POST /v1/chat/completions", f"content-length: {len(body)}", agent_id=agent_id
        )
        seen = runner.ask(head, body)
    assert json.loads(seen.body)["choices"][0]["message"]["content"] == "I see."
    (sent,) = wired.wire.seen
    if agent_id == "plain":
        assert (sent.size, sent.digest) == (len(body), hashlib.sha256(body).hexdigest())
    else:
        assert len(body) < sent.size < len(body) + 1000


@pytest.mark.requirement("large:limit")
@pytest.mark.parametrize("agent_id", ["plain", "analyst"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_chat_beyond_the_limit_is_a_413_in_the_dialects_shape_at_once(
    wired: WiredPod, agent_id: str, path: str, chunked: bool
) -> None:
    before = wired.pod.memory(anew=True)
    with wired.runner() as runner:
        framing = "transfer-encoding: chunked" if chunked else f"content-length: {400 << 20}"
        runner.send(wired.head(f"POST {path}", framing, agent_id=agent_id))
        for _ in range(70 if chunked else 1):
            runner.send(b"%x\r\n%s\r\n" % (len(BLOCK), BLOCK) if chunked else BLOCK)
        seen = runner.response()  # although the request's body has not ended
    error = json.loads(seen.body)["error"]
    expected = {
        "/v1/messages": ("type", "request_too_large"),
        "/v1/chat/completions": ("code", "request_too_large"),
    }
    name, value = expected[path]
    assert (seen.status, error[name]) == (413, value)
    assert "body_size_limit" in error["message"]
    assert wired.wire.seen == []
    # A body of 64 MB that grows is moved now and then: for a moment there are two buffers of it.
    two_buffers = 128 << 20
    assert wired.pod.memory() - before < (two_buffers if chunked else SLACK)


@pytest.mark.requirement("large:limit")
def test_what_is_refused_by_its_head_is_not_kept_while_it_comes(wired: WiredPod) -> None:
    before = wired.pod.memory(anew=True)
    with wired.runner() as runner:
        runner.send(
            (
                "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: "
                f"{MANY * len(BLOCK)}\r\n\r\n"
            ).encode()
        )
        for _ in range(MANY):
            runner.send(BLOCK)
        assert runner.response().status == 401
        assert (
            runner.ask(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n").status == 200
        )  # the connection is in step
    assert wired.pod.memory() - before < SLACK


@pytest.mark.requirement("large:back-pressure")
def test_a_runner_of_http_2_that_gives_no_window_slows_its_provider_down(wired: WiredPod) -> None:
    size, over = 64 * len(BLOCK), threading.Event()

    def long(connection: Connection, _seen: WireMessage) -> None:
        connection.send(
            (
                f"HTTP/1.1 200 OK\r\ncontent-type: audio/mpeg\r\ncontent-length: {size}\r\n\r\n"
            ).encode()
        )
        for _ in range(64):
            connection.send(BLOCK)
        over.set()

    wired.wire.answers.put(long)
    before = wired.pod.memory(anew=True)
    with FrameRunner(wired.pod) as runner:
        runner.deaf = True
        stream = runner.send("GET", "/v1/models/f", [("x-api-key", wired.pod.token("plain"))])
        runner.read_until(lambda: stream.body)
        assert not over.wait(1.5)
        assert wired.pod.memory() - before < SLACK
        runner.deaf = False
        runner.read_until(lambda: stream.ended)
    assert hashlib.sha256(stream.body).hexdigest() == digest(64)


@pytest.mark.requirement("large:back-pressure")
@pytest.mark.parametrize("protocols", [["h2"], ["http/1.1", "h2"]])
def test_a_provider_of_http_2_that_gives_no_window_slows_its_runner_down(
    multiplexed: tuple[Pod, FrameProvider], protocols: list[str]
) -> None:
    pod, provider = multiplexed
    provider.deaf, provider.connections = True, []
    over = threading.Event()
    with tunnel(pod, "api.openai.com", *protocols) as peer:
        head = [("x-api-key", pod.token("plain")), ("content-length", str(64 * len(BLOCK)))]

        def upload() -> None:
            if protocols == ["h2"]:
                FrameRunner(pod, peer=peer).send("POST", "/v1/files", head, [BLOCK[:65536]] * 1024)
            else:
                rows = "".join(f"{name}: {value}\r\n" for name, value in head)
                peer.sendall(f"POST /v1/files HTTP/1.1\r\nhost: x\r\n{rows}\r\n".encode())
                for _ in range(64):
                    peer.sendall(BLOCK)
            over.set()

        before = pod.memory(anew=True)
        threading.Thread(target=upload, daemon=True).start()
        eventually(lambda: provider.connections and provider.connections[0].streams, "it has begun")
        assert not over.wait(1.5)
        assert pod.memory() - before < SLACK
        (frames,) = provider.connections
        frames.deaf = False
        assert over.wait(DEADLINE)
        eventually(lambda: provider.seen, "it is there")
    assert len(provider.seen.pop().body) == 64 * len(BLOCK)


@pytest.mark.requirement("large:back-pressure")
def test_an_upload_waits_while_its_provider_is_being_connected(pod: Pod) -> None:
    over = threading.Event()
    with (
        socket.create_server(("127.0.0.1", 0), backlog=0) as silent,
        contextlib.ExitStack() as held,
    ):
        for _ in range(2):  # they fill the backlog, so that later connections wait
            first = held.enter_context(socket.socket())
            first.setblocking(False)
            first.connect_ex(silent.getsockname())
        pod.environment["OPENAI_BASE_URL"] = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        token = pod.agent("plain")
        pod.start()
        runner = held.enter_context(Runner(pod.port))

        def upload() -> None:
            head = (
                f"POST /v1/files HTTP/1.1\r\nhost: x\r\nx-api-key: {token}\r\ncontent-length: "
                f"{64 * len(BLOCK)}\r\n\r\n"
            )
            runner.send(head.encode())
            with contextlib.suppress(OSError):
                for _ in range(64):
                    runner.send(BLOCK)
                over.set()

        before = pod.memory(anew=True)
        uploading = threading.Thread(target=upload)
        uploading.start()
        assert not over.wait(1.5)
        assert pod.memory() - before < SLACK
        pod.kill()
        uploading.join()
