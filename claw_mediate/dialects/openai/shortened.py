"""Hidden rounds that a request has no room for, as one line a call (spec section 7): OpenAI."""

from __future__ import annotations

import msgspec

from claw_mediate.core import json_splice, summary
from claw_mediate.dialects.body_edits import compact


def shortened(messages: bytes) -> bytes:
    """Hidden messages with their calls and how each went; what was said, thought, sent and answered is left out."""
    array = b"[%b]" % messages
    return b",".join(_message(array[start:end]) for start, end in json_splice.elements(array))


def _message(message: bytes) -> bytes:
    read = json_splice.Object(message)
    if (calls := read.value("tool_calls")) is None:
        content = msgspec.json.decode(read.value("content") or b'""', type=str)
        return read.edited({"content": compact(summary.result(content))})
    short = b",".join(_call(calls[start:end]) for start, end in json_splice.elements(calls))
    return b'{"role":"assistant","content":null,"tool_calls":[%b]}' % short


def _call(call: bytes) -> bytes:
    """Its other members stay: they are a provider's own (signatures), without which it may refuse the call."""
    read = json_splice.Object(call)
    if (function := read.value("function")) is None:
        return call
    told = msgspec.json.decode(json_splice.Object(function).value("arguments") or b'""')
    less = summary.arguments(told if isinstance(told, str) else compact(told).decode())
    if less is None:
        return call
    return read.edited({"function": json_splice.edited(function, {"arguments": compact(compact(less).decode())})})
