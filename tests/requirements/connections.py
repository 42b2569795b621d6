"""Limits of connections, of bodies in flight, and of what a listener opens to strangers."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

_ONE = "docs/spec/mediation.md section 1"

REQUIREMENTS: dict[str, Requirement] = {
    "connections:unreadable-directory": Requirement(
        "docs/spec/mediation.md section 2",
        "Only a context directory that is not there means that there is no such agent; if it can't be read for any other "
        "reason, a request gets 503 with Retry-After, and nothing that is known of the agent is forgotten.",
    ),
    "connections:descriptors": Requirement(
        _ONE,
        "The process takes as many descriptors as the system lets it have, and a lack of them is one line a minute.",
    ),
    "connections:strangers": Requirement(
        _ONE,
        "Connections that have not shown a valid token have a share of the descriptors; if it is full, the oldest is closed, "
        "and agents are served all the same.",
    ),
    "connections:agent-share": Requirement(
        _ONE,
        "An agent may use as many of the agents' descriptors as all of them leave free, so that none and no two take them all; "
        "beyond that its own unused connections are closed, else its request gets 429 with Retry-After.",
    ),
    "connections:head": Requirement(
        _ONE,
        "A connection that has sent no complete head in 30 s is closed: silent, with half a head, or behind CONNECT; and so is "
        "one that is kept between two requests, 30 s after the first byte of a head without an end.",
    ),
    "connections:idle": Requirement(
        _ONE,
        "A connection without an open request is closed after 5 min, whatever PINGs it sends; one that waits for an answer, "
        "streams, or leads through to a host that is not governed is not.",
    ),
    "connections:refusals-limited": Requirement(
        _ONE,
        "Lines about refused tokens are limited in number for each reason, and say how many were left out.",
    ),
    "egress:no-private": Requirement(
        _ONE,
        "With egress allowed, no ungoverned connection leads to a loopback, link-local, private or special address, by the "
        "address that is dialled, unless CLLAMA_EGRESS_NETWORKS opens it or a provider is configured there.",
    ),
    "egress:refusals-logged": Requirement(
        _ONE, "A refused destination is one line a minute, however often it is asked for."
    ),
    "egress:shell-defaults": Requirement(
        _ONE,
        "Where no setting says otherwise, the entrances are on loopback, and egress is denied; compiled files say it.",
    ),
    "bodies:bounded": Requirement(
        "docs/spec/mediation.md section 2",
        "Request bodies that are held whole count from their heads until they are answered, packed and unpacked; beyond the "
        "limit of an agent a request gets 429, beyond that of the process 503, with Retry-After.",
    ),
    "bodies:beside-the-loop": Requirement(
        "docs/spec/mediation.md section 2",
        "What is done with a body of more than 1 MiB is done in a thread, or in pieces, and changes no byte of it.",
    ),
    "bodies:outline": Requirement(
        "docs/spec/mediation.md section 2",
        "A JSON document of more than 1 MiB is read by its outline: no decoder gets its long texts, and what is read is the "
        "same.",
    ),
    "bodies:too-many-values": Requirement(
        "docs/spec/mediation.md section 2",
        "A request of more than 1 MiB with more than 300,000 members, objects and arrays, 500,000 values, or 16 MiB beside its "
        "long texts is refused with 400.",
    ),
    "bodies:escapes": Requirement(
        "docs/spec/mediation.md section 2",
        "A secret in a large document is found in pieces, at each level of JSON within JSON.",
    ),
}
