"""The records of a request: its events go to the log, and its line to history."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from msgspec.structs import replace

from claw_contract.base import JsonObject
from claw_contract.history import UsageRecord
from claw_contract.interventions import CALL_INTERVENTIONS, ROUND_INTERVENTIONS
from claw_contract.log import CutPlace, EventType, FallbackReason, ModelCallRecord
from claw_contract.redaction.redactor import Redactor
from claw_mediate.agents.directory import Agent
from claw_mediate.core.cost import ReceivedAnswer
from claw_mediate.core.tool_catalog import ToolCatalog
from claw_mediate.core.types import (
    Round,
    ToolResult,
)
from claw_mediate.dialects.model_only import NO_DIALECT
from claw_mediate.telemetry.event_log import EventLog, encode_json, rfc3339
from claw_mediate.telemetry.history import (
    History,
)
from claw_mediate.telemetry.timing import Timings
from claw_mediate.turns.billing import Billing
from claw_mediate.turns.checkpoint import ReplayStats
from claw_mediate.turns.context import (
    RequestContext,
    StreamFigures,
    TurnContext,
    TurnResult,
)
from claw_mediate.turns.history_lines import forwarded_line, native_call_line, turn_line

type Retain = Callable[[Agent, JsonObject, Redactor], None]
"""Gives the line of a turn to the agent's memory service."""


class Recorder:
    """Writes history and events.

    A history that can't be written is an event, never a lost answer.
    """

    def __init__(
        self, history: History | None, log: EventLog, billing: Billing, retain: Retain
    ) -> None:
        self._history = history
        self._log = log
        self._billing = billing
        self._retain = retain

    def log_request(self, context: RequestContext, tools_count: int = 0) -> None:
        """Log that a request begins: a turn, or one that is forwarded."""
        view, watch = context.view, context.request.observer
        if watch is not None:
            watch.on_turn(context.turn_id, context.agent.id)

        self._log.event(
            "request",
            context.agent,
            turn_id=context.turn_id,
            model=view.model if view else None,
            path=context.request.bare_path,
            stream=bool(view and view.stream),
            manifest_present=bool(context.agent.granted),
            tools_count=tools_count,
            mediated=isinstance(context, TurnContext),
        )

    def record_forwarded(
        self, context: RequestContext, result: TurnResult, answer: ReceivedAnswer
    ) -> None:
        """Record a forwarded request that is over.

        The body of ``result`` is the beginning of the response.
        """
        tokens = self._billing.bill_forwarded(context, answer, result.status)
        appended: Mapping[str, Any] = {}
        if context.view is not None:
            line = forwarded_line(context, context.view, result, tokens)
            is_conversation = not context.is_side_request and context.view.bypass != NO_DIALECT
            appended = self._append(context, line, is_retained=result.ok and is_conversation)

        model_call = ModelCallRecord(
            provider=context.provider,
            model=context.model,
            status_code=result.status,
            started=rfc3339(time.time() - result.latency_ms / 1000),
            latency_ms=result.latency_ms,
        )
        self._log_response(context, result, tokens, Timings([model_call]), appended)

    def record_native_call(
        self,
        context: RequestContext,
        catalog: ToolCatalog,
        result: TurnResult,
        call: ToolResult,
        wall_ms: int,
    ) -> None:
        """Record a call that the runner made at the broker.

        It is a turn of one call, which asks no model.
        """
        self._log_tool_call(context, 1, call)
        for name in _result_interventions([call]):
            self._event(context, "intervention", intervention=name, round=1)

        line = native_call_line(context, catalog, result, call, wall_ms)
        appended = self._append(context, line, is_retained=False)
        self._log_response(context, result, UsageRecord(), Timings([]), appended)

    def record_turn(
        self, context: TurnContext, result: TurnResult, rounds: Sequence[Round], usage: UsageRecord
    ) -> None:
        """Record a turn that is over.

        Its calls, interventions and response go to the log, then its line to history.
        """
        for past in rounds:
            self._log_round(context, past)

        if context.view.stream and result.stream is None:
            result = replace(result, stream=StreamFigures())
        line = turn_line(context, result, rounds, usage)
        appended = self._append(context, line, is_retained=result.ok)
        self._log_response(context, result, usage, context.route.stopwatch.timings, appended)

    def log_intervention(self, context: TurnContext, name: str) -> None:
        """Log that the runner's answer is not all that the model said."""
        self._event(context, "intervention", intervention=name)

    def log_live_fallback(self, context: TurnContext, reason: FallbackReason) -> None:
        """Log that a turn that was to stream live is buffered."""
        self._event(context, "live_fallback", reason=reason)

    def log_live_cut(self, context: TurnContext, where: CutPlace, code: str) -> None:
        """Log that a live stream ends without its protocol's end."""
        self._event(context, "live_cut", where=where, code=code)

    def log_fault(self, context: RequestContext, error: Exception) -> None:
        """Log a fault of ours by its type only, since its text may hold anything."""
        name = f"{type(error).__module__}.{type(error).__qualname__}"
        self._event(context, "error", error="internal", reason=name)

    def log_resume(self, context: TurnContext, stats: ReplayStats) -> None:
        """Log that everything an earlier attempt at this turn did was replayed."""
        self._event(context, "resume", **asdict(stats))

    def log_journal_failure(self, context: RequestContext, reason: str) -> None:
        """Log that the journal can't be written, so that calls that may write are not made."""
        self._event(context, "error", error="journal_not_written", reason=reason)

    def _event(self, context: RequestContext, kind: EventType, **members: Any) -> None:
        self._log.event(
            kind, context.agent, turn_id=context.turn_id, model=context.model or None, **members
        )

    def _log_round(self, context: TurnContext, past: Round) -> None:
        for result in past.results:
            if result.call.owner != "native" and not result.replayed:
                self._log_tool_call(context, past.number, result)
        for name in _interventions(past):
            self._event(context, "intervention", intervention=name, round=past.number)

    def _log_tool_call(
        self, context: RequestContext, round_number: int, result: ToolResult
    ) -> None:
        tool = result.call.tool
        session: dict[str, Any] = {}
        if result.mcp is not None:
            session = {"mcp": result.mcp.model_dump()}

        self._log.event(
            "tool_call",
            context.agent,
            turn_id=context.turn_id,
            name=result.call.canonical,
            service=result.call.service,
            round=round_number,
            status="ok" if result.ok else "error",
            code=result.code,
            status_code=result.status_code,
            latency_ms=result.latency_ms,
            effect=tool.effect if tool else None,
            ran=result.ran,
            started=result.started,
            **session,
        )

    def _log_response(
        self,
        context: RequestContext,
        result: TurnResult,
        usage: UsageRecord,
        timings: Timings,
        history: Mapping[str, Any],
    ) -> None:
        estimate: dict[str, float] = {}
        if usage.estimated_cost_usd is not None:
            estimate = {"estimated_cost_usd": usage.estimated_cost_usd}
        error: dict[str, str] = {}
        if result.code is not None:
            error = {"error": result.code}
        stream = _stream_members(result.stream) if result.stream is not None else {}

        self._event(
            context,
            "response" if result.ok else "error",
            status_code=result.status,
            latency_ms=result.latency_ms,
            tokens_in=usage.prompt_tokens,
            tokens_out=usage.completion_tokens,
            cached_tokens=usage.cached_tokens,
            cost_usd=usage.reported_cost_usd,
            **estimate,
            total_rounds=usage.total_rounds,
            mediated=isinstance(context, TurnContext),
            provider=context.provider,
            model_calls=[call.model_dump() for call in timings.model_calls],
            overhead_ms=timings.own_ms,
            **history,
            **stream,
            **error,
        )

    def _append(
        self, context: RequestContext, entry: dict[str, Any], *, is_retained: bool
    ) -> dict[str, Any]:
        """Append a line of history.

        Return what the final event says of it, so that the log knows every line.
        """
        agent, redactor, watch = context.agent, context.redactor, context.request.observer
        appended = None
        try:
            if self._history is not None:
                appended = self._history.append(agent.id, entry, redactor)
        except OSError as error:
            self._log.event(
                "error",
                agent,
                turn_id=context.turn_id,
                error="history_not_written",
                reason=error.strerror,
            )
        if appended is not None and appended.is_cut:
            self._log.event("error", agent, turn_id=context.turn_id, error="history_cut")

        if watch is not None:
            if appended is not None:
                watch.on_end(appended.line)
            else:
                watch.on_end(redactor.document(encode_json(entry)))
        if is_retained:
            self._retain(agent, entry, redactor)

        if appended is None:
            return {}
        if appended.has_rotated:
            return {"history_hash": appended.hash, "history_rotated": True}
        return {"history_hash": appended.hash}


def _stream_members(figures: StreamFigures) -> JsonObject:
    """Return what the last event of a turn says of its stream: of a live one all that is known."""
    members: JsonObject = {"stream_mode": figures.mode}
    if figures.mode == "buffered":
        return members

    times = {
        "ttft_ms": figures.ttft_ms,
        "upstream_ttft_ms": figures.upstream_ttft_ms,
        "held_ms": figures.held_ms,
    }
    known = {name: time for name, time in times.items() if time is not None}
    return {**members, **known, "shown_rounds": figures.shown_rounds}


def _interventions(past: Round) -> list[str]:
    names = _result_interventions(past.results)
    if len(past.results) < len(past.response.calls):
        names.append("managed_prefix_native_suffix_serialized")
    return names


def _result_interventions(results: Sequence[ToolResult]) -> list[str]:
    """Return the interventions that the codes of results show, each once."""
    codes = {result.code for result in results}
    names = [name for code, name in ROUND_INTERVENTIONS.items() if code in codes]
    for result in results:
        name = CALL_INTERVENTIONS.get(result.code or "")
        if name is not None:
            names.append(f"{name}:{result.call.canonical}")
    return list(dict.fromkeys(names))
