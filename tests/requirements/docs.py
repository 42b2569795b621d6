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
    "docs:pictures": Requirement(
        "CONTRIBUTING.md", "The drawn pictures are what the code and the pages say today."
    ),
    "docs:install": Requirement(
        "CONTRIBUTING.md",
        "No page, and no message of the code, installs a package from a place where nobody has published it.",
    ),
    "docs:dependencies": Requirement(
        "decision 0005", "The page of dependencies has a reason for each dependency that there is."
    ),
    "docs:counts": Requirement(
        "CONTRIBUTING.md", "No decision counts lines of code, since they change without it."
    ),
    "docs:first-screen": Requirement(
        "README.md",
        "The grant of the first screen compiles to the tools that it names, and the demo prints what it shows.",
    ),
    "docs:where": Requirement(
        "ARCHITECTURE.md",
        "The files and the test that decide about a native call before a managed one are named, and are there.",
    ),
    "docs:decisions": Requirement(
        "CONTRIBUTING.md", "The index of decisions has every page, with its title."
    ),
}
