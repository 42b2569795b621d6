"""The files that the compiler and the proxy share: read strictly, agent by agent; and the settings."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

REQUIREMENTS: dict[str, Requirement] = {
    "contract:published": Requirement(
        "docs/spec/contract.md",
        "Every file of the contract has a published JSON Schema, kept current.",
    ),
    "contract:quarantine": Requirement(
        "docs/spec/contract.md, tools.json", "A malformed tool is left out; the others work."
    ),
    "contract:defaults": Requirement(
        "docs/spec/contract.md, tools.json", "Absent or zero limits take the defaults."
    ),
    "contract:base-url": Requirement(
        "docs/spec/contract.md, tools.json",
        "A base URL is scheme, host, port and path, without credentials or oddities.",
    ),
    "contract:agent-id": Requirement(
        "docs/spec/contract.md, layout",
        "An agent id is checked before any path is built from it; nothing else is one.",
    ),
    "contract:token-forms": Requirement(
        "docs/spec/contract.md, metadata.json",
        "A token is stored bare, full or as its SHA-256, and admits its own agent only.",
    ),
    "contract:secret-dots": Requirement(
        "docs/spec/mediation.md section 2", "A secret prints as dots: text, format, JSON, errors."
    ),
    "contract:redaction": Requirement(
        "docs/spec/contract.md, history.jsonl",
        "Secrets never appear, by value, in any spelling of JSON; what was JSON stays JSON.",
    ),
    "redactor:cost": Requirement(
        "docs/spec/contract.md, history.jsonl",
        "What is not near a secret is not looked at: hostile text costs by its bytes, and once.",
    ),
    "redactor:kept": Requirement(
        "docs/spec/contract.md, history.jsonl",
        "Of the credentials that strangers show nothing is kept.",
    ),
    "agents:found": Requirement(
        "docs/spec/contract.md, layout", "An agent is its context directory, with or without tools."
    ),
    "agents:reload": Requirement(
        "docs/spec/contract.md, layout",
        "A changed file, or a swapped tree, takes effect at the next request; a look holds for 50 ms.",
    ),
    "agents:reload-in-place": Requirement(
        "docs/spec/contract.md, layout",
        "A file that is written in place, and given its old time and size, is read again.",
    ),
    "agents:broken": Requirement(
        "docs/spec/contract.md, layout",
        "A broken file fails that agent closed, with one event until it changes, and no other.",
    ),
    "settings:defaults": Requirement(
        "docs/spec/contract.md, layout", "Settings have the contract's names and defaults."
    ),
    "settings:documented": Requirement(
        "CONTRIBUTING.md, how to add",
        "docs/settings.md names every setting, with its option and its default.",
    ),
    "settings:shown": Requirement(
        "docs/spec/inspect.md, redaction",
        "A setting in which a password may stand is no option's default: options are shown.",
    ),
    "settings:wrong": Requirement("docs/settings.md", "A wrong setting is one line that names it."),
}
