"""Prometheus metrics (docs/metrics.md), counted from the log's events, so that both agree.

Gauges are set on request.

No label is free text: agents, tools, feeds and providers have the names of the operator's files,
all else is from a closed set. A tool that nobody was granted is ``unknown``. The model's name is
the runner's choice, and so it is no label.
"""

import platform
from collections import Counter as Counts
from collections.abc import Callable, Mapping
from importlib.metadata import version
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from claw_mediate.core.http import GONE
from claw_mediate.core.model_policy import KeyState
from claw_mediate.telemetry.event_log import Event

UNKNOWN_TOOL: Final = "unknown"
_OPENMETRICS = "application/openmetrics-text"
_WAITS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300)
_OVERHEADS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1, 5)
_HOLDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_ROUNDS = (0, 1, 2, 3, 4, 6, 8, 10)
_SUCCESS = range(200, 300)

disable_created_metrics()  # a second series for each counter that nobody uses

KEY_STATES: Final[tuple[KeyState, ...]] = ("ready", "cooldown", "dead")


class HealthSnapshot(NamedTuple):
    """A mediator's state now."""

    ready: bool = False
    state_writable: bool = False
    keys: Mapping[tuple[str, KeyState], int] = MappingProxyType({})
    """The number of keys by provider and state."""


class Metrics:
    """A registry of all metrics, and their updates."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._define_counters()
        self._define_histograms()
        self._define_gauges()
        self._dropped_lines = 0
        self._handlers: dict[str, Callable[[Any], None]] = {
            "request": self._request,
            "response": self._request_ended,
            "error": self._error,
            "tool_call": self._tool_call,
            "intervention": self._intervention,
            "failover": self._failover,
            "feed_fetch": self._feed_fetch,
            "memory_op": self._memory_op,
            "continuity": self._continuity,
            "resume": lambda event: self.resumes.labels(event["claw_id"]).inc(),
            "join": lambda event: self.joins.labels(event["claw_id"], event["how"]).inc(),
            "live_fallback": self._live_fallback,
            "live_cut": self._live_cut,
        }

    def _define_counters(self) -> None:
        self.requests = self._counter(
            "requests", "agent mediated", "Requests of authenticated agents (request)."
        )
        self.ended = self._counter(
            "requests_ended",
            "agent mediated outcome",
            "Requests that have ended, by outcome (response, error).",
        )
        self.errors = self._counter(
            "request_errors", "agent code", "Failed requests, by error code (error)."
        )
        self.tool_calls = self._counter(
            "tool_calls", "agent tool status code", "Calls of managed tools (tool_call)."
        )
        self.tokens = self._counter(
            "tokens", "agent provider kind", "Tokens that providers report (response, error)."
        )
        self.cost = self._counter(
            "cost_usd",
            "agent provider",
            "Cost in US dollars of requests with a known price (response, error).",
        )
        self.unpriced = self._counter(
            "unpriced_requests",
            "agent provider",
            "Requests that used tokens but have no known price (response, error).",
        )
        self.interventions = self._counter(
            "interventions",
            "agent intervention",
            "Times that the proxy changed or refused a request (intervention).",
        )
        self.failovers = self._counter(
            "failovers",
            "from_provider to_provider reason",
            "Moves to another provider or model (failover).",
        )
        self.resumes = self._counter(
            "resumes", "agent", "Turns that continued an interrupted attempt (resume)."
        )
        self.joins = self._counter(
            "joins",
            "agent how",
            "Retries that received the answer of an earlier request's turn (join).",
        )
        self.live_fallbacks = self._counter(
            "live_fallbacks",
            "agent reason",
            "Turns that were to stream live and were buffered, by reason (live_fallback).",
        )
        self.live_cuts = self._counter(
            "live_cuts", "agent where code", "Live streams that were cut (live_cut)."
        )
        self.anchors = self._counter(
            "continuity_anchors",
            "agent result",
            "Lookups of hidden rounds for earlier answers, by result (continuity).",
        )
        self.feeds = self._counter(
            "feed_fetches", "agent feed status", "Fetches of feeds (feed_fetch)."
        )
        self.memory = self._counter(
            "memory_operations",
            "agent operation status",
            "Requests to memory services (memory_op).",
        )
        self.faults = self._counter(
            "faults", "fault", "Faults of the proxy or its surroundings, by error code (error)."
        )
        self.dropped = self._counter(
            "log_lines_dropped", "", "Lines of the log that were lost: not read, or no space left."
        )

    def _define_histograms(self) -> None:
        self.turn_seconds = self._histogram(
            "turn_duration_seconds", "", _WAITS, "Duration of a mediated turn (response, error)."
        )
        self.model_seconds = self._histogram(
            "model_duration_seconds",
            "provider status",
            _WAITS,
            "Duration of a request to a provider (model_calls of response, error).",
        )
        self.tool_seconds = self._histogram(
            "tool_duration_seconds",
            "tool",
            _WAITS,
            "Duration of a request to a service (tool_call).",
        )
        self.own_seconds = self._histogram(
            "turn_overhead_seconds",
            "",
            _OVERHEADS,
            (
                "Duration of a mediated turn without waiting for providers and services "
                "(overhead_ms of response, error)."
            ),
        )
        self.rounds = self._histogram(
            "turn_rounds", "", _ROUNDS, "Model replies in a mediated turn (response, error)."
        )

        self.first_content_seconds = self._histogram(
            "turn_first_content_seconds",
            "",
            _WAITS,
            "Time until a live turn shows its first content (ttft_ms of response, error).",
        )
        self.model_first_content_seconds = self._histogram(
            "model_first_content_seconds",
            "",
            _WAITS,
            (
                "Time until the first reply of a live turn has content "
                "(upstream_ttft_ms of response, error)."
            ),
        )
        self.held_seconds = self._histogram(
            "turn_held_seconds",
            "",
            _HOLDS,
            (
                "Time for which a live turn held replies from their first call on "
                "(held_ms of response, error)."
            ),
        )

    def _define_gauges(self) -> None:
        self.turns = self._gauge("turns_under_way", "", "Mediated turns that are running.")
        self.ready = self._gauge("ready", "", "1 if the proxy can serve turns, as /ready reports.")
        self.writable = self._gauge("state_writable", "", "1 if CLAW_STATE can be written.")
        self.keys = self._gauge("provider_keys", "provider state", "Keys of a provider, by state.")
        self.built = self._gauge(
            "build_info", "version mitmproxy python", "Versions of the proxy, mitmproxy and Python."
        )
        versions = version("clawdapus"), version("mitmproxy"), platform.python_version()
        self.built.labels(*versions).set(1)

    def count(self, event: Event) -> None:
        """Count an event of the log, if a metric is about it."""
        handler = self._handlers.get(event["type"])
        if handler is not None:
            handler(event)

    def observe(self, health: HealthSnapshot, turns: int, dropped: int) -> None:
        """Set the gauges.

        ``dropped``: lines of the log that were dropped since the process started.
        """
        self.turns.set(turns)
        self.ready.set(health.ready)
        self.writable.set(health.state_writable)

        self.keys.clear()
        for provider in {provider for provider, _ in health.keys}:
            for state in KEY_STATES:
                self.keys.labels(provider, state).set(health.keys.get((provider, state), 0))

        self.dropped.inc(dropped - self._dropped_lines)
        self._dropped_lines = dropped

    def text(self, accept: str) -> tuple[bytes, str]:
        return write_text(self.registry, accept)

    def _request(self, event: Event) -> None:
        self.requests.labels(event["claw_id"], _yes_no(event["mediated"])).inc()

    def _error(self, event: Event) -> None:
        if "status_code" not in event:  # a fault of the proxy, and the end of no request
            self.faults.labels(event["error"]).inc(1 + event.get("left_out", 0))
            return

        code = event.get("error") or f"http_{event['status_code']}"
        self.errors.labels(event["claw_id"], _status_class(code)).inc()
        self._request_ended(event)

    def _request_ended(self, event: Event) -> None:
        agent = event["claw_id"]
        provider = event["provider"]
        mediated = event["mediated"]
        outcome = "error"
        if event["type"] == "response":
            outcome = "ok"
        elif event["status_code"] == GONE:
            outcome = "left"
        self.ended.labels(agent, _yes_no(mediated), outcome).inc()

        tokens = {
            "input": event["tokens_in"],
            "output": event["tokens_out"],
            "cached": event["cached_tokens"],
        }
        if provider:
            for kind, count in tokens.items():
                self.tokens.labels(agent, provider, kind).inc(max(0, count))
        if event["cost_usd"] is not None:
            self.cost.labels(agent, provider).inc(max(0.0, event["cost_usd"]))
        elif any(tokens.values()):
            self.unpriced.labels(agent, provider).inc()

        for call in event["model_calls"]:
            status = "ok" if call["status_code"] in _SUCCESS else "error"
            self.model_seconds.labels(call["provider"], status).observe(call["latency_ms"] / 1000)

        if mediated:
            self.turn_seconds.observe(event["latency_ms"] / 1000)
            self.own_seconds.observe(event["overhead_ms"] / 1000)
            self.rounds.observe(event["total_rounds"])
            self._stream_ended(event)

    def _stream_ended(self, event: Event) -> None:
        """Count the times of a live turn; a buffered one has none."""
        histograms = {
            "ttft_ms": self.first_content_seconds,
            "upstream_ttft_ms": self.model_first_content_seconds,
            "held_ms": self.held_seconds,
        }
        for name, histogram in histograms.items():
            if name in event:
                histogram.observe(event[name] / 1000)

    def _tool_call(self, event: Event) -> None:
        tool = event["name"] if event["service"] else UNKNOWN_TOOL
        code = _status_class(event["code"] or "")
        self.tool_calls.labels(event["claw_id"], tool, event["status"], code).inc()
        if event["ran"]:
            self.tool_seconds.labels(tool).observe(event["latency_ms"] / 1000)

    def _intervention(self, event: Event) -> None:
        # What follows a colon is free text.
        name, _, _ = event["intervention"].partition(":")
        self.interventions.labels(event["claw_id"], name).inc()

    def _failover(self, event: Event) -> None:
        reason = _status_class(event["reason"])
        self.failovers.labels(event["from_provider"], event["to_provider"], reason).inc()

    def _live_fallback(self, event: Event) -> None:
        self.live_fallbacks.labels(event["claw_id"], event["reason"]).inc()

    def _live_cut(self, event: Event) -> None:
        code = _status_class(event["code"])
        self.live_cuts.labels(event["claw_id"], event["where"], code).inc()

    def _feed_fetch(self, event: Event) -> None:
        status = "error" if event["error"] else "ok"
        self.feeds.labels(event["claw_id"], event["feed_name"], status).inc()

    def _memory_op(self, event: Event) -> None:
        self.memory.labels(event["claw_id"], event["memory_op"], event["memory_status"]).inc()

    def _continuity(self, event: Event) -> None:
        for result, count in Counts({"hit": event["hits"], **event["missed"]}).items():
            self.anchors.labels(event["claw_id"], result).inc(count)

    def _counter(self, name: str, labels: str, text: str) -> Counter:
        return Counter(f"claw_{name}", text, labels.split(), registry=self.registry)

    def _gauge(self, name: str, labels: str, text: str) -> Gauge:
        return Gauge(f"claw_{name}", text, labels.split(), registry=self.registry)

    def _histogram(
        self, name: str, labels: str, buckets: tuple[float, ...], text: str
    ) -> Histogram:
        return Histogram(
            f"claw_{name}", text, labels.split(), buckets=buckets, registry=self.registry
        )


def write_text(metrics: Collector, accept: str) -> tuple[bytes, str]:
    """Return (all metrics, content type).

    The format is OpenMetrics if ``accept`` names it, else Prometheus' text format.
    """
    if _OPENMETRICS in accept:
        return openmetrics.generate_latest(metrics), openmetrics.CONTENT_TYPE_LATEST
    return generate_latest(metrics), CONTENT_TYPE_PLAIN_0_0_4


def _yes_no(value: bool) -> str:
    return "yes" if value else "no"


def _status_class(code: str) -> str:
    """Return the code with its HTTP status replaced by a class.

    >>> _status_class("provider_http_503")
    'provider_http_5xx'
    """
    name, separator, status = code.rpartition("http_")
    if not separator or not status.isdecimal():
        return code
    return f"{name}http_{status[0]}xx"
