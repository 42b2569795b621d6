"""The page of metrics, and the counting of events that no test of the proxy causes."""

from __future__ import annotations

import re
from typing import Any, get_args

import pytest
import yaml

from claw_contract.log import EventType
from claw_mediate.telemetry.metrics import HealthSnapshot, Metrics
from tests.metrics_page import PAGE, metrics, series, written

OURS = {
    "ts": "",
    "claw_id": "analyst",
    "turn_id": "t",
    "model": "m",
    "intervention": None,
    "digest": None,
}


def grown(*events: dict[str, Any]) -> dict[tuple[str, ...], float]:
    """Return the values in the registry after these events, by name and labels, without zeros."""
    counted = Metrics()
    for event in events:
        counted.count({**OURS, **event})
    samples = [sample for family in counted.registry.collect() for sample in family.samples]
    ours = [
        sample
        for sample in samples
        if sample.name.startswith("claw_") and sample.name != "claw_build_info"
    ]
    return {
        (each.name, *each.labels.values()): each.value
        for each in ours
        if each.value and "le" not in each.labels
    }


def blocks() -> dict[str, Any]:
    """Return the YAML blocks of the page, by the name in their first line."""
    found = re.findall(
        r"```yaml\n(?:# (\S+)\n)?(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL
    )
    return {name: yaml.safe_load(text) for name, text in found}


@pytest.mark.requirement("metrics:page")
def test_the_page_has_every_metric_as_the_registry_has_it() -> None:
    assert PAGE.read_text(encoding="utf-8") == written(), "run: python -m tests.metrics_page"


@pytest.mark.requirement("metrics:page")
def test_the_rules_of_the_page_ask_for_metrics_and_labels_that_there_are() -> None:
    known = {series(metric): set(metric._labelnames) for metric in metrics()}
    rules = blocks()["alerts.yml"]["groups"][0]["rules"]
    assert len(rules) > 3
    for rule in rules:
        asked = re.findall(r"(claw_\w+)(?:\{(.*?)\})?", rule["expr"])
        for name, matchers in asked:
            assert set(re.findall(r"(\w+)!?=", matchers)) <= known[name], rule
        for label in re.findall(
            r"by \((\w+)\)|\$labels\.(\w+)", rule["expr"] + str(rule["annotations"])
        ):
            assert all("".join(label) in known[name] for name, _ in asked), rule


def test_names_are_of_prometheus_conventions() -> None:
    for metric in metrics():
        family = metric.describe()[0]
        assert re.fullmatch(r"claw_[a-z_]+", family.name)
        assert family.type != "histogram" or re.search(r"_seconds$|_rounds$", family.name)
        assert family.documentation.endswith(".")


@pytest.mark.parametrize("kind", get_args(EventType.__value__))
def test_every_event_can_be_counted_or_is_passed_over(kind: str) -> None:
    counted = Metrics()
    assert (kind in counted._handlers) == (
        kind not in {"provider_pool", "feed_injection", "tool_manifest_loaded", "state"}
    )


@pytest.mark.requirement("metrics:counts")
def test_what_became_of_conversations_is_counted() -> None:
    missed = {"unknown": 2, "evicted": 0, "other_conversation": 1, "over_bound": 0}
    assert grown(
        {"type": "continuity", "hits": 3, "missed": missed},
        {"type": "resume", "replies": 1, "calls": 1, "unknown": 0},
        {"type": "join", "how": "awaited", "waiting": 0, "bytes": 9},
    ) == {
        ("claw_continuity_anchors_total", "analyst", "hit"): 3,
        ("claw_continuity_anchors_total", "analyst", "unknown"): 2,
        ("claw_continuity_anchors_total", "analyst", "other_conversation"): 1,
        ("claw_resumes_total", "analyst"): 1,
        ("claw_joins_total", "analyst", "awaited"): 1,
    }


ENDED = {
    "type": "response",
    "status_code": 200,
    "latency_ms": 900,
    "tokens_in": 0,
    "tokens_out": 0,
    "cached_tokens": 0,
    "cost_usd": 0.0,
    "total_rounds": 1,
    "mediated": True,
    "provider": "",
    "model_calls": (),
    "overhead_ms": 1.0,
}


@pytest.mark.requirement("live:metrics")
def test_the_times_of_live_turns_are_counted_and_a_buffered_one_has_none() -> None:
    times = {"ttft_ms": 250, "upstream_ttft_ms": 200, "held_ms": 30}
    live = {**ENDED, "stream_mode": "live", **times, "shown_rounds": 1}
    silent = {**ENDED, "stream_mode": "live", "shown_rounds": 0}
    buffered = {**ENDED, "stream_mode": "buffered"}
    values = grown(live, silent, buffered)
    assert {
        name: value for name, value in values.items() if "first" in name[0] or "held" in name[0]
    } == {
        ("claw_turn_first_content_seconds_count",): 1,
        ("claw_turn_first_content_seconds_sum",): 0.25,
        ("claw_model_first_content_seconds_count",): 1,
        ("claw_model_first_content_seconds_sum",): 0.2,
        ("claw_turn_held_seconds_count",): 1,
        ("claw_turn_held_seconds_sum",): 0.03,
    }


@pytest.mark.requirement("live:metrics")
def test_turns_that_were_not_to_be_live_or_were_cut_are_counted() -> None:
    assert grown(
        {"type": "live_fallback", "reason": "audio"},
        {"type": "live_cut", "where": "text", "code": "provider_http_503"},
    ) == {
        ("claw_live_fallbacks_total", "analyst", "audio"): 1,
        ("claw_live_cuts_total", "analyst", "text", "provider_http_5xx"): 1,
    }


@pytest.mark.requirement("metrics:counts")
def test_what_failed_is_counted_by_what_it_was() -> None:
    moved = {
        "from_provider": "openai",
        "to_provider": "backup",
        "from_model": "a",
        "to_model": "b",
        "reason": "http_503",
    }
    assert grown(
        {"type": "failover", **moved},
        {"type": "feed_fetch", "feed_name": "news", "error": "timeout"},
        {"type": "feed_fetch", "feed_name": "news", "error": None},
        {"type": "memory_op", "memory_op": "recall", "memory_status": "timed_out"},
        {"type": "error", "error": "history_not_written", "reason": "no space"},
    ) == {
        ("claw_failovers_total", "openai", "backup", "http_5xx"): 1,
        ("claw_feed_fetches_total", "analyst", "news", "error"): 1,
        ("claw_feed_fetches_total", "analyst", "news", "ok"): 1,
        ("claw_memory_operations_total", "analyst", "recall", "timed_out"): 1,
        ("claw_faults_total", "history_not_written"): 1,
    }


@pytest.mark.requirement("metrics:secrets")
def test_the_text_after_an_interventions_name_makes_no_series() -> None:
    events = [
        {"type": "intervention", "intervention": f"unknown_tool_rejected:made-up-{n}"}
        for n in range(100)
    ]
    assert grown(*events) == {("claw_interventions_total", "analyst", "unknown_tool_rejected"): 100}


@pytest.mark.requirement("metrics:secrets")
def test_a_service_makes_no_series_by_the_statuses_that_it_answers_with() -> None:
    called = {
        "type": "tool_call",
        "name": "desk.balance",
        "service": "desk",
        "ran": False,
        "status": "error",
    }
    events = [{**called, "code": f"http_{status}"} for status in range(400, 600)]
    assert grown(
        *events, {**called, "code": "timeout"}, {**called, "status": "ok", "code": None}
    ) == {
        ("claw_tool_calls_total", "analyst", "desk.balance", "error", "http_4xx"): 100,
        ("claw_tool_calls_total", "analyst", "desk.balance", "error", "http_5xx"): 100,
        ("claw_tool_calls_total", "analyst", "desk.balance", "error", "timeout"): 1,
        ("claw_tool_calls_total", "analyst", "desk.balance", "ok", ""): 1,
    }


def test_gauges_show_the_present_and_dropped_lines_are_counted_once() -> None:
    counted = Metrics()
    keys = {("openai", "ready"): 1, ("openai", "dead"): 2}
    counted.observe(HealthSnapshot(ready=True, state_writable=True, keys=keys), 3, 7)  # type: ignore[arg-type]
    counted.observe(HealthSnapshot(), 0, 9)
    now = {
        sample.name: sample.value
        for family in counted.registry.collect()
        for sample in family.samples
    }
    assert now["claw_log_lines_dropped_total"] == 9
    assert now["claw_ready"] == now["claw_state_writable"] == now["claw_turns_under_way"] == 0
    assert "claw_provider_keys" not in now, "a provider that is gone is not told of"
