"""Listeners that workers share, in the real proxy: taken over, and refused where they can't be."""

from __future__ import annotations

import os
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest

from tests.proxy.pod import Pod
from tests.proxy.worker_pair import PAIR, is_alive, ready_status, start, trade, workers
from tests.waiting import eventually


@pytest.mark.requirement("workers:gone")
@pytest.mark.parametrize("keeps", [False, True], ids=["new connections", "kept connections"])
def test_no_request_gets_an_empty_answer_when_a_killed_proxy_starts_again(
    pod: Pod, keeps: bool
) -> None:
    start(pod)
    assert pod.process is not None
    old, is_over, asking = workers(pod), threading.Event(), 4
    outcomes: list[str] = []

    def ask_again_and_again() -> None:
        with httpx2.Client(timeout=10) as client:
            while not is_over.is_set():
                try:
                    answer = (client if keeps else httpx2).get(f"{pod.url}/health", timeout=10)
                    outcomes.append(str(answer.status_code))
                except httpx2.TransportError as error:
                    outcomes.append(type(error).__name__)

    with ThreadPoolExecutor(asking) as pool:
        loops = [pool.submit(ask_again_and_again) for _ in range(asking)]
        eventually(lambda: len(outcomes) > 20 * asking, "requests come")
        os.kill(pod.process.pid, signal.SIGKILL)
        assert pod.process.wait(10) == -signal.SIGKILL
        pod.start()  # at once, at the same address
        before = len(outcomes)
        eventually(lambda: outcomes[before:].count("200") > 20 * asking, "the new one answers")
        is_over.set()
        for each in loops:
            each.result()
    assert set(outcomes) <= {"200", "503", "ConnectError"}
    eventually(lambda: not any(map(is_alive, old)), "the old workers have ended")
    assert trade(pod, "again") == "Bought."


@pytest.mark.requirement("workers:gone")
def test_a_new_proxy_waits_until_the_old_listeners_are_gone(pod: Pod) -> None:
    with socket.socket() as old:
        old.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        old.bind(("127.0.0.1", pod.port))
        old.listen()
        start(pod, wait=False)
        eventually(lambda: "is in use; waiting 5 s for it to be free" in pod.said(), "it waits")
        assert pod.process is not None
        assert pod.process.poll() is None
    eventually(lambda: ready_status(pod) == 200, "it has the address")


@pytest.mark.requirement("workers:refused", "workers:start-fails")
@pytest.mark.parametrize(
    ("environment", "arguments", "line"),
    [
        (
            {"CLAW_STATE": ""},
            (),
            "cllama: 2 workers need a state that they share: set CLAW_STATE to a file",
        ),
        (
            {},
            ("-w", "flows"),
            "cllama: save_stream_file: 2 workers would write one file (run --workers 1)",
        ),
        (
            {},
            ("--mode", "reverse:https://example.com@0"),
            "workers share listeners of TCP with a fixed port",
        ),
        ({}, ("--mode", "local:curl"), "workers share listeners of TCP with a fixed port"),
    ],
)
def test_what_workers_cannot_share_is_refused_at_the_start(
    pod: Pod, environment: dict[str, str], arguments: tuple[str, ...], line: str
) -> None:
    pod.environment |= environment
    start(pod, *arguments, wait=False)
    assert pod.process is not None
    assert pod.process.wait(30) == 1
    assert pod.said().count(line) == 1, "no other worker tries"


@pytest.mark.requirement("workers:share", "workers:start-fails")
@pytest.mark.parametrize("taken", ["port", "metrics"])
def test_an_address_of_another_proxy_with_workers_is_refused(
    pair: Pod, pod: Pod, taken: str
) -> None:
    pod.port = pair.port if taken == "port" else pod.port
    pod.workers = len(PAIR)
    pod.agent("analyst")
    pod.environment["CLAW_METRICS_ADDR"] = (
        pair.environment["CLAW_METRICS_ADDR"] if taken == "metrics" else ""
    )
    pod.start(wait=False)
    assert pod.process is not None
    assert pod.process.wait(30) == 1
    assert "address already in use" in pod.said().lower()
