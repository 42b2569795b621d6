"""Whom the compiler starves of credentials, and what it never tells."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

REQUIREMENTS: dict[str, Requirement] = {
    "compile:starvation": Requirement(
        "compile.md, Credential starvation; origin-compile 2.17",
        "No agent is given a provider's key or a secret of the proxy, by name, shape or value, in any place that can be seen.",
    ),
    "compile:own-token-is-no-key": Requirement(
        "origin-compile 7 (35)",
        "An agent's own token may stand where a provider's key would.",
    ),
    "compile:planted-secrets": Requirement(
        "compile.md, Interpolation, Output; contract.md, Layout; issue 5",
        "No value of a secret is in any output of any verb, or in any file but those that must hold it, which are 0600.",
    ),
}
