"""What others were attacked by (`docs/attacks.md` is printed from the list in `tests/attacks/`)."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

REQUIREMENTS: dict[str, Requirement] = {
    "attack:planted-secrets": Requirement(
        "mediation 2; issue 3, prove",
        "No key or token reaches anybody who did not have it, whoever says it and in whatever form.",
    ),
    "attack:documented": Requirement(
        "issue 3, prove", "docs/attacks.md tells of each known attack what holds it off, and is current."
    ),
    "attack:no-credential": Requirement(
        "gateways 4, identity", "Nothing but the credential is one: not a cookie, a Host, an Origin, or half of it."
    ),
    "attack:path-arguments": Requirement(
        "gateways 4, path arguments", "Over the wire a path argument is one segment and a query argument one pair."
    ),
    "attack:injected-results": Requirement(
        "gateways 4, prompt-injected results", "Whatever a service says is one text in its place, and stays data."
    ),
    "attack:names": Requirement(
        "gateways 4, confused ownership", "A name that nearly is a granted tool's runs nothing, and is told so."
    ),
    "attack:double-execution": Requirement(
        "gateways 4, double execution", "In one turn an equal call runs once, also after an error of the provider."
    ),
    "attack:shared-service": Requirement(
        "gateways 4, mix-up", "Agents that share a service share no credential, no identity and no result."
    ),
    "attack:two-protocols": Requirement(
        "mediation 5 and 7", "What was recorded in one protocol is never gone on with in another, whatever is said."
    ),
    "attack:deep-and-huge": Requirement(
        "gateways 4, resource exhaustion", "Deep, wide and huge JSON is sent or told as it is, or refused as a whole."
    ),
    "attack:endless-results": Requirement(
        "gateways 4, resource exhaustion", "A result without an end is given up, and the turn goes on."
    ),
    "attack:many-calls": Requirement(
        "gateways 4, resource exhaustion",
        "A reply of more calls than a reply may hold runs none of them, and is told so.",
    ),
}
