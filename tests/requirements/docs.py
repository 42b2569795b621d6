"""What the pages say."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

REQUIREMENTS: dict[str, Requirement] = {
    "docs:code-runs": Requirement(
        "issue 6, item 6", "Commands and code of the pages of the entrances run as they stand, and are mediated."
    ),
    "docs:environment": Requirement(
        "issue 6, item 6",
        "What a page gives a runner, starts a proxy with and redirects by is what claw compile writes.",
    ),
    "docs:codes": Requirement(
        "issue 6, item 6",
        "The page of troubles has every code, refusal to start, reason and event that the code says, and no other.",
    ),
    "docs:certificate-errors": Requirement(
        "issue 6, item 6", "A certificate error stands in the page as the runtime really says it."
    ),
    "docs:inspect": Requirement(
        "issue 6, item 6", "The page about looking inside has the filters, commands and events that there are."
    ),
    "docs:first-hour": Requirement(
        "README.md",
        "The commands of the README, word for word, lead from a fresh environment to a mediated answer of a real SDK.",
    ),
    "docs:links": Requirement("issue 6, item 6", "What a page links to, or names as a file, is there."),
    "docs:no-machine": Requirement("CONTRIBUTING", "No page names a place of one machine, or a registry of packages."),
    "docs:configs": Requirement("issue 6, item 6", "Every block of JSON or TOML is what it says."),
    "docs:references": Requirement(
        "CONTRIBUTING", "What code, tests, requirements and pages refer to is a page, and a section, of the repository."
    ),
    "docs:decisions": Requirement("CONTRIBUTING", "The index of decisions has every page, with its title."),
}
