"""Bodies that stream while they are made, and peers that leave or break off in the middle."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.proxy.conftest import WiredPod
from tests.proxy.wire import Connection, GoneError, Runner, WireMessage

CHAT = json.dumps({"model": "gpt-test", "messages": [], "stream": True}).encode()
EVENT_STREAM = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def ending(wired: WiredPod, said: int) -> tuple[str, int]:
    """Return type and status of the event that ends the one request after so many events."""
    event = wired.ended(said)
    return event["type"], event["status_code"]


class SteppedAnswer:
    """An answer that sends one event each time the test lets it."""

    def __init__(self) -> None:
        self.step = threading.Semaphore(0)
        self.gone = threading.Event()

    def __call__(self, connection: Connection, _seen: WireMessage) -> None:
        connection.send(EVENT_STREAM)
        for number in range(3):
            self.step.acquire()
            connection.send(chunk(b"data: %d\n\n" % number))
        self.step.acquire()
        connection.send(b"0\r\n\r\n")


@pytest.mark.requirement("forward:streaming")
def test_each_event_is_there_before_the_next_one_is_made(wired: WiredPod) -> None:
    stepwise = SteppedAnswer()
    wired.wire.answers.put(stepwise)
    with wired.runner() as runner:
        runner.send(wired.head("POST /v1/chat/completions", f"content-length: {len(CHAT)}") + CHAT)
        assert runner.head().status == 200  # before any event
        for number in range(3):
            stepwise.step.release()
            assert runner.chunk() == b"data: %d\n\n" % number
        stepwise.step.release()
        assert runner.chunk() == b""


@pytest.mark.requirement("forward:streaming")
@pytest.mark.parametrize("framing", ["content-length: 9", "transfer-encoding: chunked"])
def test_an_upload_reaches_the_provider_while_it_is_made(wired: WiredPod, framing: str) -> None:
    reached: list[bytes] = []
    step = threading.Event()

    def reading(connection: Connection, seen: WireMessage) -> None:
        for part in connection.parts(seen):
            reached.append(part)
            step.set()
        connection.send(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")

    wired.wire.early.put(reading)
    with wired.runner() as runner:
        runner.send(wired.head("POST /v1/audio/transcriptions", framing))
        for part in (b"one", b"two", b"six"):
            runner.send(chunk(part) if "chunked" in framing else part)
            assert step.wait(30), "the part has reached the provider before the next one is sent"
            step.clear()
            assert reached[-1] == part
        assert runner.ask(b"0\r\n\r\n" if "chunked" in framing else b"").status == 200


@pytest.mark.requirement("forward:leaves")
@pytest.mark.parametrize("path", ["/v1/files", "/v1/audio/transcriptions"])
def test_a_runner_that_leaves_during_an_upload_ends_it_at_the_provider(
    wired: WiredPod, path: str
) -> None:
    said = len(wired.pod.log())
    with wired.runner() as runner:
        runner.send(wired.head(f"POST {path}", "content-length: 1000") + b"abc")
        assert wired.wire.begun.wait(30)
    assert wired.wire.gone.wait(30)
    assert ending(wired, said) == ("error", 499)


@pytest.mark.requirement("forward:leaves")
def test_a_runner_that_leaves_during_a_response_ends_it_at_the_provider(
    wired: WiredPod,
) -> None:
    gone = threading.Event()

    def endless(connection: Connection, _seen: WireMessage) -> None:
        connection.send(EVENT_STREAM + chunk(b'data: {"usage": {"prompt_tokens": 3}}\n\n'))
        connection.until_closed()
        gone.set()

    wired.wire.answers.put(endless)
    said, lines = len(wired.pod.log()), len(wired.pod.history("plain"))
    with wired.runner() as runner:
        runner.send(wired.head("POST /v1/chat/completions", f"content-length: {len(CHAT)}") + CHAT)
        runner.head()
        runner.chunk()
    assert gone.wait(30)
    assert ending(wired, said) == ("error", 499)
    entry = wired.recorded(lines)
    assert (entry["status"], entry["status_code"], entry["usage"]["prompt_tokens"]) == (
        "error",
        499,
        3,
    )


def hang_up(connection: Connection, _seen: WireMessage) -> None:
    connection.peer.shutdown(socket.SHUT_RDWR)


@pytest.mark.requirement("forward:breaks-off")
def test_a_provider_that_breaks_off_in_the_middle_breaks_the_response_off(wired: WiredPod) -> None:
    def cut(connection: Connection, seen: WireMessage) -> None:
        connection.send(EVENT_STREAM + chunk(b"data: 1\n\n"))
        hang_up(connection, seen)

    wired.wire.answers.put(cut)
    said, lines = len(wired.pod.log()), len(wired.pod.history("plain"))
    with wired.runner() as runner:
        runner.send(wired.head("POST /v1/chat/completions", f"content-length: {len(CHAT)}") + CHAT)
        runner.head()
        assert runner.chunk() == b"data: 1\n\n"
        with pytest.raises(GoneError):  # no chunk ends the body as if it were complete
            runner.chunk()
    assert ending(wired, said)[0] == "error"
    assert wired.recorded(lines)["status"] == "error"


NO_RESPONSE: dict[str, Any] = {
    "hangs up": hang_up,
    "garbage": b"garbage\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
    "length and chunks": b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "an odd header": b"HTTP/1.1 200 OK\r\nbad name: 1\r\ncontent-length: 0\r\n\r\n",
    "an endless head": b"HTTP/1.1 200 OK\r\nx: " + b"a" * 3_000_000,
}


@pytest.mark.requirement("forward:breaks-off")
@pytest.mark.parametrize("answer", NO_RESPONSE.values(), ids=NO_RESPONSE)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/files"])
def test_a_provider_that_gives_no_response_is_a_502_in_the_dialects_shape(
    wired: WiredPod, path: str, answer: Any
) -> None:
    wired.wire.answers.put(answer)
    with wired.runner() as runner:
        seen = runner.ask(wired.head(f"POST {path}", f"content-length: {len(CHAT)}") + CHAT)
        assert seen.status == 502
        error = json.loads(seen.body)
        assert error["type" if path == "/v1/messages" else "error"]
        assert str(wired.wire.port) not in seen.body.decode()
        assert runner.ask(wired.head("GET /v1/models")).body == b"ok"  # the connection is in step


def early(close: Callable[[Connection], None]) -> Callable[[Connection, WireMessage], None]:
    def answer(connection: Connection, _seen: WireMessage) -> None:
        connection.send(b"HTTP/1.1 413 Too Large\r\ncontent-length: 5\r\n\r\nearly")
        close(connection)

    return answer


@pytest.mark.requirement("forward:breaks-off")
@pytest.mark.parametrize(
    "close",
    [
        Connection.until_closed,
        lambda connection: connection.peer.shutdown(socket.SHUT_WR),
        lambda _: None,
    ],
    ids=["reads on", "half closes", "closes"],
)
def test_an_answer_that_comes_before_the_upload_is_over_stands(wired: WiredPod, close: Any) -> None:
    wired.wire.early.put(early(close))
    with wired.runner() as runner:
        runner.send(wired.head("POST /v1/files", "content-length: 2000000") + b"a" * 1000)
        head = runner.head()
        runner.body(head)
        assert (head.status, head.body) == (413, b"early")
        runner.send(b"a" * 1_999_000)
        assert runner.ask(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n").status == 200


@pytest.mark.requirement("forward:breaks-off")
def test_a_provider_that_hangs_up_in_the_middle_of_an_upload_is_a_502(wired: WiredPod) -> None:
    wired.wire.early.put(hang_up)
    with wired.runner() as runner:
        seen = runner.ask(wired.head("POST /v1/files", "content-length: 2000000") + b"a" * 1000)
        assert (seen.status, json.loads(seen.body)["error"]["code"]) == (
            502,
            "provider_unreachable",
        )
        runner.send(b"a" * 1_999_000)
        assert runner.ask(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n").status == 200


@pytest.mark.requirement("forward:unreachable")
def test_an_upload_to_an_unreachable_provider_is_a_502_in_its_shape(pod: Any, nobody: str) -> None:
    pod.environment["OPENAI_BASE_URL"] = f"{nobody}/v1"
    token = pod.agent("plain")
    pod.start()
    with Runner(pod.port) as runner:
        head = (
            f"POST /v1/files HTTP/1.1\r\nhost: x\r\nx-api-key: {token}\r\ncontent-length: "
            "2000000\r\n\r\n"
        )
        seen = runner.ask(head.encode() + b"a" * 1000)
        assert (seen.status, json.loads(seen.body)["error"]["code"]) == (
            502,
            "provider_unreachable",
        )
        runner.send(b"a" * 1_999_000)
        assert runner.ask(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n").status == 200
