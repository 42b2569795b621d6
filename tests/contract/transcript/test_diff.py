"""The difference between two lines of history."""

from __future__ import annotations

import copy

import pytest

from claw_contract.transcript.diff import diff_entries
from tests.contract.transcript.test_render import LINE


@pytest.mark.requirement("transcript:turn")
def test_two_lines_are_compared_without_their_times_and_beyond_what_is_shown() -> None:
    again = copy.deepcopy(LINE) | {"latency_ms": 1, "ts": "later", "hash": "2" * 64}
    again["tool_trace"][0] |= {"wall_time_ms": 1}
    assert diff_entries(LINE, again) == []
    again["response"]["json"]["choices"][0]["message"]["content"] = "Sold."
    assert [line for line in diff_entries(LINE, again) if line[0] in "+-"] == [
        "-  │ assistant: Bought.",
        "+  │ assistant: Sold.",
    ]
    long, longer = ({**LINE, "request_original": "x" * 9000 + end} for end in ("1", "2"))
    assert diff_entries(long, longer) == [
        "the difference is in a part that a transcript does not show"
    ]
