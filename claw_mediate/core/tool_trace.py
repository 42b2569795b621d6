"""A turn's ``tool_trace`` and ``usage`` in history (docs/spec/contract.md, "history.jsonl"). Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from claw_contract.base import JsonObject
from claw_contract.history import RoundRecord, TokenUsage, ToolCallRecord, UsageRecord
from claw_mediate.core.tool_result import record_arguments
from claw_mediate.core.types import Round, ToolResult


def tool_trace(rounds: Sequence[Round]) -> tuple[RoundRecord, ...]:
    """Return the record of every round that the proxy answered, rejected ones too."""
    return tuple(
        RoundRecord(
            round=past.number,
            wall_time_ms=past.wall_ms,
            tool_calls=tuple(map(call_record, past.results)),
            round_usage=token_usage(past.response.usage) if past.response.usage else None,
        )
        for past in rounds
    )


def call_record(result: ToolResult) -> ToolCallRecord:
    return ToolCallRecord(
        name=result.call.canonical,
        arguments=record_arguments(result.call),
        result=msgspec.json.decode(result.content),
        latency_ms=result.latency_ms,
        service=result.call.service,
        status="ok" if result.ok else "error",
        status_code=result.status_code,
        duplicate=result.first_round is not None,
        duplicate_of_round=result.first_round,
        duplicate_count=result.repeats or None,
        effect=result.call.tool.effect if result.call.tool else None,
        ran=result.ran,
    )


def usage_record(usage: JsonObject, rounds: int, cost: float | None = None) -> UsageRecord:
    """Return the turn's tokens; ``rounds`` counts the model calls; ``cost`` is in US dollars, where it is known."""
    return UsageRecord(**token_usage(usage).model_dump(), reported_cost_usd=cost, total_rounds=rounds)


def token_usage(usage: JsonObject) -> TokenUsage:
    """Return the counts of a provider's usage object, in OpenAI's member names or in Anthropic's; 0 for what is no count."""
    details = usage.get("prompt_tokens_details", usage.get("input_tokens_details"))
    cached = details.get("cached_tokens") if isinstance(details, dict) else usage.get("cache_read_input_tokens")
    prompt = usage.get("prompt_tokens", usage.get("input_tokens"))
    completion = usage.get("completion_tokens", usage.get("output_tokens"))
    return TokenUsage(prompt_tokens=_count(prompt), completion_tokens=_count(completion), cached_tokens=_count(cached))


def _count(number: object) -> int:
    return number if type(number) is int else 0
