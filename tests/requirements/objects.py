"""Files, batches, vector stores and the like: what a provider keeps for all agents of one account."""

from __future__ import annotations

from tests.requirements.requirement import Requirement


def _of(behavior: str) -> Requirement:
    return Requirement("docs/spec/mediation.md section 2, What a provider keeps", behavior)


REQUIREMENTS: dict[str, Requirement] = {
    "objects:rows": _of("The state knows of each object its agent, provider and key, for a year after its last use."),
}
