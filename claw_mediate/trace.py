"""A turn as history tells it: ``tool_trace`` and ``usage`` of spec/contract.md "history.jsonl". Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from claw_contract.base import JsonObject
from claw_contract.history import RoundRecord, ToolCallRecord, UsageRecord
from claw_mediate.model import Answer, Round
from claw_mediate.result import argument_record


def tool_trace(rounds: Sequence[Round]) -> tuple[RoundRecord, ...]:
    """Every round that was answered by us, rejected ones too."""
    return tuple(
        RoundRecord(
            round=past.number,
            wall_time_ms=past.wall_ms,
            tool_calls=tuple(map(call_record, past.answers)),
            round_usage=past.reply.usage or None,
        )
        for past in rounds
    )


def call_record(answer: Answer) -> ToolCallRecord:
    """One call and what came of it."""
    return ToolCallRecord(
        name=answer.call.canonical,
        arguments=argument_record(answer.call),
        result=msgspec.json.decode(answer.content),
        latency_ms=answer.latency_ms,
        service=answer.call.service,
        status="ok" if answer.ok else "error",
        status_code=answer.status_code,
        duplicate=answer.first_round is not None,
        duplicate_of_round=answer.first_round,
        duplicate_count=answer.repeats or None,
        effect=answer.call.tool.effect if answer.call.tool else None,
        ran=answer.ran,
    )


def usage_record(usage: JsonObject, rounds: int, cost: float | None = None) -> UsageRecord:
    """The turn's tokens; ``rounds`` counts the model calls; ``cost`` in US dollars, where anybody knows it."""
    prompt, completion, cached = _tokens(usage)
    return UsageRecord(
        prompt_tokens=prompt,
        completion_tokens=completion,
        cached_tokens=cached,
        reported_cost_usd=cost,
        total_rounds=rounds,
    )


def _tokens(usage: JsonObject) -> tuple[int, int, int]:
    """(prompt, completion, cached) of a usage object in OpenAI's words, of chat or of Responses, or in Anthropic's."""
    details = usage.get("prompt_tokens_details", usage.get("input_tokens_details"))
    cached = details.get("cached_tokens") if isinstance(details, dict) else usage.get("cache_read_input_tokens")
    prompt = usage.get("prompt_tokens", usage.get("input_tokens"))
    completion = usage.get("completion_tokens", usage.get("output_tokens"))
    counted = (count if type(count) is int else 0 for count in (prompt, completion, cached))
    return next(counted), next(counted), next(counted)
