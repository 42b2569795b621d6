"""The developer's loop: no run leaves out a test without saying so."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

REQUIREMENTS: dict[str, Requirement] = {
    "development:not-tested": Requirement(
        "CONTRIBUTING.md, Tests",
        "A run ends with a list of what was not tested, each with the reason and the command that changes it.",
    ),
    "development:skips-fail-in-ci": Requirement(
        "CONTRIBUTING.md, Tests",
        "With CI=true a test that is skipped for a missing program is a failure; one that the kernel refuses is not.",
    ),
    "development:stages": Requirement(
        "CONTRIBUTING.md, Tests",
        "Every test has a stage, and the page of the stages shows a real test of each.",
    ),
    "development:one-script": Requirement(
        "CONTRIBUTING.md, Tests",
        "A test scripts the model in one language, whatever protocol a request is in.",
    ),
    "development:set-up": Requirement(
        "CONTRIBUTING.md, Tests",
        "The script that installs programs fails on no machine: with all of them, without root, and without apt-get.",
    ),
    "development:workflow": Requirement(
        "CONTRIBUTING.md, Tests",
        "GitHub's workflow is valid, may only read, and runs targets of the Makefile with both ends of mitmproxy's pin.",
    ),
}
