"""Credential starvation by the compiler, and the values that it never prints."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

REQUIREMENTS: dict[str, Requirement] = {
    "compile:starvation": Requirement(
        "docs/spec/compile.md, Credential starvation",
        "No agent is given a provider's key or a secret of the proxy, by name, shape or value, in any place that can be seen.",
    ),
    "compile:folders": Requirement(
        "docs/spec/compile.md, Credential starvation",
        "The small files of every folder that an agent gets are searched, within bounds; a warning says what was not.",
    ),
    "compile:own-token-is-no-key": Requirement(
        "docs/spec/compile.md", "An agent's own token may stand where a provider's key would."
    ),
    "compile:planted-secrets": Requirement(
        "docs/spec/compile.md, Interpolation, Output; docs/spec/contract.md, Layout",
        "No value of a secret is in any output of any verb, or in any file but those that must hold it, which are 0600.",
    ),
}
