"""An answer is delivered when the kernel has all of it.

No write is repeated for a runner that got less (docs/spec/mediation.md section 5).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sqlite3
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.responses import JSONResponse, Response

from tests.peers import DelayedAnswer
from tests.proxy.frames import FrameRunner
from tests.proxy.pod import Pod, headers
from tests.proxy.unread import UnreadAnswer, request
from tests.proxy.worker_pair import workers
from tests.waiting import eventually
from tests.wires import MadeCall, Wire, anthropic, openai, responses

WIRES: tuple[Wire, ...] = (openai, anthropic, responses)
LARGE = 5 << 20
"""Bytes of an answer, more than the kernel takes for a runner that does not read."""
NARROW = Path(__file__).with_name("narrow.py")
SMALL = 300_000
"""The same with narrow sockets, or a closed window of HTTP/2."""


def asked(wire: Wire, words: str = "Buy", *, stream: bool = False) -> bytes:
    return json.dumps(wire.request([wire.user(words)], (), stream=stream, more={})).encode()


def post(pod: Pod, wire: Wire, body: bytes, **more: str) -> httpx2.Response:
    """Send it on a new connection, without a word of being a retry."""
    return httpx2.post(
        pod.url + wire.PATH, headers={**headers(pod, "analyst"), **more}, content=body, timeout=30
    )


def unread(pod: Pod, wire: Wire, body: bytes, *more: str) -> UnreadAnswer:
    return UnreadAnswer(pod.port, request(wire.PATH, pod.token(), body, *more))


def said(pod: Pod, wire: Wire, *texts: str) -> None:
    """Script turns of one trade and a text each."""
    for words in texts:
        call = MadeCall(f"call_{len(pod.provider.script)}", "desk__trade", "{}")
        pod.provider.says(
            *(Response(wire.reply(*each, {})) for each in (("", [call]), (words, [])))
        )


def trades(pod: Pod) -> int:
    return len(pod.service.received)


def states(pod: Pod) -> list[str]:
    """Return the states of the turns in the journal."""
    with contextlib.closing(
        sqlite3.connect(f"file:{pod.home}/state.db?mode=ro", uri=True)
    ) as journal:
        return [state for (state,) in journal.execute("SELECT state FROM turns")]


def told(wire: Wire, answer: httpx2.Response, *, stream: bool = False) -> str:
    return wire.said(wire.assembled(answer.content) if stream else answer.content).text


@pytest.fixture
def desk(running: Pod) -> Pod:
    running.service.routes["POST", "/trade"] = JSONResponse({"order": 1})
    return running


@pytest.fixture
def narrow(pod: Pod) -> Iterator[Pod]:
    """Yield a running pod whose kernel takes little."""
    pod.script = NARROW
    pod.agent("analyst", pod.tool("trade", "POST"))
    pod.service.routes["POST", "/trade"] = JSONResponse({"order": 1})
    pod.start()
    return pod


@pytest.mark.requirement("journal:delivered")
@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.__name__.rpartition(".")[2])
def test_a_json_answer_that_waits_in_the_proxy_that_is_killed_is_given_again(
    desk: Pod, wire: Wire
) -> None:
    words = "b" * LARGE
    said(desk, wire, words)
    with unread(desk, wire, asked(wire)) as first:
        eventually(first.has_begun, "the answer is on its way")
        desk.kill()
        assert not first.take_rest()
    desk.start()
    assert told(wire, post(desk, wire, asked(wire))) == words
    assert trades(desk) == 1


@pytest.mark.requirement("journal:delivered")
@pytest.mark.requirement("workers:at-most-once")
def test_a_json_answer_of_a_worker_that_is_killed_is_given_again_by_another(desk: Pod) -> None:
    desk.stop()
    desk.workers = 2
    desk.start()
    words = "b" * LARGE
    said(desk, openai, words)
    with unread(desk, openai, asked(openai)) as first:
        eventually(first.has_begun, "the answer is on its way")
        for pid in workers(desk):
            os.kill(pid, signal.SIGKILL)
        assert not first.take_rest()
    eventually(desk._ready, "they are replaced")
    assert told(openai, post(desk, openai, asked(openai))) == words
    assert trades(desk) == 1


@pytest.mark.requirement("journal:delivered")
@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.__name__.rpartition(".")[2])
def test_a_stream_whose_last_bytes_wait_in_a_killed_proxy_is_given_again(
    narrow: Pod, wire: Wire
) -> None:
    """Its last chunk waits in a buffer for some of these sizes, whatever the kernel takes."""
    sizes = range(1_000, 25_000, 2_000)
    with contextlib.ExitStack() as open_:
        cut = []
        for size in sizes:
            said(narrow, wire, "b" * size)
            each = open_.enter_context(
                unread(narrow, wire, asked(wire, f"Buy {size}", stream=True))
            )
            eventually(
                lambda: len(narrow.history("analyst")) > sizes.index(size),  # noqa: B023
                "its turn is in history",
            )
            eventually(lambda: "running" not in states(narrow), "its turn is over")
            eventually(each.has_begun, "the answer is on its way")
            cut.append((size, each))
        narrow.kill()
        lost = [size for size, each in cut if not each.take_rest()]
    assert lost
    before = trades(narrow)
    narrow.start()
    for size in lost:
        assert (
            told(wire, post(narrow, wire, asked(wire, f"Buy {size}", stream=True)), stream=True)
            == "b" * size
        )
    assert trades(narrow) == before == len(sizes)


@pytest.mark.requirement("journal:delivered")
@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_http_2_holds_back_without_a_window_is_not_delivered(
    desk: Pod, stream: bool
) -> None:
    words = "b" * (SMALL // 10 if stream else SMALL)  # A stream is longer than its words
    fields = list(headers(desk, "analyst").items())
    said(desk, openai, words)
    with FrameRunner(desk) as runner:
        runner.deaf = True
        first = runner.send("POST", openai.PATH, fields, [asked(openai, stream=stream)])
        runner.read_until(lambda: len(first.body) > 60_000)
        eventually(lambda: states(desk) != ["running"], "its turn is over")
        for _ in range(20):  # Time in which the whole stream goes to the layers of its connection
            httpx2.get(f"{desk.url}/health")
        desk.kill()
        assert not first.ended
    desk.start()
    with FrameRunner(desk) as runner:
        again = runner.ask("POST", openai.PATH, fields, [asked(openai, stream=stream)])
    body = bytes(again.body)
    assert openai.said(openai.assembled(body) if stream else body).text == words
    assert trades(desk) == 1


@pytest.mark.requirement("journal:delivered")
def test_an_answer_that_http_2_held_back_is_delivered_when_its_end_was_sent(desk: Pod) -> None:
    """A stream that the runner resets before is not."""
    fields = list(headers(desk, "analyst").items())
    said(desk, openai, "b" * SMALL, "c" * SMALL)
    with FrameRunner(desk) as runner:
        runner.deaf = True
        first = runner.send("POST", openai.PATH, fields, [asked(openai)])
        runner.read_until(lambda: len(first.body) > 60_000)
        assert states(desk) == ["answered"]
        runner.h2.reset_stream(1)
        runner.deaf = False
        runner.flush()
        runner.h2.increment_flow_control_window(1 << 20)
        runner.flush()
        again = runner.ask("POST", openai.PATH, fields, [asked(openai)])
        assert openai.said(bytes(again.body)).text == "b" * SMALL
        eventually(lambda: states(desk) == ["done"], "it is delivered now")
        other = runner.ask("POST", openai.PATH, fields, [asked(openai)])
        assert openai.said(bytes(other.body)).text == "c" * SMALL
    assert trades(desk) == 2


@pytest.mark.requirement("journal:delivered")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("more", [(), ("connection: close",)], ids=["kept", "closed"])
def test_an_answer_that_is_read_late_is_delivered_then(
    narrow: Pod, stream: bool, more: tuple[str, ...]
) -> None:
    """Until then the same request gets it on another connection, and afterwards begins a turn."""
    body = asked(openai, stream=stream)
    said(narrow, openai, "b" * SMALL, "c")
    with unread(narrow, openai, body, *more) as first:
        eventually(
            lambda: states(narrow) == ["answered"] and first.has_begun(), "the answer is on its way"
        )
        assert first.take_rest()
        eventually(lambda: states(narrow) == ["done"], "it is delivered")
    assert told(openai, post(narrow, openai, body), stream=stream) == "c"
    assert trades(narrow) == 2


@pytest.mark.requirement("journal:delivered")
@pytest.mark.parametrize("stream", [False, True])
def test_while_an_answer_waits_for_one_runner_the_same_request_of_another_gets_it(
    narrow: Pod, stream: bool
) -> None:
    words, body = "b" * SMALL, asked(openai, stream=stream)
    said(narrow, openai, words)
    with unread(narrow, openai, body) as first:
        eventually(first.has_begun, "the answer is on its way")
        for _ in range(2):  # Also when one runner has got it: the first would ask anew
            assert told(openai, post(narrow, openai, body), stream=stream) == words
        assert first.take_rest()
        eventually(lambda: states(narrow) == ["done"], "both have it")
    assert trades(narrow) == 1


@pytest.mark.requirement("journal:delivered")
@pytest.mark.requirement("journal:join")
@pytest.mark.parametrize("stream", [False, True])
def test_of_two_runners_the_one_that_got_a_part_is_given_its_answer_again(
    narrow: Pod, stream: bool
) -> None:
    held, words, body = (
        DelayedAnswer(JSONResponse({"order": 1})),
        "b" * SMALL,
        asked(openai, stream=stream),
    )
    narrow.service.routes["POST", "/trade"] = held
    said(narrow, openai, words)
    with unread(narrow, openai, body) as first, unread(narrow, openai, body) as second:
        eventually(
            lambda: [line["type"] for line in narrow.log()].count("join") == 1,
            "one has joined the other",
        )
        held.go.set()
        assert first.take_rest()
        eventually(second.has_begun, "the other's is on its way")
        narrow.kill()
        assert not second.take_rest()
    narrow.start()
    assert told(openai, post(narrow, openai, body), stream=stream) == words
    assert trades(narrow) == 1


@pytest.mark.requirement("journal:delivered")
@pytest.mark.parametrize("how", ["closes", "resets"])
@pytest.mark.parametrize("more", [(), ("connection: close",)], ids=["kept", "closed"])
def test_an_answer_whose_runner_leaves_before_its_end_was_sent_is_given_again(
    narrow: Pod, how: str, more: tuple[str, ...]
) -> None:
    words, body = "b" * SMALL, asked(openai)
    said(narrow, openai, words)
    first = unread(narrow, openai, body, *more)
    eventually(first.has_begun, "the answer is on its way")
    if how == "resets":
        first._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    first._socket.close()
    assert told(openai, post(narrow, openai, body)) == words
    assert trades(narrow) == 1


@pytest.mark.requirement("journal:delivered")
def test_the_next_request_on_a_connection_does_not_make_the_answer_before_delivered(
    narrow: Pod,
) -> None:
    first, second = asked(openai, "Buy"), asked(openai, "Sell")
    said(narrow, openai, "b" * SMALL, "c" * SMALL)
    both = request(openai.PATH, narrow.token(), first) + request(
        openai.PATH, narrow.token(), second
    )
    with UnreadAnswer(narrow.port, both) as runner:
        eventually(runner.has_begun, "the first answer is on its way")
        narrow.kill()
    narrow.start()
    assert told(openai, post(narrow, openai, first)) == "b" * SMALL
    assert narrow.provider.script or trades(narrow) == 2


@pytest.mark.requirement("journal:delivered")
@pytest.mark.requirement("drain:what-was-begun-ends")
def test_what_is_sent_while_the_proxy_is_being_stopped_is_delivered(narrow: Pod) -> None:
    body = asked(openai)
    said(narrow, openai, "b" * SMALL, "c")
    with unread(narrow, openai, body) as first:
        eventually(first.has_begun, "the answer is on its way")
        assert narrow.process is not None
        narrow.process.send_signal(signal.SIGTERM)
        eventually(lambda: _is_stopping(narrow), "it is being stopped")
        assert first.take_rest()
        assert narrow.process.wait(timeout=30) == 0
    assert states(narrow) == ["done"]
    narrow.start()
    assert told(openai, post(narrow, openai, body)) == "c"
    assert trades(narrow) == 2


@pytest.mark.requirement("journal:delivered")
def test_what_is_not_read_until_the_proxy_has_stopped_is_given_again(pod: Pod) -> None:
    pod.environment["CLLAMA_DRAIN_MS"] = "100"
    pod.script = NARROW
    pod.agent("analyst", pod.tool("trade", "POST"))
    pod.service.routes["POST", "/trade"] = JSONResponse({"order": 1})
    pod.start()
    words, body = "b" * SMALL, asked(openai)
    said(pod, openai, words)
    with unread(pod, openai, body) as first:
        eventually(first.has_begun, "the answer is on its way")
        assert pod.process is not None
        pod.process.send_signal(signal.SIGTERM)
        assert pod.process.wait(timeout=30) == 0
        assert not first.take_rest()
    pod.start()
    assert told(openai, post(pod, openai, body)) == words
    assert trades(pod) == 1


def _is_stopping(pod: Pod) -> Any:
    try:
        return httpx2.get(f"{pod.url}/ready").status_code == 503
    except httpx2.HTTPError:
        return True
