"""The metrics of several workers are added up to one page."""

from __future__ import annotations

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from claw_mediate.telemetry.metrics import HealthSnapshot, Metrics
from claw_mediate.telemetry.metrics_sum import (
    Snapshot,
    SummedMetrics,
    add_up,
    decode,
    encode,
    keep_counts,
    snapshot,
)

pytestmark = pytest.mark.requirement("workers:one-page")


def worker(ready: bool, resumed: int) -> Snapshot:
    """Return what one worker says, as it comes out of the socket."""
    metrics = Metrics()
    for _ in range(resumed):
        metrics.resumes.labels("analyst").inc()
    metrics.own_seconds.observe(0.004)
    health = HealthSnapshot(ready, True, {("openai", "ready"): 2})
    metrics.observe(health, turns=3, dropped=0)
    return decode(encode(snapshot(metrics.registry)))


def values(metrics: Snapshot) -> dict[tuple[str, str], float]:
    """Return the samples of the page that is made of a snapshot."""
    page = generate_latest(SummedMetrics(metrics)).decode()
    return {
        (sample.name, ",".join(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def test_counts_and_most_gauges_are_added_up() -> None:
    summed = values(add_up([worker(True, 2), worker(True, 5)]))
    assert summed["claw_resumes_total", "analyst"] == 7
    assert summed["claw_turn_overhead_seconds_count", ""] == 2
    assert summed["claw_turn_overhead_seconds_bucket", "0.005"] == 2
    assert summed["claw_turns_under_way", ""] == 6


def test_the_proxy_is_as_ready_as_its_least_ready_worker() -> None:
    assert values(add_up([worker(True, 0), worker(False, 0)]))["claw_ready", ""] == 0
    assert values(add_up([worker(True, 0), worker(True, 0)]))["claw_ready", ""] == 1


def test_keys_that_all_workers_read_from_one_file_count_once() -> None:
    summed = values(add_up([worker(True, 0), worker(True, 0)]))
    assert summed["claw_provider_keys", "openai,ready"] == 2


def test_of_a_worker_that_has_ended_only_its_counts_are_kept() -> None:
    ended = keep_counts(worker(False, 4))
    summed = values(add_up([ended, worker(True, 1)]))
    assert summed["claw_resumes_total", "analyst"] == 5
    assert summed["claw_ready", ""] == 1
    assert summed["claw_turns_under_way", ""] == 3
