"""What is counted, by Prometheus' conventions (docs/metrics.md). It is counted from the log's events, so that what is counted
is what is logged; what is a state rather than an event is looked up when somebody asks.

A label is never anybody's text: agents, tools, feeds and providers are those of the operator's files, everything else is of a
closed set. A tool that nobody was granted is ``unknown``; a model's name is the runner's to choose, and no label.
"""

from __future__ import annotations

import platform
from collections import Counter as Counts
from collections.abc import Callable, Mapping
from importlib.metadata import version
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics

from claw_mediate.core.http import GONE
from claw_mediate.core.model_policy import KeyState
from claw_mediate.telemetry.event_log import Event

UNKNOWN_TOOL: Final = "unknown"
_OPENMETRICS = "application/openmetrics-text"
_WAITS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300)
_OWN = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1, 5)
_ROUNDS = (0, 1, 2, 3, 4, 6, 8, 10)
_GOOD = range(200, 300)

disable_created_metrics()  # a second series for each counter, which nobody draws; the registry itself is each mediator's own

KEY_STATES: Final[tuple[KeyState, ...]] = ("ready", "cooldown", "dead")


class Observed(NamedTuple):
    """How a mediator is now. ``keys``: how many a provider has in each state."""

    ready: bool = False
    state_writable: bool = False
    keys: Mapping[tuple[str, KeyState], int] = MappingProxyType({})


class Metrics:
    """One registry, and what is in it."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._in_words()
        self._in_time()
        self._as_it_is()
        self._dropped = 0
        self._counted: dict[str, Callable[[Any], None]] = {
            "request": self._request,
            "response": self._ended,
            "error": self._error,
            "tool_call": self._tool_call,
            "intervention": self._intervention,
            "failover": self._failover,
            "feed_fetch": self._feed_fetch,
            "memory_op": self._memory_op,
            "continuity": self._continuity,
            "resume": lambda event: self.resumes.labels(event["claw_id"]).inc(),
            "join": lambda event: self.joins.labels(event["claw_id"], event["how"]).inc(),
        }

    def _in_words(self) -> None:
        self.requests = self._counter("requests", "Requests of admitted agents (request).", "agent", "mediated")
        self.ended = self._counter(
            "requests_ended", "Requests that are over (response, error).", "agent", "mediated", "outcome"
        )
        self.errors = self._counter("request_errors", "Requests that failed, by why (error).", "agent", "code")
        self.tool_calls = self._counter("tool_calls", "Managed calls (tool_call).", "agent", "tool", "status", "code")
        self.tokens = self._counter(
            "tokens", "Tokens, as providers tell them (response, error).", "agent", "provider", "kind"
        )
        self.cost = self._counter(
            "cost_usd", "US dollars, where anybody knows the price (response, error).", "agent", "provider"
        )
        self.unpriced = self._counter(
            "unpriced_requests", "Requests with tokens of unknown price (response, error).", "agent", "provider"
        )
        self.interventions = self._counter(
            "interventions", "The proxy did otherwise than asked (intervention).", "agent", "intervention"
        )
        self.failovers = self._counter(
            "failovers", "Another provider or model was asked (failover).", "from_provider", "to_provider", "reason"
        )
        self.resumes = self._counter("resumes", "Turns that went on where an earlier attempt was (resume).", "agent")
        self.joins = self._counter(
            "joins", "Requests that got the answer of an equal one's turn (join).", "agent", "how"
        )
        self.anchors = self._counter(
            "continuity_anchors",
            "Earlier answers that hidden rounds were looked for behind (continuity).",
            "agent",
            "result",
        )
        self.feeds = self._counter("feed_fetches", "Feeds that were asked for (feed_fetch).", "agent", "feed", "status")
        self.memory = self._counter(
            "memory_operations", "Memory services asked (memory_op).", "agent", "operation", "status"
        )
        self.faults = self._counter("faults", "Things that do not work, by what (error).", "fault")
        self.dropped = self._counter("log_lines_dropped", "Lines of the log that nobody took: unread, or no room.")

    def _in_time(self) -> None:
        self.turn_seconds = self._histogram("turn_duration_seconds", "A mediated turn (response, error).", _WAITS)
        self.model_seconds = self._histogram(
            "model_duration_seconds",
            "One request to a provider (model_calls of response, error).",
            _WAITS,
            "provider",
            "status",
        )
        self.tool_seconds = self._histogram(
            "tool_duration_seconds", "One call of a service (tool_call).", _WAITS, "tool"
        )
        self.own_seconds = self._histogram(
            "turn_overhead_seconds",
            "A mediated turn without what it waited for providers and services (overhead_ms of response, error).",
            _OWN,
        )
        self.rounds = self._histogram(
            "turn_rounds", "Replies of the model in a mediated turn (response, error).", _ROUNDS
        )

    def _as_it_is(self) -> None:
        self.turns = self._gauge("turns_under_way", "Mediated turns that have not ended.")
        self.ready = self._gauge("ready", "Whether turns can work now, as /ready says.")
        self.writable = self._gauge("state_writable", "Whether CLAW_STATE can be written.")
        self.keys = self._gauge("provider_keys", "Keys of a provider.", "provider", "state")
        self.built = self._gauge("build_info", "What runs.", "version", "mitmproxy", "python")
        self.built.labels(version("clawdapus"), version("mitmproxy"), platform.python_version()).set(1)

    def count(self, event: Event) -> None:
        """One event of the log."""
        if (counted := self._counted.get(event["type"])) is not None:
            counted(event)

    def observe(self, now: Observed, turns: int, dropped: int) -> None:
        """What is so at this moment; how many turns are under way, and lines of the log that were dropped so far."""
        self.turns.set(turns)
        self.ready.set(now.ready)
        self.writable.set(now.state_writable)
        self.keys.clear()
        for provider in {provider for provider, _ in now.keys}:
            for state in KEY_STATES:
                self.keys.labels(provider, state).set(now.keys.get((provider, state), 0))
        self.dropped.inc(dropped - self._dropped)
        self._dropped = dropped

    def text(self, accept: str) -> tuple[bytes, str]:
        """All of it, and its content type: OpenMetrics for who asks for it, else Prometheus' text."""
        if _OPENMETRICS in accept:
            return openmetrics.generate_latest(self.registry), openmetrics.CONTENT_TYPE_LATEST
        return generate_latest(self.registry), CONTENT_TYPE_PLAIN_0_0_4

    def _request(self, event: Event) -> None:
        self.requests.labels(event["claw_id"], _yes(event["mediated"])).inc()

    def _error(self, event: Event) -> None:
        if "status_code" in event:
            self.errors.labels(event["claw_id"], _class(event.get("error") or f"http_{event['status_code']}")).inc()
            self._ended(event)
        else:
            self.faults.labels(event["error"]).inc()

    def _ended(self, event: Event) -> None:
        agent, provider, mediated = event["claw_id"], event["provider"], event["mediated"]
        outcome = "ok" if event["type"] == "response" else "left" if event["status_code"] == GONE else "error"
        self.ended.labels(agent, _yes(mediated), outcome).inc()
        tokens = {"input": event["tokens_in"], "output": event["tokens_out"], "cached": event["cached_tokens"]}
        for kind, count in tokens.items():
            self.tokens.labels(agent, provider, kind).inc(max(0, count))
        if event["cost_usd"] is not None:
            self.cost.labels(agent, provider).inc(max(0.0, event["cost_usd"]))
        elif any(tokens.values()):
            self.unpriced.labels(agent, provider).inc()
        for call in event["model_calls"]:
            status = "ok" if call["status_code"] in _GOOD else "error"
            self.model_seconds.labels(call["provider"], status).observe(call["latency_ms"] / 1000)
        if mediated:
            self.turn_seconds.observe(event["latency_ms"] / 1000)
            self.own_seconds.observe(event["overhead_ms"] / 1000)
            self.rounds.observe(event["total_rounds"])

    def _tool_call(self, event: Event) -> None:
        tool = event["name"] if event["service"] else UNKNOWN_TOOL
        self.tool_calls.labels(event["claw_id"], tool, event["status"], _class(event["code"] or "")).inc()
        if event["ran"]:
            self.tool_seconds.labels(tool).observe(event["latency_ms"] / 1000)

    def _intervention(self, event: Event) -> None:
        name, _, _what = event["intervention"].partition(":")
        self.interventions.labels(event["claw_id"], name).inc()

    def _failover(self, event: Event) -> None:
        self.failovers.labels(event["from_provider"], event["to_provider"], _class(event["reason"])).inc()

    def _feed_fetch(self, event: Event) -> None:
        self.feeds.labels(event["claw_id"], event["feed_name"], "error" if event["error"] else "ok").inc()

    def _memory_op(self, event: Event) -> None:
        self.memory.labels(event["claw_id"], event["memory_op"], event["memory_status"]).inc()

    def _continuity(self, event: Event) -> None:
        for result, count in Counts({"hit": event["hits"], **event["missed"]}).items():
            self.anchors.labels(event["claw_id"], result).inc(count)

    def _counter(self, name: str, what: str, *labels: str) -> Counter:
        return Counter(f"claw_{name}", what, labels, registry=self.registry)

    def _gauge(self, name: str, what: str, *labels: str) -> Gauge:
        return Gauge(f"claw_{name}", what, labels, registry=self.registry)

    def _histogram(self, name: str, what: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(f"claw_{name}", what, labels, buckets=buckets, registry=self.registry)


def _yes(told: bool) -> str:
    return "yes" if told else "no"


def _class(code: str) -> str:
    """A code whose end is a status, by the status's class: ``provider_http_503`` → ``provider_http_5xx``."""
    name, separator, status = code.rpartition("http_")
    return f"{name}http_{status[0]}xx" if separator and status.isdecimal() else code
