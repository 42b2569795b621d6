"""The files that the compiler and the proxy share: read strictly, agent by agent; and the settings."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

REQUIREMENTS: dict[str, Requirement] = {
    "contract:published": Requirement(
        "contract", "Every file of the contract has a published JSON Schema, kept current."
    ),
    "contract:quarantine": Requirement("contract, tools.json", "A malformed tool is left out; the others work."),
    "contract:defaults": Requirement("contract, tools.json", "Absent or zero limits take the defaults."),
    "contract:base-url": Requirement(
        "contract, tools.json", "A base URL is scheme, host, port and path, without credentials or oddities."
    ),
    "contract:agent-id": Requirement(
        "contract, layout", "An agent id is checked before any path is built from it; nothing else is one."
    ),
    "contract:token-forms": Requirement(
        "contract, metadata.json", "A token is stored bare, full or as its SHA-256, and admits its own agent only."
    ),
    "contract:secret-dots": Requirement("mediation 2", "A secret prints as dots: text, format, JSON, errors."),
    "contract:redaction": Requirement(
        "contract, history", "Secrets never appear, by value, in any spelling of JSON; what was JSON stays JSON."
    ),
    "redactor:cost": Requirement(
        "contract, history", "What is not near a secret is not looked at: hostile text costs by its bytes, and once."
    ),
    "redactor:kept": Requirement("contract, history", "Of the credentials that strangers show nothing is kept."),
    "agents:found": Requirement("contract, layout", "An agent is its context directory, with or without tools."),
    "agents:reload": Requirement(
        "contract, layout", "A changed file, or a swapped tree, takes effect at the next request."
    ),
    "agents:broken": Requirement(
        "contract, layout", "A broken file fails that agent closed, with one event until it changes, and no other."
    ),
    "settings:defaults": Requirement("contract, layout", "Settings have the contract's names and defaults."),
    "settings:documented": Requirement(
        "CONTRIBUTING, how to add", "docs/settings.md names every setting, with its option and its default."
    ),
    "settings:shown": Requirement(
        "inspect, redaction", "A setting in which a password may stand is no option's default: options are shown."
    ),
    "settings:wrong": Requirement("issue 2, build 5", "A wrong setting is one line that names it."),
}
