"""Questions that a worker asks all others: the sum of their metrics, and whether all are ready."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest

from tests.proxy.pod import Pod
from tests.proxy.worker_pair import PAIR, metrics, ready_status, trade_everywhere, workers
from tests.waiting import DEADLINE, eventually


@pytest.mark.requirement("workers:one-page", "workers:replaced")
def test_counts_are_those_of_all_workers_and_none_falls_when_one_dies(pair: Pod) -> None:
    number = trade_everywhere(pair, "count")
    seen = metrics(pair)
    assert (
        seen["claw_tool_calls_total"]
        == seen["claw_requests_total"]
        == seen["claw_turn_duration_seconds_count"]
        >= number
    )
    assert (seen["claw_workers"], seen["claw_ready"], seen["claw_provider_keys"]) == (2, 1, 2)
    assert all(
        metrics(pair)["claw_requests_total"] == seen["claw_requests_total"] for _ in range(8)
    ), "whoever is asked"
    before = workers(pair)
    os.kill(before[0], signal.SIGKILL)
    eventually(
        lambda: len(workers(pair)) == len(PAIR) and before[0] not in workers(pair),
        "a worker takes its place",
    )
    eventually(lambda: ready_status(pair) == 200, "all are up again")
    now = metrics(pair)
    assert now["claw_requests_total"] == seen["claw_requests_total"]
    assert now["claw_faults_total"] > seen.get("claw_faults_total", 0)
    died = [event for event in pair.log() if event.get("error") == "worker_died"]
    assert f"(process {before[0]}) was ended by SIGKILL; it is replaced" in died[-1]["reason"]
    trade_everywhere(pair, "again")


@pytest.mark.requirement("workers:one-page", "workers:signals")
def test_the_proxy_is_ready_when_all_workers_are(pair: Pod) -> None:
    trade_everywhere(pair, "ready")
    before = metrics(pair)["claw_requests_total"]
    stopped = workers(pair)[0]
    with ThreadPoolExecutor(24) as pool:
        os.kill(stopped, signal.SIGSTOP)
        try:  # half of the connections reach the one that is stopped, and wait
            pages = [pool.submit(_counted, pair) for _ in range(16)]
            counts = eventually(
                lambda: {each.result() for each in pages if each.done()}, "the other worker counts"
            )
            answers = [pool.submit(ready_status, pair, DEADLINE) for _ in range(8)]
            states = eventually(
                lambda: {each.result() for each in answers if each.done()},
                "the other worker answers",
            )
        finally:
            os.kill(stopped, signal.SIGCONT)
    assert counts == {before}, "what a silent worker counted stays in the sum"
    assert states == {503}
    assert pair.process is not None
    pair.process.send_signal(signal.SIGHUP)
    eventually(lambda: ready_status(pair) == 200, "it goes on")
    assert (
        "is not up"
        in [event for event in pair.log() if event.get("error") == "not_ready"][-1]["reason"]
    )


@pytest.mark.requirement("workers:one-page")
def test_a_worker_gives_no_page_of_its_own_counts_alone(pair: Pod) -> None:
    assert pair.process is not None
    time.sleep(0.12)
    os.kill(pair.process.pid, signal.SIGSTOP)  # the supervisor
    try:
        with pytest.raises(httpx2.RemoteProtocolError):
            httpx2.get(f"http://{pair.environment['CLAW_METRICS_ADDR']}/metrics", timeout=10)
    finally:
        os.kill(pair.process.pid, signal.SIGCONT)
    assert metrics(pair)["claw_workers"] == len(PAIR)


def _counted(pod: Pod) -> float:
    return metrics(pod)["claw_requests_total"]
