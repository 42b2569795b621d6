"""What differs between two lines of history of one turn, as transcripts tell it. Pure; times do not count."""

from __future__ import annotations

from difflib import unified_diff
from typing import Any

from claw_contract.transcript.render import render_transcript
from claw_contract.transcript.text import as_array, as_object

_NOT_COMPARED = ("latency_ms", "ts", "digest", "resumed", "prev", "id", "hash", "error")
"""Of a line: what is another each time, and what its status says already."""


def diff_entries(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Lines of the transcripts with a sign before them, as ``diff -u`` writes them; none where nothing differs."""
    old, new = _timeless(before), _timeless(after)
    if old == new:
        return []
    told = unified_diff(render_transcript(old).split("\n"), render_transcript(new).split("\n"), lineterm="", n=1)
    lines = [line for line in told if not line.startswith(("---", "+++", "@@"))]
    return lines or ["what differs lies beyond what a transcript shows"]


def _timeless(entry: dict[str, Any]) -> dict[str, Any]:
    # Of a turn that was resumed, usage is the last attempt's own.
    usage = {} if entry.get("resumed") is True else {**as_object(entry.get("usage")), "reported_cost_usd": None}
    trace = [
        {
            **past,
            "wall_time_ms": 0,
            "tool_calls": [{**as_object(call), "latency_ms": 0} for call in as_array(past.get("tool_calls"))],
        }
        for past in map(as_object, as_array(entry.get("tool_trace")))
    ]
    kept = {name: value for name, value in entry.items() if name not in _NOT_COMPARED}
    return {**kept, "usage": usage, "tool_trace": trace}
