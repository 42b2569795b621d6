"""The start, the end and the replacement of workers (decision 0035)."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from starlette.responses import JSONResponse

from claw_mediate.workers.supervisor import LATE_SECONDS, MAX_FAILED_STARTS
from tests.fork_server import ALIVE_SECONDS, CLAW
from tests.peers import DelayedAnswer, calls, text
from tests.proxy.pod import Pod
from tests.proxy.worker_pair import (
    PAIR,
    ask,
    is_alive,
    ready_status,
    start,
    trade_everywhere,
    workers,
)
from tests.waiting import eventually


@pytest.mark.requirement("workers:option")
def test_the_command_of_the_operator_starts_workers(pod: Pod) -> None:
    pod.agent("analyst")
    (pod.home / "home").mkdir()
    command = [*CLAW, "proxy", "--workers", "2"]
    with pod.stdout.open("ab") as out, pod.stderr.open("ab") as err:
        pod.process = subprocess.Popen(
            command, cwd=pod.home, env=pod.env(), stdin=subprocess.DEVNULL, stdout=out, stderr=err
        )
    eventually(lambda: ready_status(pod) == 200, f"it is ready; it said {pod.said()}")
    assert len(workers(pod)) == len(PAIR)
    pod.process.terminate()
    assert pod.process.wait(20) == 0


@pytest.mark.requirement("workers:replaced", "workers:start-fails")
def test_a_worker_that_can_start_no_more_ends_the_proxy_with_its_reason(pod: Pod) -> None:
    start(pod)
    (pod.home / "context").rename(pod.home / "elsewhere")
    os.kill(workers(pod)[1], signal.SIGKILL)
    assert pod.process is not None
    assert pod.process.wait(30) == 1
    assert pod.said().count("cllama: no context directory at") == MAX_FAILED_STARTS


@pytest.mark.requirement("workers:silent")
def test_a_worker_that_hangs_is_killed_and_replaced(pod: Pod) -> None:
    pod.environment[ALIVE_SECONDS] = "0.6"
    start(pod)
    stopped, other = workers(pod)
    os.kill(stopped, signal.SIGSTOP)
    eventually(lambda: not is_alive(stopped), "it is killed")
    eventually(lambda: ready_status(pod) == 200, "another has its place")
    assert other in workers(pod)
    assert len(workers(pod)) == len(PAIR)
    hangs, replaced = [
        event["reason"] for event in pod.log() if event.get("error") == "worker_died"
    ]
    assert (
        hangs == f"worker 1 (process {stopped}) hangs: it has not replied for 3.6 s; it is killed"
    )
    assert replaced == f"worker 1 (process {stopped}) was ended by SIGKILL; it is replaced at once"
    trade_everywhere(pod, "replaced")


@pytest.mark.requirement("workers:silent")
def test_nobody_is_killed_because_the_whole_proxy_was_stopped(pod: Pod) -> None:
    pod.environment[ALIVE_SECONDS] = "0.6"
    start(pod)
    assert pod.process is not None
    pids = workers(pod)
    for pid in (pod.process.pid, *pids):
        os.kill(pid, signal.SIGSTOP)
    time.sleep(5)  # longer than a worker may be silent
    for pid in (pod.process.pid, *pids):
        os.kill(pid, signal.SIGCONT)
    trade_everywhere(pod, "goes on")
    assert workers(pod) == pids
    assert [event for event in pod.log() if event.get("error") == "worker_died"] == []


@pytest.mark.requirement("workers:signals", "workers:no-orphans")
@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_the_end_of_the_supervisor_drains_all_workers(pod: Pod, sign: signal.Signals) -> None:
    pod.environment["CLLAMA_DRAIN_MS"] = "30000"
    start(pod)
    held = DelayedAnswer(JSONResponse({"order": 1}))
    pod.service.routes["POST", "/trade"] = held
    pids = workers(pod)
    with ThreadPoolExecutor(6) as pool:
        pod.provider.says(*(calls((f"c{number}", "desk__trade", {})) for number in range(6)))
        turns = [pool.submit(ask, pod, f"drain {number}") for number in range(6)]
        eventually(
            lambda: len(pod.service.received) == len(turns), "all turns wait for their write"
        )
        assert pod.process is not None
        pod.process.send_signal(sign)
        # Where the supervisor was killed, a new proxy may come: nobody connects to the old one any
        # more.
        refused = 0 if sign == signal.SIGKILL else 503
        eventually(
            lambda: {ready_status(pod) for _ in range(8)} == {refused},
            "none of them begins anything new",
        )
        pod.provider.says(*(text("Bought.") for _ in turns))
        held.go.set()
        assert [turn.result() for turn in turns] == ["Bought."] * len(turns)
    eventually(lambda: not any(map(is_alive, pids)), "all workers have ended")
    assert pod.process.wait(10) == (-sign if sign == signal.SIGKILL else 0)


@pytest.mark.requirement("workers:hung")
def test_a_worker_that_does_not_end_is_killed_after_its_drain(pod: Pod) -> None:
    pod.environment["CLLAMA_DRAIN_MS"] = "1500"
    start(pod)
    assert pod.process is not None
    pids = workers(pod)
    os.kill(pids[0], signal.SIGSTOP)
    begun = time.monotonic()
    pod.process.terminate()
    eventually(lambda: not is_alive(pids[1]), "the other one ends at once")
    assert pod.process.wait(30) == 128 + signal.SIGKILL
    assert time.monotonic() - begun >= 1.5 + LATE_SECONDS
    assert not any(map(is_alive, pids))
    died = [event for event in pod.log() if event.get("error") == "worker_died"]
    assert [event["reason"] for event in died] == [
        f"worker 1 (process {pids[0]}) did not end in 5.5 s; it is killed"
    ]
