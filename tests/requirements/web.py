"""The operator's view: the transcript of a turn, mitmweb's views and commands."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

REQUIREMENTS: dict[str, Requirement] = {
    "transcript:turn": Requirement(
        "docs/spec/inspect.md, Turn",
        "A line of history reads as who said what to whom, with results, timings and tokens.",
    ),
    "transcript:dialects": Requirement(
        "docs/spec/inspect.md, Turn",
        "Requests and answers of every dialect are read, as JSON and as streams.",
    ),
    "transcript:line-ends": Requirement(
        "docs/spec/inspect.md, Turn",
        "A stream is read with any of the three line ends, and no other character ends a line.",
    ),
    "transcript:hostile": Requirement(
        "docs/spec/inspect.md, Turn",
        "Damaged lines cost no transcript, and no peer's words move a terminal's cursor or pass for ours.",
    ),
    "web:address": Requirement(
        "docs/inspect.md", "mitmweb says where its page is, without an option."
    ),
    "web:turn-view": Requirement(
        "docs/spec/inspect.md, Turn",
        "The Turn view is a mediated flow's default, of now and of a file; hidden requests say what they are part of.",
    ),
    "web:commands": Requirement(
        "docs/spec/inspect.md, commands",
        "claw.turn, claw.agents and claw.reload tell what is, without a secret.",
    ),
    "web:replay": Requirement(
        "docs/spec/inspect.md, claw.replay",
        "A recorded turn is played again offline, under the present manifest, and what differs is said.",
    ),
    "web:browser": Requirement(
        "docs/spec/inspect.md, mitmweb",
        "In a real browser a turn is found and read, with its hidden requests, and nothing sent to it is secret.",
    ),
    "web:guarded": Requirement(
        "docs/inspect.md",
        "mitmweb's page may unload the script, and then nothing goes out; what lets requests out it can't set.",
    ),
}
