"""The records of a request: the events of the log, and one line of history."""

import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from http import HTTPStatus
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from claw_contract.base import JsonObject
from claw_contract.history import UsageRecord, decode_recorded
from claw_contract.interventions import CALL_INTERVENTIONS, ROUND_INTERVENTIONS
from claw_contract.log import CutPlace, EventType, FallbackReason, ModelCallRecord
from claw_contract.redaction.redactor import Redactor
from claw_contract.redaction.stream import redact_stream
from claw_contract.transcript.text import as_object
from claw_mediate.agents.directory import Agent
from claw_mediate.core.cost import FREE, Cost, ReceivedAnswer
from claw_mediate.core.http import GONE
from claw_mediate.core.tool_catalog import ToolCatalog
from claw_mediate.core.tool_result import join_lines, record_arguments
from claw_mediate.core.types import (
    ModelResponse,
    Round,
    ToolCall,
    ToolResult,
    ToolUse,
    UnreadableArguments,
)
from claw_mediate.dialects.base import RunnerRequest
from claw_mediate.dialects.model_only import NO_DIALECT
from claw_mediate.providers.client import (
    BAD_REPLY,
    PROVIDER_TIMEOUT,
    TOO_LARGE,
    CutReply,
    ProviderResponse,
)
from claw_mediate.providers.failover import ModelCall, ModelResult
from claw_mediate.providers.live_reply import BROKE_OFF, FLOW_SPENT, IDLE
from claw_mediate.telemetry.event_log import EventLog, encode_json, now_rfc3339, rfc3339
from claw_mediate.telemetry.history import (
    MAX_BODY_BYTES,
    MAX_FREE_BODY_BYTES,
    History,
    body_for_history,
    cut_for_history,
)
from claw_mediate.telemetry.timing import Timings
from claw_mediate.turns.budgets import Budgets
from claw_mediate.turns.checkpoint import ReplayStats
from claw_mediate.turns.context import (
    RequestContext,
    ShownCharacters,
    StreamFigures,
    TurnContext,
    TurnResult,
)

_UNKNOWN_COST = Cost(None)
_NOTHING_SHOWN: Mapping[int, ShownCharacters] = MappingProxyType({})


def tool_trace(
    rounds: Sequence[Round],
    redactor: Redactor,
    shown: Mapping[int, ShownCharacters] = _NOTHING_SHOWN,
) -> list[JsonObject]:
    """Return the record of every round that the proxy answered, also of rejected ones.

    Each is a ``claw_contract.history.RoundRecord``. ``shown``: what its reply has shown, by round.
    """
    trace: list[JsonObject] = []
    for past in rounds:
        record: JsonObject = {
            "round": past.number,
            "wall_time_ms": past.wall_ms,
            "tool_calls": [call_record(result, redactor) for result in past.results],
        }
        if past.response.usage:
            record["round_usage"] = _token_counts(past.response.usage)

        characters = shown.get(past.number, ShownCharacters())
        if characters.text:
            record["shown"] = characters.text
        if characters.reasoning:
            record["shown_reasoning"] = characters.reasoning
        trace.append(record)
    return trace


def call_record(result: ToolResult, redactor: Redactor, limit: int = MAX_BODY_BYTES) -> JsonObject:
    """Return the ``ToolCallRecord`` of a call; its arguments and its result are its exact JSON.

    Arguments of more than ``limit`` bytes are cut and marked, as a body is.
    """
    record = {
        "name": result.call.canonical,
        "arguments": _arguments(result.call, redactor, limit),
        "result": join_lines(result.content),
        "latency_ms": result.latency_ms,
        "service": result.call.service,
        "status": "ok" if result.ok else "error",
        "status_code": result.status_code,
        "duplicate": result.first_round is not None,
        "duplicate_of_round": result.first_round,
        "duplicate_count": result.repeats or None,
        "effect": result.call.tool.effect if result.call.tool else None,
        "ran": result.ran,
        "mcp": None if result.mcp is None else result.mcp.model_dump(exclude_none=True),
    }
    return {name: value for name, value in record.items() if value is not None}


def _arguments(call: ToolCall, redactor: Redactor, limit: int) -> Any:
    arguments = record_arguments(call)
    if isinstance(call.arguments, UnreadableArguments):
        size = len(call.arguments.text)
    else:
        size = sum(len(raw) for raw in call.arguments.raw.values())

    if size <= limit:
        return arguments
    return body_for_history(encode_json(arguments), redactor, limit)


def usage_record(usage: JsonObject, rounds: int, cost: Cost = _UNKNOWN_COST) -> UsageRecord:
    """Return the turn's tokens and its cost; ``rounds`` counts the model calls."""
    return UsageRecord(
        **_token_counts(usage),
        reported_cost_usd=cost.known,
        total_rounds=rounds,
        estimated_cost_usd=cost.estimated,
    )


def usage_members(usage: UsageRecord) -> JsonObject:
    """Return the members of a line of history: an estimate only where there is one."""
    if usage.estimated_cost_usd is not None:
        return usage.model_dump()
    return usage.model_dump(exclude={"estimated_cost_usd"})


def _token_counts(usage: JsonObject) -> dict[str, int]:
    """Return the counts of a provider's usage object; 0 for what is no count.

    The members have OpenAI's names or Anthropic's.
    """
    details = usage.get("prompt_tokens_details", usage.get("input_tokens_details"))
    if isinstance(details, dict):
        cached = details.get("cached_tokens")
    else:
        cached = usage.get("cache_read_input_tokens")

    prompt = usage.get("prompt_tokens", usage.get("input_tokens"))
    completion = usage.get("completion_tokens", usage.get("output_tokens"))
    return {
        "prompt_tokens": _count(prompt),
        "completion_tokens": _count(completion),
        "cached_tokens": _count(cached),
    }


def _count(number: object) -> int:
    return number if type(number) is int else 0


_OVER_LIMIT = "over_limit"  # The provider has no room for as many tools
_SIDE_REQUEST = "side_request"  # A runner's own housekeeping calls no tools
_NATIVE = "native"  # The runner calls the tool itself, at the broker

type Ask = Callable[[ModelCall], Awaitable[ModelResult]]
"""Makes one model call."""

type Retain = Callable[[Agent, JsonObject, Redactor], None]
"""Gives the line of a turn to the agent's memory service."""


class Recorder:
    """Writes history and events.

    A history that can't be written is an event, never a lost answer.
    """

    def __init__(
        self, history: History | None, log: EventLog, budgets: Budgets, retain: Retain
    ) -> None:
        self._history = history
        self._log = log
        self._budgets = budgets
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
        usage, admission = answer.usage, context.admission
        cost = self._budgets.cost_of_answer(context.provider, context.model, answer, admission)
        tokens = usage_record(usage, 1 if usage else 0, cost)

        appended: Mapping[str, Any] = {}
        if context.view is not None:
            is_free = admission is None and _is_free(usage, result.status)
            self._budgets.settle(context.agent, context.model, FREE if is_free else cost, admission)
            entry = _forwarded_entry(context, context.view, result, tokens)
            is_conversation = not context.is_side_request and context.view.bypass != NO_DIALECT
            appended = self._append(context, entry, is_retained=result.ok and is_conversation)

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

        # A call that nobody ran cost nothing, though the broker's own answer to it went well.
        limit = MAX_BODY_BYTES if call.ran else MAX_FREE_BODY_BYTES
        record = call_record(call, context.redactor, limit)
        entry = {
            **_common_members(context, None, result, limit),
            **({} if result.code is None else {"error": result.code}),
            "delivery": "native",
            "tools_offered": [offered.alias for offered in catalog.offered],
            "tools_withheld": [],
            "request_effective": None,
            "response": {
                "format": "json",
                "json": body_for_history(result.body, context.redactor, limit),
            },
            "usage": usage_members(UsageRecord()),
            "tool_trace": [{"round": 1, "wall_time_ms": wall_ms, "tool_calls": [record]}],
        }
        appended = self._append(context, entry, is_retained=False)
        self._log_response(context, result, UsageRecord(), Timings([]), appended)

    def bill(self, context: TurnContext, usage: JsonObject, calls: int, status: int) -> UsageRecord:
        """Add what a turn used to its agent's budget, and return it with its cost.

        ``status``: of the turn, or ``GONE`` if one of its replies was cut.
        """
        cost = self._budgets.cost_of_turn(context.provider, context.model, usage, context.admission)
        is_free = cost == _UNKNOWN_COST and _is_free(usage, status)
        self._budgets.settle(
            context.agent, context.model, FREE if is_free else cost, context.admission
        )
        return usage_record(usage, calls, cost)

    async def note_model_calls(
        self, context: TurnContext, call: ModelCall, ask: Ask
    ) -> ModelResult:
        """Return the result of a turn's model call.

        With a limit in dollars, its cost is reserved before and noted afterwards.
        """
        admission = context.admission
        if admission is None:
            return await ask(call)

        await self._budgets.grow(admission)
        result: ModelResult | None = None
        try:
            result = await ask(call)
        finally:
            # Without a result, the runner has left, or the turn's time is over.
            if result is None or _may_have_cost(result):
                usage = _usage_of(call, result)
                self._budgets.note_call(
                    context.provider, context.model, call.body, usage, admission
                )
        return result

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
        shown = result.stream.shown if result.stream is not None else _NOTHING_SHOWN

        has_run = any(call.ran for past in rounds for call in past.results)
        limit = _body_limit(result, usage, has_run=has_run)
        members = _common_members(context, context.view, result, limit)
        if result.code is not None:
            members["error"] = result.code
        entry = {
            **members,
            "resumed": context.attempt == "resumed",
            "tools_offered": [offered.alias for offered in context.catalog.offered],
            "tools_withheld": _withheld(context.agent, _OVER_LIMIT, context.catalog.managed),
            "request_effective": _sent_body(context, limit),
            "response": {
                "format": "sse" if context.view.stream else "json",
                "json": body_for_history(result.body, context.redactor, limit),
                **_shown_member(result.shown, context.redactor, limit),
            },
            "usage": usage_members(usage),
            "tool_trace": tool_trace(rounds, context.redactor, shown),
        }
        appended = self._append(context, entry, is_retained=result.ok)
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


def _shown_member(text: str | None, redactor: Redactor, limit: int) -> JsonObject:
    """Return what history says of the text that a turn has shown before it failed."""
    if text is None:
        return {}

    encoded = text.encode(errors="replace")
    is_long = len(encoded) > limit
    return {"shown": cut_for_history(encoded, len(encoded), redactor, limit) if is_long else text}


def _sent_body(context: TurnContext, limit: int) -> Any:
    """Return what history holds of the request that the provider was sent first."""
    prepared = context.prepared
    request = prepared.build(prepared.first)(ToolUse.AS_REQUESTED)
    is_first = context.route.position == 0 or context.model == context.route.candidates[0].model
    if not is_first or request.unextended or len(request.head) <= MAX_BODY_BYTES:
        return body_for_history(context.route.body(request.body), context.redactor, limit)

    # Only its beginning is kept, so that the whole is not put together once more.
    size = len(request.head) + len(request.prefill) + len(request.tail)
    comma = bool(request.prefill) and not request.head.endswith(b"[")
    return cut_for_history(request.head, size + comma, context.redactor, limit)


def _body_limit(result: TurnResult, usage: UsageRecord, *, has_run: bool) -> int:
    """Return how many bytes of each body history keeps of a turn.

    The rule is in docs/spec/contract.md, "history.jsonl".
    """
    has_used_tokens = bool(usage.prompt_tokens or usage.completion_tokens)
    is_free = not (result.ok or has_used_tokens or has_run)
    return MAX_FREE_BODY_BYTES if is_free else MAX_BODY_BYTES


def _common_members(
    context: RequestContext, view: RunnerRequest | None, result: TurnResult, limit: int
) -> dict[str, Any]:
    return {
        "version": 1,
        "turn_id": context.turn_id,
        "digest": context.agent.digest,
        "ts": now_rfc3339(),
        "claw_id": context.agent.id,
        "path": context.request.bare_path,
        "requested_model": view.model if view else "",
        "stream": bool(view and view.stream),
        "request_original": body_for_history(context.request.body, context.redactor, limit),
        "status": "ok" if result.ok else "error",
        "effective_provider": context.provider,
        "effective_model": context.model,
        "status_code": result.status,
        "latency_ms": result.latency_ms,
    }


def _forwarded_entry(
    context: RequestContext, view: RunnerRequest, result: TurnResult, tokens: UsageRecord
) -> dict[str, Any]:
    redactor = context.redactor
    limit = _body_limit(result, tokens, has_run=False)
    members = _common_members(context, view, result, limit)
    sent = members["request_original"]
    if view.body is not context.request.body:
        sent = body_for_history(view.body, redactor, limit)

    response = {"format": "json", "json": body_for_history(result.body, redactor, limit)}
    if view.stream and limit == MAX_BODY_BYTES:
        response = {"format": "sse", "text": _stream_text(result.body, redactor)}

    reason = _SIDE_REQUEST if context.is_side_request else view.bypass or ""
    return {
        **members,
        "tools_offered": [],
        "tools_withheld": _withheld(context.agent, reason),
        "request_effective": sent,
        "response": response,
        "usage": usage_members(tokens),
        "tool_trace": [],
    }


def _withheld(agent: Agent, reason: str, shown: Collection[str] = ()) -> list[JsonObject]:
    """Return the granted tools that a request is not offered, each with its reason."""
    quarantined: list[JsonObject] = [
        {"name": tool.name, "reason": f"quarantined: {tool.reason}"} for tool in agent.quarantined
    ]
    mediated: list[JsonObject] = [
        {"name": tool.name, "reason": reason} for tool in agent.tools if tool.name not in shown
    ]
    native: list[JsonObject] = [
        {"name": tool.name, "reason": _NATIVE} for tool in agent.native_tools
    ]
    return [*quarantined, *mediated, *native]


def _stream_text(body: bytes, redactor: Redactor) -> str:
    """Return the text of a stream.

    The last line of a cut one is left out: half a secret would not be recognised.
    """
    whole = body if len(body) < MAX_BODY_BYTES else body[: body.rfind(b"\n") + 1]
    return redact_stream(whole, redactor).decode(errors="replace")


def _may_have_cost(result: ModelResult) -> bool:
    """Return whether a provider may have worked for an answer.

    It has not if it refused, or if no connection to it was made.
    """
    if isinstance(result, ProviderResponse):
        return result.status < HTTPStatus.BAD_REQUEST
    if isinstance(result, ModelResponse):
        return True
    if isinstance(result, CutReply):
        return True
    return result.code in {BROKE_OFF, IDLE, FLOW_SPENT, TOO_LARGE, PROVIDER_TIMEOUT, BAD_REPLY}


def _usage_of(call: ModelCall, result: ModelResult | None) -> JsonObject | None:
    """Return the usage of a model call.

    Of a live reply without an end it is what its stream told so far. None: nobody will ever know.
    """
    if isinstance(result, ModelResponse):
        return result.usage
    return read_usage(call.live.usage) if call.live is not None else None


def read_usage(usage: bytes | None) -> JsonObject | None:
    """Return the usage that a stream told; None if it told none that can be read."""
    if usage is None:
        return None
    try:
        return as_object(decode_recorded(usage))
    except ValueError:
        return None


def _is_free(usage: JsonObject, status: int) -> bool:
    """Return whether an answer without usage cost nothing: an error did not, as far as is known."""
    # What was broken off, by the provider or by a runner that left, did cost something, and nobody
    # knows what.
    return not usage and status >= HTTPStatus.BAD_REQUEST and status != GONE


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
