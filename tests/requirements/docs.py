"""The truth of the pages."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

REQUIREMENTS: dict[str, Requirement] = {
    "docs:code-runs": Requirement(
        "CONTRIBUTING.md",
        "Commands and code of the pages of the entrances run as they stand, and are mediated.",
    ),
    "docs:promises": Requirement(
        "SECURITY.md",
        "Each promise names the requirements that hold it, and each of them has tests.",
    ),
    "docs:environment": Requirement(
        "CONTRIBUTING.md",
        "What a page gives a runner, starts a proxy with and redirects by is what claw compile writes.",
    ),
    "docs:codes": Requirement(
        "CONTRIBUTING.md",
        "The page of troubles has every code, refusal to start, reason and event that the code says, and no other.",
    ),
    "docs:certificate-errors": Requirement(
        "CONTRIBUTING.md", "A certificate error stands in the page as the runtime really says it."
    ),
    "docs:inspect": Requirement(
        "CONTRIBUTING.md",
        "The page about looking inside has the filters, commands and events that there are.",
    ),
    "docs:first-hour": Requirement(
        "README.md",
        "The commands of the README, word for word, lead from a fresh environment to a mediated answer of a real SDK.",
    ),
    "docs:links": Requirement(
        "CONTRIBUTING.md", "What a page links to, or names as a file, is there."
    ),
    "docs:no-machine": Requirement(
        "CONTRIBUTING.md", "No page names a place of one machine, or a registry of packages."
    ),
    "docs:configs": Requirement("CONTRIBUTING.md", "Every block of JSON or TOML is what it says."),
    "docs:references": Requirement(
        "CONTRIBUTING.md",
        "What code, tests, requirements and pages refer to is a page, and a section, of the repository.",
    ),
    "docs:decisions": Requirement(
        "CONTRIBUTING.md", "The index of decisions has every page, with its title."
    ),
}
