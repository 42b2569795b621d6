"""``claw audit``: an operator's questions afterwards."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

_SPEC = 'docs/spec/inspect.md, "claw audit"'
_CHAIN = 'docs/audit.md, "verify"; decision 0027'

REQUIREMENTS: dict[str, Requirement] = {
    "audit:verify": Requirement(
        _SPEC, "The first broken line of a chain is named, with what was done to it."
    ),
    "audit:verify-benign": Requirement(
        _CHAIN,
        "A crash, a rotation, or turns that leave no line do not break a chain; traces are reported as notes.",
    ),
    "audit:verify-property": Requirement(
        _CHAIN,
        "Everything that is changed, removed, inserted, moved or repeated within a chain is found.",
    ),
    "audit:verify-anchor": Requirement(
        _CHAIN,
        "Every turn that a given log names is in history, else it is named as missing, rotated away or not.",
    ),
    "audit:pushed-out": Requirement(
        _CHAIN,
        "An agent that fills its history with refused requests, until a turn is gone, is found by the log.",
    ),
    "audit:merge": Requirement(_SPEC, "A turn that is in history and in the log counts once."),
    "audit:resumed": Requirement(
        "docs/audit.md", "A resumed turn counts once, with the usage of all attempts."
    ),
    "audit:counts": Requirement(
        _SPEC, "Turns, calls, failures and interventions are counted by agent, tool and code."
    ),
    "audit:choice": Requirement(
        _SPEC, "Agent, tool, status, time and turn select what is counted."
    ),
    "audit:quantiles": Requirement(
        "docs/audit.md", "p50 and p95 are exact to within one percent, in constant memory."
    ),
    "audit:withheld": Requirement(
        'docs/audit.md, "--json"',
        "Tools that an agent's model was not shown are listed with the reason.",
    ),
    "audit:log-forms": Requirement(
        "docs/audit.md",
        "The log is read in every form in which it may be kept, and only lines of the proxy count.",
    ),
    "audit:damaged": Requirement(
        "docs/audit.md", "Unreadable input is counted and named with its place; it is no error."
    ),
    "audit:constant-memory": Requirement(
        _SPEC, "Gigabytes are read as a stream, in constant memory."
    ),
    "audit:moving": Requirement(_SPEC, "Files may grow and rotate while they are read."),
    "audit:real": Requirement(_SPEC, "The counts of a real run are those of what happened in it."),
    "cli:audit": Requirement(
        _SPEC, "Tables, JSON and CSV are as docs/audit.md says; an error is one line."
    ),
    "cli:audit-safe": Requirement(
        'docs/audit.md, "--csv"',
        "No output moves a terminal's cursor or is a formula in a spreadsheet.",
    ),
    "cli:audit-show": Requirement(
        _SPEC, "A turn is found by the beginning of its id, and its transcript printed."
    ),
    "cli:audit-verify": Requirement(
        _SPEC, "The verdict on each chain is printed, and is the exit code."
    ),
}
