"""The end of the proxy: running requests may end, and no new one begins.

One that is cut off goes on after the next start.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import openai
import pytest
from starlette.responses import JSONResponse, StreamingResponse

from tests.peers import DelayedAnswer, calls, text
from tests.proxy.pod import Pod, headers
from tests.waiting import eventually

PATHS = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages"}

ENDS = "Python ends"
OF_CPYTHON = re.compile(
    r"Exception in callback StreamReaderProtocol\.connection_made\.<locals>\.callback\(.*?\n"
    r"    exc = task\.exception\(\)\n.*?\nasyncio\.exceptions\.CancelledError\b[^\n]*\n",
    re.DOTALL,
)
"""The message of asyncio in CPython 3.12.1 for each connection that is open when
its loop ends (gone in 3.13).
"""
HOLDS = """
import atexit, os, time
def hold():
    print({ends!r}, flush=True)
    while not os.path.exists({go!r}):
        time.sleep(0.01)
atexit.register(hold)
"""


def asked(words: str, *, stream: bool = False) -> dict[str, Any]:
    return {"model": "gpt-test", "messages": [{"role": "user", "content": words}], "stream": stream}


def ended(pod: Pod) -> int:
    assert pod.process is not None
    return pod.process.wait(timeout=60)


def tell(pod: Pod, sign: signal.Signals = signal.SIGTERM) -> None:
    assert pod.process is not None
    pod.process.send_signal(sign)


def pod_with(pod: Pod, **environment: str) -> None:
    trade = pod.tool(
        "trade", "POST", schema={"type": "object", "properties": {"symbol": {"type": "string"}}}
    )
    pod.agent("analyst", pod.tool("balance"), trade)
    pod.agent("clerk", pod.tool("transfer", "POST"))
    pod.agent("plain")
    pod.environment |= environment
    pod.start()


def passing(go: threading.Event, begun: threading.Event) -> StreamingResponse:
    """Return a provider's stream that ends when the test lets it."""

    async def parts() -> AsyncIterator[bytes]:
        begun.set()
        yield b'data: {"first": 1}\n\n'
        await asyncio.to_thread(go.wait)
        yield b"data: [DONE]\n\n"

    return StreamingResponse(parts(), media_type="text/event-stream")


def flood(begun: threading.Event) -> StreamingResponse:
    """Return a provider's stream that is too large for all buffers on the way."""

    async def parts() -> AsyncIterator[bytes]:
        for _ in range(800):
            yield b": " + b"x" * 65_536 + b"\n\n"
            begun.set()

    return StreamingResponse(parts(), media_type="text/event-stream")


def request(pod: Pod, agent_id: str, body: bytes, length: int) -> bytes:
    head = (
        f"POST {PATHS['openai']} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer "
        f"{pod.token(agent_id)}\r\n"
    )
    return f"{head}content-length: {length}\r\n\r\n".encode() + body


@pytest.mark.requirement("drain:what-was-begun-ends")
@pytest.mark.requirement("drain:nothing-new")
@pytest.mark.requirement("drain:idle")
def test_running_requests_end_whole_and_new_ones_are_refused_with_a_time(pod: Pod) -> None:
    """Its settings change meanwhile, too."""
    source = pod.own_script().read_text(encoding="utf-8")
    pod_with(pod, CLLAMA_DRAIN_MS="60000")
    held, go, begun = DelayedAnswer(JSONResponse({"usd": 1})), threading.Event(), threading.Event()
    pod.service.routes["GET", "/balance"] = held
    body = json.dumps(asked("Before")).encode()
    with (
        ThreadPoolExecutor(3) as pool,
        httpx2.Client(timeout=60) as kept,
        socket.create_connection(("127.0.0.1", pod.port), timeout=60) as idle,
    ):
        pod.provider.says(text("Long ago."))
        idle.sendall(request(pod, "plain", body, len(body)))
        assert idle.recv(65_536).startswith(b"HTTP/1.1 200")
        pod.provider.says(calls(("c1", "desk__balance", {})), text("Whole."))
        whole = pool.submit(
            kept.post, pod.url + PATHS["openai"], json=asked("Go"), headers=headers(pod, "analyst")
        )
        assert held.asked.wait(30)
        pod.provider.script.insert(0, passing(go, begun))
        forwarded = pool.submit(
            httpx2.post, pod.url + PATHS["openai"], json=asked("Go"), headers=headers(pod)
        )
        assert begun.wait(30)
        tell(pod)
        eventually(
            lambda: httpx2.get(f"{pod.url}/ready").status_code == 503, "it is not ready any more"
        )
        assert httpx2.get(f"{pod.url}/health").status_code == 200
        while idle.recv(65_536):
            """Read the rest of the answer, until the proxy closes a connection that
            waits for nothing.
            """
        for sign in (signal.SIGTERM, signal.SIGINT):
            tell(pod, sign)
        pod.set_options(source, cllama_time_line="on")
        new = {
            name: httpx2.post(pod.url + path, json=asked("New"), headers=headers(pod, "analyst"))
            for name, path in PATHS.items()
        }
        go.set()
        held.go.set()
        assert whole.result(60).json()["choices"][0]["message"]["content"] == "Whole."
        assert whole.result().headers["connection"] == "close"
        assert forwarded.result(60).text.endswith("data: [DONE]\n\n")
    assert {(answer.status_code, answer.headers["retry-after"]) for answer in new.values()} == {
        (503, "5")
    }
    assert {answer.headers["connection"] for answer in new.values()} == {"close"}
    assert new["openai"].json()["error"]["code"] == "shutting_down"
    assert new["anthropic"].json()["type"] == "error"
    assert ended(pod) == 0
    assert [entry["status"] for agent in ("analyst", "plain") for entry in pod.history(agent)] == [
        "ok"
    ] * 3
    assert "Traceback" not in pod.said()


@pytest.mark.requirement("drain:nothing-runs")
def test_where_nothing_runs_it_ends_at_once_whatever_connections_are_open(pod: Pod) -> None:
    """One connection is kept alive, one has sent half a request; and the log can't be written."""
    pod.launcher = ("sh", "-c", 'exec "$@" >/dev/full', "sh")
    pod_with(pod, CLLAMA_DRAIN_MS="600000", PYTHONUNBUFFERED="")
    with (
        httpx2.Client(timeout=60) as kept,
        socket.create_connection(("127.0.0.1", pod.port)) as half,
    ):
        half.sendall(request(pod, "analyst", b"{", 100))
        assert kept.get(f"{pod.url}/health").status_code == 200
        tell(pod, signal.SIGINT)
        assert ended(pod) == 0


@pytest.mark.requirement("drain:signals")
def test_signals_change_nothing_to_the_very_end(pod: Pod) -> None:
    """The test holds the process where Python ends, after everything that mitmproxy
    and asyncio do.
    """
    go = pod.home / "go"
    script = pod.own_script()
    script.write_text(
        f"{script.read_text(encoding='utf-8')}\n{HOLDS.format(go=str(go), ends=ENDS)}",
        encoding="utf-8",
    )
    pod_with(pod)
    tell(pod)
    eventually(lambda: ENDS in pod.said(), "Python ends")
    for sign in (signal.SIGTERM, signal.SIGINT):
        tell(pod, sign)
    go.touch()
    assert ended(pod) == 0
    assert "Traceback" not in pod.said()


@pytest.mark.requirement("drain:cut-off")
def test_who_is_cut_off_before_its_turn_has_begun_is_told_to_come_again(pod: Pod) -> None:
    slow = DelayedAnswer(JSONResponse({"calm": True}))
    pod.service.routes["GET", "/feed"] = slow
    pod_with(pod, CLLAMA_DRAIN_MS="300")
    for agent_id in ("analyst", "plain"):
        feed = {
            "name": "f",
            "source": "desk",
            "path": "/feed",
            "ttl": 1,
            "url": f"{pod.service.url}/feed",
        }
        pod.put(agent_id, "feeds.json", [feed])
    with ThreadPoolExecutor(2) as pool:
        waiting = []
        for agent_id, path in (("analyst", PATHS["openai"]), ("plain", PATHS["anthropic"])):
            slow.asked.clear()
            ask = {"json": asked("Go"), "headers": headers(pod, agent_id), "timeout": 60}
            waiting.append(pool.submit(httpx2.post, pod.url + path, **ask))
            assert slow.asked.wait(30)
        tell(pod)
        told = [each.result(60) for each in waiting]
    assert ended(pod) == 0
    slow.go.set()
    assert [(answer.status_code, answer.headers["retry-after"]) for answer in told] == [
        (503, "5")
    ] * 2
    assert told[0].json()["error"]["code"] == "shutting_down"
    assert told[1].json()["type"] == "error"


@pytest.mark.requirement("drain:cut-off")
@pytest.mark.requirement("drain:taken-up")
def test_a_request_that_is_cut_off_is_resumed_by_the_sdks_retry_without_a_second_write(
    pod: Pod,
) -> None:
    pod_with(pod, CLLAMA_DRAIN_MS="300")
    slow, stuck = DelayedAnswer(JSONResponse({"usd": 1})), DelayedAnswer(JSONResponse({"sent": 5}))
    pod.service.routes |= {
        ("POST", "/trade"): JSONResponse({"bought": "NVDA"}),
        ("GET", "/balance"): slow,
        ("POST", "/transfer"): stuck,
    }
    with (
        ThreadPoolExecutor(4) as pool,
        socket.create_connection(("127.0.0.1", pod.port)) as stalled,
    ):
        begun = threading.Event()
        pod.provider.says(flood(begun))
        body = json.dumps(asked("Go", stream=True)).encode()
        stalled.sendall(request(pod, "plain", body, len(body)))
        assert begun.wait(30)
        create = {"max_retries": 20, "timeout": 60}
        pod.provider.says(
            calls(("c1", "desk__trade", {"symbol": "NVDA"})), calls(("c2", "desk__balance", {}))
        )
        traded = pool.submit(pod.client(**create).chat.completions.create, **asked("Buy"))
        assert slow.asked.wait(30)
        pod.provider.says(calls(("c3", "desk__transfer", {})))
        sent = pool.submit(pod.client("clerk", **create).chat.completions.create, **asked("Send"))
        assert stuck.asked.wait(30)
        hanging = DelayedAnswer(text("too late"))
        pod.provider.says(calls(("c4", "desk__balance", {})), hanging)
        slow.asked.clear()
        streamed = pool.submit(
            lambda: list(pod.client().chat.completions.create(**asked("Look", stream=True)))
        )
        assert slow.asked.wait(30)
        tell(pod)
        with pytest.raises(openai.APIError, match="the proxy is being stopped"):
            streamed.result(60)
        assert ended(pod) == 0
        cut = [
            (entry["status_code"], entry["turn_id"])
            for agent in ("analyst", "clerk")
            for entry in pod.history(agent)
        ]
        assert [status for status, _ in cut] == [503, 503, 503]
        assert [entry["status_code"] for entry in pod.history("plain")] == [503]
        pod.provider.script.clear()
        for held in (slow, stuck, hanging):
            held.go.set()
        pod.provider.says(text("Done."), text("Done."))
        pod.start()
        assert [each.result(60).choices[0].message.content for each in (traded, sent)] == [
            "Done.",
            "Done.",
        ]
    writes = [received.path for received in pod.service.received if received.method == "POST"]
    assert sorted(writes) == ["/trade", "/transfer"]
    told = {
        str(received.json["messages"][0]["content"]): str(received.json["messages"])
        for received in pod.provider.received[-2:]
    }
    assert "NVDA" in told["Buy"]
    assert "outcome_unknown" in told["Send"]
    again = [
        entry
        for agent in ("analyst", "clerk")
        for entry in pod.history(agent)
        if entry["status"] == "ok"
    ]
    assert {entry["turn_id"] for entry in again} <= {turn_id for _, turn_id in cut}
    assert "Traceback" not in OF_CPYTHON.sub("", pod.said())
