"""The lines of history: what each says of a request, as its runner and its provider had it."""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from claw_contract.base import JsonObject
from claw_contract.history import UsageRecord
from claw_contract.redaction.redactor import Redactor
from claw_contract.redaction.stream import redact_stream
from claw_mediate.agents.directory import Agent
from claw_mediate.core.cost import Cost
from claw_mediate.core.json_pieces import join_pieces
from claw_mediate.core.tool_catalog import ToolCatalog
from claw_mediate.core.tool_result import join_lines, record_arguments
from claw_mediate.core.types import Round, ToolCall, ToolResult, ToolUse, UnreadableArguments
from claw_mediate.dialects.base import RunnerRequest
from claw_mediate.telemetry.event_log import encode_json, now_rfc3339
from claw_mediate.telemetry.history import (
    MAX_BODY_BYTES,
    MAX_FREE_BODY_BYTES,
    body_for_history,
    cut_for_history,
)
from claw_mediate.turns.context import RequestContext, ShownCharacters, TurnContext, TurnResult

UNKNOWN_COST = Cost(None)
_NOTHING_SHOWN: Mapping[int, ShownCharacters] = MappingProxyType({})

_OVER_LIMIT = "over_limit"  # The provider has no room for as many tools
_SIDE_REQUEST = "side_request"  # A runner's own housekeeping calls no tools
_NATIVE = "native"  # The runner calls the tool itself, at the broker


def turn_line(
    context: TurnContext, result: TurnResult, rounds: Sequence[Round], usage: UsageRecord
) -> dict[str, Any]:
    """Return the line of a turn that is over."""
    has_run = any(call.ran for past in rounds for call in past.results)
    limit = _body_limit(result, usage, has_run=has_run)
    members = _common_members(context, context.view, result, limit)
    if result.code is not None:
        members["error"] = result.code

    shown = result.stream.shown if result.stream is not None else _NOTHING_SHOWN
    return {
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


def forwarded_line(
    context: RequestContext, view: RunnerRequest, result: TurnResult, tokens: UsageRecord
) -> dict[str, Any]:
    """Return the line of a forwarded request that is over.

    The body of ``result`` is the beginning of the response.
    """
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


def native_call_line(
    context: RequestContext,
    catalog: ToolCatalog,
    result: TurnResult,
    call: ToolResult,
    wall_ms: int,
) -> dict[str, Any]:
    """Return the line of a call that the runner made at the broker."""
    # A call that nobody ran cost nothing, though the broker's own answer to it went well.
    limit = MAX_BODY_BYTES if call.ran else MAX_FREE_BODY_BYTES
    record = call_record(call, context.redactor, limit)
    return {
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


def _sent_body(context: TurnContext, limit: int) -> Any:
    """Return what history holds of the request that the provider was sent first."""
    prepared = context.prepared
    write = prepared.build(prepared.first_maker)
    pieces = write(ToolUse.AS_REQUESTED)

    route = context.route
    has_first_model = route.position == 0 or context.model == route.candidates[0].model
    if not has_first_model or len(pieces[0]) <= MAX_BODY_BYTES:
        return body_for_history(route.body(join_pieces(pieces)), context.redactor, limit)

    # Only its beginning is kept, so that the whole is not put together once more.
    size = sum(map(len, pieces))
    return cut_for_history(pieces[0], size, context.redactor, limit)


def _body_limit(result: TurnResult, usage: UsageRecord, *, has_run: bool) -> int:
    """Return how many bytes of each body history keeps of a turn.

    The rule is in docs/spec/contract.md, "history.jsonl".
    """
    has_used_tokens = bool(usage.prompt_tokens or usage.completion_tokens)
    is_free = not (result.ok or has_used_tokens or has_run)
    return MAX_FREE_BODY_BYTES if is_free else MAX_BODY_BYTES


def _shown_member(text: str | None, redactor: Redactor, limit: int) -> JsonObject:
    """Return what history says of the text that a turn has shown before it failed."""
    if text is None:
        return {}

    encoded = text.encode(errors="replace")
    is_long = len(encoded) > limit
    return {"shown": cut_for_history(encoded, len(encoded), redactor, limit) if is_long else text}


def _stream_text(body: bytes, redactor: Redactor) -> str:
    """Return the text of a stream.

    The last line of a cut one is left out: half a secret would not be recognised.
    """
    whole = body if len(body) < MAX_BODY_BYTES else body[: body.rfind(b"\n") + 1]
    return redact_stream(whole, redactor).decode(errors="replace")


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


def usage_record(usage: JsonObject, rounds: int, cost: Cost = UNKNOWN_COST) -> UsageRecord:
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
