"""The lines that a proxy, and its workers together, write to stdout."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest

from tests.events import known
from tests.fork_server import CLAW, fork_server
from tests.peers import text
from tests.proxy.pod import Pod, headers
from tests.proxy.worker_pair import PAIR, ready_status
from tests.waiting import eventually


@pytest.mark.requirement("workers:lines")
def test_lines_are_whole_in_a_pipe_that_is_read_slowly(pod: Pod) -> None:
    # The path of a request is in its line of the log: each is longer than a pipe takes at once.
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    pod.workers = len(PAIR)
    pod.agent("analyst")
    with os.fdopen(writer, "wb", buffering=0) as output, Path(os.devnull).open("rb") as nothing:
        (pod.home / "home").mkdir()
        command = [
            "workers",
            str(pod.workers),
            "-s",
            str(pod.script),
            "--mode",
            f"reverse:http://pod.invalid@127.0.0.1:{pod.port}",
        ]
        pod.process = fork_server("proxy").start(
            command, pod.home, pod.env(), [nothing, output, output]
        )
    received: list[bytes] = []
    collecting = threading.Thread(
        target=lambda: received.extend(iter(lambda: os.read(reader, 700), b""))
    )
    collecting.start()
    eventually(lambda: ready_status(pod) == 200, "it is ready")
    pod.provider.says(*(text("Hi.") for _ in range(40)))
    with ThreadPoolExecutor(8) as pool:
        list(
            pool.map(
                lambda number: _ask_at(pod, f"/v1/chat/completions?{number}={'x' * 9000}"),
                range(40),
            )
        )
    pod.stop()
    collecting.join(30)
    os.close(reader)
    own = [
        line for line in b"".join(received).decode().splitlines() if "] Loading script " not in line
    ]
    requests = [event for event in map(known, own) if event["type"] == "request"]
    assert len(requests) == 40
    assert {event["worker"] for event in requests} == set(PAIR)


def _ask_at(pod: Pod, path: str) -> None:
    asked = {"model": "gpt-test", "messages": [{"role": "user", "content": path[:40]}]}
    assert (
        httpx2.post(
            f"{pod.url}{path}", json=asked, headers=headers(pod, "analyst"), timeout=30
        ).status_code
        == 200
    )


@pytest.mark.requirement("log:json-only")
@pytest.mark.parametrize("options", [[], ["--workers", "2"]])
def test_the_command_of_the_operator_prints_nothing_but_the_log(
    pod: Pod, options: list[str]
) -> None:
    pod.agent("analyst")
    (pod.home / "home").mkdir()
    with pod.stdout.open("ab") as out, pod.stderr.open("ab") as err:
        command = [*CLAW, "proxy", *options]
        pod.process = subprocess.Popen(
            command, cwd=pod.home, env=pod.env(), stdin=subprocess.DEVNULL, stdout=out, stderr=err
        )
    eventually(lambda: ready_status(pod) == 200, f"it is ready; it said {pod.said()}")
    pod.process.terminate()
    assert pod.process.wait(20) == 0
    lines = pod.stdout.read_text(encoding="utf-8").splitlines()
    assert lines
    assert [line for line in lines if not isinstance(json.loads(line), dict)] == []
    assert "Loading script" in pod.stderr.read_text(encoding="utf-8")
