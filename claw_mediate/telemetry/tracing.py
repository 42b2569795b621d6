"""OpenTelemetry traces by the GenAI semantic conventions.

A trace is built from the log's events when its request has ended.

    turn                        the request: agent, tokens, rounds, outcome
    ├─ chat MODEL               each request to a provider, failed ones included
    └─ execute_tool TOOL        each call of a service

Enabled by ``OTEL_EXPORTER_OTLP_ENDPOINT``; needs the extra ``otel``. Spans contain redacted names
and numbers, no text of a conversation. If the collector is down, spans are lost and nothing else.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from datetime import datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from claw_mediate.telemetry.event_log import Event
from claw_mediate.telemetry.metrics import UNKNOWN_TOOL

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_MAX_OPEN = 4096  # Requests that have not ended; beyond it the oldest is dropped
_MAX_CHARACTERS = 256
_FLUSH_SECONDS = 1.0
_SEMCONV = "https://opentelemetry.io/schemas/1.37.0"


class Tracing:
    """A listener of the log that exports spans."""

    def __init__(self, processor: SpanProcessor, redact: Callable[[str], str]) -> None:
        from opentelemetry.sdk.trace import SpanLimits, TracerProvider

        limits = SpanLimits(max_attribute_length=_MAX_CHARACTERS)
        self._provider = TracerProvider(span_limits=limits, shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("clawdapus", schema_url=_SEMCONV)
        self._redact = redact
        self._open: defaultdict[str, list[Event]] = defaultdict(list)

    def handle_event(self, event: Event) -> None:
        """Collect one event; export the trace when its request has ended."""
        turn_id = event["turn_id"]
        if turn_id is None:
            return

        if event["type"] in {"request", "tool_call", "intervention"}:
            self._open[turn_id].append(event)
            if len(self._open) > _MAX_OPEN:
                del self._open[next(iter(self._open))]
        elif "status_code" in event and event["type"] in {"response", "error"}:
            self._export(self._open.pop(turn_id, []), event)

    def close(self) -> None:
        """Send the remaining spans, waiting briefly for the collector."""
        sender = threading.Thread(target=self._provider.shutdown, name="claw-spans", daemon=True)
        sender.start()
        sender.join(_FLUSH_SECONDS)

    def _export(self, events: list[Event], end: Event) -> None:
        from opentelemetry.context import Context
        from opentelemetry.trace import set_span_in_context

        request = next((event for event in events if event["type"] == "request"), end)
        ended = _nanoseconds(end["ts"])
        turn = self._tracer.start_span(
            "turn",
            Context(),
            attributes=self._turn_attributes(request, end),
            start_time=_nanoseconds(request["ts"]),
        )
        parent = set_span_in_context(turn, Context())

        for call in end["model_calls"]:
            name, attributes = self._model_call(call)
            status = call["status_code"]
            error = None if status == HTTPStatus.OK else str(status or "no_response")
            self._child(parent, (name, attributes, error), call, ended)

        for event in events:
            if event["type"] == "tool_call" and event["started"] is not None:
                name, attributes = self._tool_call(event)
                self._child(parent, (name, attributes, event["code"]), event, ended)
            elif event["type"] == "intervention":
                word, _, _ = event["intervention"].partition(":")
                at = _nanoseconds(event["ts"])
                turn.add_event("claw.intervention", {"claw.intervention": word}, at)

        if end["type"] == "error":
            self._fail(turn, end.get("error") or str(end["status_code"]))
        turn.end(ended)

    def _child(
        self, parent: Any, span_of: tuple[str, dict[str, Any], str | None], event: Event, ended: int
    ) -> None:
        """Add a span of a call to a provider or service.

        ``span_of``: its name, attributes, and error if it failed.
        """
        from opentelemetry.trace import SpanKind

        name, attributes, error = span_of
        start = min(_nanoseconds(event["started"]), ended)
        span = self._tracer.start_span(name, parent, SpanKind.CLIENT, attributes, start_time=start)
        if error is not None:
            self._fail(span, error)
        span.end(min(start + event["latency_ms"] * 1_000_000, ended))

    def _fail(self, span: Any, error: str) -> None:
        from opentelemetry.trace import StatusCode

        span.set_attribute("error.type", error)
        span.set_status(StatusCode.ERROR)

    def _turn_attributes(self, request: Event, end: Event) -> dict[str, Any]:
        attributes = {
            "gen_ai.agent.id": end["claw_id"],
            "gen_ai.provider.name": end["provider"],
            "gen_ai.request.model": self._redact(request["model"] or ""),
            "gen_ai.response.model": self._redact(end["model"] or ""),
            "gen_ai.usage.input_tokens": end["tokens_in"],
            "gen_ai.usage.output_tokens": end["tokens_out"],
            "http.response.status_code": end["status_code"],
            "claw.turn_id": end["turn_id"],
            "claw.digest": end["digest"] or "",
            "claw.mediated": end["mediated"],
            "claw.rounds": end["total_rounds"],
        }
        if end["overhead_ms"] is not None:
            attributes["claw.overhead_ms"] = end["overhead_ms"]
        return attributes

    def _model_call(self, call: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        model = self._redact(call["model"])[:_MAX_CHARACTERS]
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": call["provider"],
            "gen_ai.request.model": model,
        }
        return f"chat {model}", attributes

    def _tool_call(self, event: Event) -> tuple[str, dict[str, Any]]:
        name = event["name"] if event["service"] else UNKNOWN_TOOL
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
            "gen_ai.tool.type": "function",
            "claw.service": event["service"],
            "claw.round": event["round"],
            "claw.effect": event["effect"] or "",
        }
        return f"execute_tool {name}", attributes


def tracing_from_environment(redact: Callable[[str], str]) -> Tracing | None:
    """Return a listener if the environment enables tracing.

    Raise ``ValueError`` with one line if the extra is missing.
    """
    variable = next((name for name in ENDPOINTS if os.environ.get(name)), None)
    if variable is None or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None

    try:
        import requests
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise ValueError(f"{variable} is set: pip install 'clawdapus[otel]'") from None

    os.environ.setdefault("OTEL_SERVICE_NAME", "clawdapus")
    logging.getLogger("urllib3").setLevel(logging.WARNING)
    session = requests.Session()
    session.trust_env = False  # a proxy of the environment may be this very proxy
    return Tracing(BatchSpanProcessor(OTLPSpanExporter(session=session)), redact)


def _nanoseconds(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000) * 1_000_000
