"""Hidden requests as flows, and flows without secrets."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

REQUIREMENTS: dict[str, Requirement] = {
    "shadow:flows": Requirement(
        "docs/spec/inspect.md, mitmweb",
        "Each hidden round and tool call is a flow of its own that names its turn, round, tool and parent.",
    ),
    "shadow:filters": Requirement(
        "docs/spec/inspect.md, mitmweb",
        "mitmproxy's filters find them by comment, metadata and marker.",
    ),
    "shadow:destination": Requirement(
        "docs/spec/inspect.md, mitmweb",
        "The runner's flow is shown with its real destination, also at the base-URL entrance.",
    ),
    "shadow:failures": Requirement(
        "docs/spec/inspect.md, mitmweb",
        "Tries that fail, and what a runner that left was waiting for, are flows with their error.",
    ),
    "shadow:apart": Requirement(
        "docs/spec/inspect.md, mitmweb", "Turns at one moment keep their hidden flows apart."
    ),
    "shadow:live": Requirement(
        "docs/spec/inspect.md, mitmweb",
        "A hidden request is shown while it is not answered, and a script that is loaded anew loses none.",
    ),
    "shadow:never-again": Requirement(
        "docs/spec/inspect.md, mitmweb",
        "A hidden request is never replayed to a peer; a runner's has no credential left to be replayed with.",
    ),
    "shadow:dumper": Requirement(
        "docs/spec/contract.md, the log",
        "What mitmproxy prints of flows goes to stderr; stdout is one JSON object a line.",
    ),
    "shadow:bounded": Requirement(
        "docs/spec/inspect.md, mitmweb",
        "The view drops its oldest turns whole, and none that is under way or marked.",
    ),
    "shadow:recorded": Requirement(
        "docs/spec/inspect.md, mitmweb",
        "Flows that are loaded from a file are looked at: none is decided about, asked, or recorded.",
    ),
    "shadow:free": Requirement(
        "docs/spec/inspect.md, mitmweb", "Where nobody looks on, no flow is made."
    ),
    "veil:forwarded": Requirement(
        "docs/spec/inspect.md, redaction",
        "A provider's key is put on the wire only; a forwarded body is sent with it, and kept without secrets.",
    ),
    "veil:refused": Requirement(
        "docs/spec/inspect.md, redaction",
        "What a refused request showed as its credential is kept nowhere, wherever it stood.",
    ),
    "veil:beyond": Requirement(
        "docs/spec/inspect.md, redaction",
        "To hosts that are not governed a request goes as it came, and is kept without credentials.",
    ),
    "veil:cost": Requirement(
        "docs/spec/inspect.md, redaction",
        "A head that anybody may send costs by its bytes, once, and nothing of it is kept.",
    ),
    "veil:errors": Requirement(
        "docs/spec/inspect.md, redaction",
        "A provider's error tells nobody a key: not in its body, whatever that is packed in, its reason, or its headers.",
    ),
    "veil:edits": Requirement(
        "docs/spec/inspect.md, redaction",
        "What is shown goes back to its own original; an edit wins, framed as what it is; no dots are sent for a secret.",
    ),
    "veil:over": Requirement(
        "docs/spec/inspect.md, redaction", "Nothing is kept aside of a request that is over."
    ),
    "veil:killed": Requirement(
        "docs/spec/inspect.md, redaction",
        "What a proxy that was killed in a turn had saved can be read, and holds no secret.",
    ),
    "veil:reports": Requirement(
        "docs/spec/inspect.md, redaction",
        "What mitmproxy reports of a peer's words is shortened: it keeps 10,000 reports.",
    ),
    "veil:mitmweb": Requirement(
        "docs/spec/inspect.md, redaction",
        "mitmweb tells no secret: not in its flows, their bodies, or its events.",
    ),
}
