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
        "issue 6.4", "Every line that the log knows is there, but for what the proxy has rotated away."
    ),
    "audit:merge": Requirement("inspect, claw audit", "What history and the log both tell of counts once."),
    "audit:resumed": Requirement("issue 6.4", "A turn that was gone on with counts once, with what all attempts used."),
    "audit:counts": Requirement(
        "inspect, claw audit", "Turns, calls, failures and interventions, by agent, tool and code."
    ),
    "audit:choice": Requirement("inspect, claw audit", "By agent, tool, status, time and turn."),
    "audit:quantiles": Requirement("inspect, claw audit", "p50 and p95 within one percent, in constant memory."),
    "audit:withheld": Requirement("issue 6.4", "Tools that an agent's model was not shown are told, with the reason."),
    "audit:log-forms": Requirement(
        "inspect, claw audit", "The log is read from wherever it was kept, and only what the proxy wrote counts."
    ),
    "audit:damaged": Requirement(
        "inspect, claw audit", "What can't be read is counted and named with its place; nothing is an error."
    ),
    "audit:constant-memory": Requirement("inspect, claw audit", "Gigabytes are read in a stream, in constant memory."),
    "audit:moving": Requirement("issue 6.4", "Files may grow and rotate while they are read."),
    "audit:real": Requirement("issue 6.4", "What audit counts of a real run is what happened in it."),
    "cli:audit": Requirement("inspect, claw audit", "Tables, JSON and CSV, as the page says; errors are one line."),
    "cli:audit-safe": Requirement(
        "inspect, claw audit", "Nothing of what is printed moves a terminal's cursor or is a spreadsheet's formula."
    ),
    "cli:audit-show": Requirement("inspect, claw audit", "A turn's transcript, by the beginning of its id."),
    "cli:audit-verify": Requirement("inspect, claw audit", "The verdict on each chain, also as the exit code."),
}
