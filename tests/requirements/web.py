"""Seeing inside: the transcript of a turn, mitmweb's views and commands."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

REQUIREMENTS: dict[str, Requirement] = {
    "transcript:turn": Requirement(
        "inspect, Turn", "A line of history reads as who said what to whom, with results, timings and tokens."
    ),
    "transcript:dialects": Requirement(
        "inspect, Turn", "Requests and answers of both dialects are read, as JSON and as streams."
    ),
    "transcript:hostile": Requirement(
        "inspect, Turn",
        "Damaged lines cost no transcript, and no peer's words move a terminal's cursor or pass for ours.",
    ),
}
