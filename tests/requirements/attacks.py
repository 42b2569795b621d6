"""Attacks on similar systems (`docs/attacks.md` is printed from the list in `tests/attacks/`)."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

REQUIREMENTS: dict[str, Requirement] = {
    "attack:planted-secrets": Requirement(
        "docs/spec/mediation.md section 2",
        "No key or token reaches anybody who did not have it, whoever says it and in whatever form.",
    ),
    "attack:documented": Requirement(
        "docs/attacks.md",
        "docs/attacks.md tells of each known attack what holds it off, and is current.",
    ),
    "attack:no-credential": Requirement(
        "docs/attacks.md",
        "Nothing but the credential is one: not a cookie, a Host, an Origin, or half of it.",
    ),
    "attack:path-arguments": Requirement(
        "docs/attacks.md",
        "Over the wire a path argument is one segment and a query argument one pair.",
    ),
    "attack:injected-results": Requirement(
        "docs/attacks.md", "Whatever a service says is one text in its place, and stays data."
    ),
    "attack:names": Requirement(
        "docs/attacks.md", "A name that nearly is a granted tool's runs nothing, and is told so."
    ),
    "attack:double-execution": Requirement(
        "docs/attacks.md",
        "In one turn an equal call runs once, also after an error of the provider.",
    ),
    "attack:shared-service": Requirement(
        "docs/attacks.md",
        "Agents that share a service share no credential, no identity and no result.",
    ),
    "attack:two-protocols": Requirement(
        "docs/spec/mediation.md sections 5 and 7",
        "What was recorded in one protocol is never gone on with in another, whatever is said.",
    ),
    "attack:deep-and-huge": Requirement(
        "docs/attacks.md",
        "Deep, wide and huge JSON is sent or told as it is, or refused as a whole.",
    ),
    "attack:endless-results": Requirement(
        "docs/attacks.md", "A result without an end is given up, and the turn goes on."
    ),
    "attack:many-calls": Requirement(
        "docs/attacks.md",
        "A reply of more calls than a reply may hold runs none of them, and is told so.",
    ),
}
