"""The difference between the transcripts of two lines of history. Pure. Times are ignored."""

from difflib import unified_diff
from typing import Any

from claw_contract.transcript.render import render_transcript
from claw_contract.transcript.text import as_array, as_object

_IGNORED = ("latency_ms", "ts", "digest", "resumed", "prev", "id", "hash", "error")
"""Members that differ each time, or that say what the status says."""


def diff_entries(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return the changed lines of the transcripts with their context, as ``diff -u`` prints them.

    An empty list means that the entries are equal.
    """
    old = _timeless(before)
    new = _timeless(after)
    if old == new:
        return []

    old_lines = render_transcript(old).split("\n")
    new_lines = render_transcript(new).split("\n")
    changes = unified_diff(old_lines, new_lines, lineterm="", n=1)
    lines = [line for line in changes if not line.startswith(("---", "+++", "@@"))]
    return lines or ["the difference is in a part that a transcript does not show"]


def _timeless(entry: dict[str, Any]) -> dict[str, Any]:
    """Return a line of history without what differs each time."""
    usage: dict[str, Any] = {}
    # The usage of a resumed turn is only that of its last attempt, and what a reply that was cut
    # has cost is recorded nowhere else.
    is_cut = "shown" in as_object(entry.get("response"))
    if entry.get("resumed") is not True and not is_cut:
        usage = {**as_object(entry.get("usage")), "reported_cost_usd": None}

    trace = []
    for past in map(as_object, as_array(entry.get("tool_trace"))):
        calls = [{**as_object(call), "latency_ms": 0} for call in as_array(past.get("tool_calls"))]
        trace.append({**past, "wall_time_ms": 0, "tool_calls": calls})

    members = {name: value for name, value in entry.items() if name not in _IGNORED}
    return {**members, "usage": usage, "tool_trace": trace}
