"""What an operator finds out afterwards: ``claw audit``."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

REQUIREMENTS: dict[str, Requirement] = {
    "audit:verify": Requirement(
        "inspect, claw audit", "The first broken line of a chain is named, with what was done."
    ),
    "audit:verify-benign": Requirement(
        "issue 6.4", "What a crash or a rotation does to a chain is no break, and is said."
    ),
    "audit:verify-property": Requirement(
        "issue 6.4", "Whatever is changed, removed, put in, moved or repeated within a chain is found."
    ),
    "audit:verify-anchor": Requirement(
        "issue 6.4", "Lines that were cut off at a line's end show where the log knows a later one."
    ),
}
