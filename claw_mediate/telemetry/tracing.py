"""OpenTelemetry: one trace a request, by the GenAI semantic conventions, made of the log's events when the request is over.

    turn                        the request: its agent, tokens, rounds, how it ended
    ├─ chat MODEL               each request to a provider, those that failed too
    └─ execute_tool TOOL        each call of a service

It is on where ``OTEL_EXPORTER_OTLP_ENDPOINT`` is set, as OpenTelemetry has it, and then needs the extra ``otel``. Names and
numbers only, never words of a conversation; names go through the log's redactor. A collector that is not there costs spans.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from claw_mediate.telemetry.event_log import Event
from claw_mediate.telemetry.metrics import UNKNOWN_TOOL

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_MOST_OPEN = 4096
"""Requests whose end is waited for."""
_MOST_CHARACTERS = 256
_LAST_SECONDS = 1.0
_SEMCONV = "https://opentelemetry.io/schemas/1.37.0"


class Tracing:
    """Listens to the log, and makes spans."""

    def __init__(self, processor: SpanProcessor, clear: Callable[[str], str]) -> None:
        from opentelemetry.sdk.trace import SpanLimits, TracerProvider

        limits = SpanLimits(max_attribute_length=_MOST_CHARACTERS)
        self._provider = TracerProvider(span_limits=limits, shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("clawdapus", schema_url=_SEMCONV)
        self._clear = clear
        self._open: defaultdict[str, list[Event]] = defaultdict(list)

    def handle_event(self, event: Event) -> None:
        """One event of the log."""
        turn_id = event["turn_id"]
        if turn_id is None:
            return
        if event["type"] in {"request", "tool_call", "intervention"}:
            self._open[turn_id].append(event)
            if len(self._open) > _MOST_OPEN:
                del self._open[next(iter(self._open))]
        elif "status_code" in event and event["type"] in {"response", "error"}:
            self._tell(self._open.pop(turn_id, []), event)

    def close(self) -> None:
        """What was made is sent, if somebody takes it soon."""
        sending = threading.Thread(target=self._provider.shutdown, name="claw-spans", daemon=True)
        sending.start()
        sending.join(_LAST_SECONDS)

    def _tell(self, before: list[Event], over: Event) -> None:
        from opentelemetry.context import Context
        from opentelemetry.trace import set_span_in_context

        asked = next((event for event in before if event["type"] == "request"), over)
        end = _nanoseconds(over["ts"])
        turn = self._tracer.start_span(
            "turn", Context(), attributes=self._of_turn(asked, over), start_time=_nanoseconds(asked["ts"])
        )
        within = set_span_in_context(turn, Context())
        for call in over["model_calls"]:
            name, attributes = self._of_model(call)
            failed = None if call["status_code"] == 200 else str(call["status_code"] or "no_response")  # noqa: PLR2004
            self._child(within, (name, attributes, failed), call, end)
        for event in before:
            if event["type"] == "tool_call" and event["started"] is not None:
                name, attributes = self._of_tool(event)
                self._child(within, (name, attributes, event["code"]), event, end)
            elif event["type"] == "intervention":
                word = event["intervention"].partition(":")[0]
                turn.add_event("claw.intervention", {"claw.intervention": word}, _nanoseconds(event["ts"]))
        if over["type"] == "error":
            self._fail(turn, over.get("error") or str(over["status_code"]))
        turn.end(end)

    def _child(self, within: Any, told: tuple[str, dict[str, Any], str | None], lasted: Event, end: int) -> None:
        from opentelemetry.trace import SpanKind

        name, attributes, failed = told
        start = min(_nanoseconds(lasted["started"]), end)
        span = self._tracer.start_span(name, within, SpanKind.CLIENT, attributes, start_time=start)
        if failed is not None:
            self._fail(span, failed)
        span.end(min(start + lasted["latency_ms"] * 1_000_000, end))

    def _fail(self, span: Any, why: str) -> None:
        from opentelemetry.trace import StatusCode

        span.set_attribute("error.type", why)
        span.set_status(StatusCode.ERROR)

    def _of_turn(self, asked: Event, over: Event) -> dict[str, Any]:
        return {
            "gen_ai.agent.id": over["claw_id"],
            "gen_ai.provider.name": over["provider"],
            "gen_ai.request.model": self._clear(asked["model"] or ""),
            "gen_ai.response.model": self._clear(over["model"] or ""),
            "gen_ai.usage.input_tokens": over["tokens_in"],
            "gen_ai.usage.output_tokens": over["tokens_out"],
            "http.response.status_code": over["status_code"],
            "claw.turn_id": over["turn_id"],
            "claw.digest": over["digest"] or "",
            "claw.mediated": over["mediated"],
            "claw.rounds": over["total_rounds"],
            **({} if over["overhead_ms"] is None else {"claw.overhead_ms": over["overhead_ms"]}),
        }

    def _of_model(self, call: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        model = self._clear(call["model"])[:_MOST_CHARACTERS]
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": call["provider"],
            "gen_ai.request.model": model,
        }
        return f"chat {model}", attributes

    def _of_tool(self, event: Event) -> tuple[str, dict[str, Any]]:
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


def tracing_from_environment(clear: Callable[[str], str]) -> Tracing | None:
    """As the environment asks for it. Raises ``ValueError`` with one line where the extra is not installed."""
    named = next((name for name in ENDPOINTS if os.environ.get(name)), None)
    if named is None or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    try:
        import requests
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise ValueError(f"{named} is set: pip install 'clawdapus[otel]'") from None
    os.environ.setdefault("OTEL_SERVICE_NAME", "clawdapus")
    logging.getLogger("urllib3").setLevel(logging.WARNING)
    session = requests.Session()
    session.trust_env = False  # a proxy of the environment's is for the proxy's own traffic at most
    return Tracing(BatchSpanProcessor(OTLPSpanExporter(session=session)), clear)


def _nanoseconds(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000) * 1_000_000
