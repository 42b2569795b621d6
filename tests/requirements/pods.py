"""The worked pods; and the trading desk's service, scripted model and demo."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

REQUIREMENTS: dict[str, Requirement] = {
    "pods:worked": Requirement(
        "CONTRIBUTING.md, Tests",
        "A worked pod is whole: its README names what it needs; Compose, the proxy, plan and explain take it.",
    ),
    "pods:service-bearer": Requirement(
        "CONTRIBUTING.md, Tests", "No route is reached without the bearer token."
    ),
    "pods:service-money": Requirement(
        "CONTRIBUTING.md, Tests", "Money is exact: cents inside, two places outside."
    ),
    "pods:service-identity": Requirement(
        "docs/spec/mediation.md section 4, X-Claw-ID",
        "An agent sees and moves its own account only; identity is a header, never an argument.",
    ),
    "pods:service-idempotency": Requirement(
        "docs/spec/mediation.md section 4, Idempotency-Key",
        "The same key gives the recorded answer: once, at once, and after a kill.",
    ),
    "pods:service-concurrency": Requirement(
        "CONTRIBUTING.md, Tests", "Trades at once cannot spend the same money."
    ),
    "pods:service-refusals": Requirement(
        "CONTRIBUTING.md, Tests", "A refused request says why and changes nothing."
    ),
    "pods:service-descriptor": Requirement(
        "CONTRIBUTING.md, Tests",
        "Every tool of the descriptor is served at its path, with its arguments.",
    ),
    "pods:service-open-orders": Requirement(
        "CONTRIBUTING.md, Tests",
        "An open order holds money back until it is cancelled; nothing else can be cancelled.",
    ),
    "pods:journal-tools": Requirement(
        "docs/spec/mcp.md, Discovery",
        "The journal's committed snapshot is what `claw discover` gets from the server.",
    ),
    "pods:journal-calls": Requirement(
        "docs/spec/mcp.md, The stdio wrapper",
        "Behind `claw mcp-stdio` an entry is kept with its author and found again; what is no tool is an error.",
    ),
    "pods:journal-composed": Requirement(
        "docs/spec/mcp.md, The stdio wrapper",
        "With the entry point and environment that Compose reads, the wrapper runs, is healthy and serves its service's name.",
    ),
    "pods:scripted-model-wire": Requirement(
        "CONTRIBUTING.md, Tests",
        "The real wire, behind a key, labelled as scripted in every response.",
    ),
    "pods:scripted-model-decides": Requirement(
        "CONTRIBUTING.md, Tests", "It decides from the offered tools and the results alone."
    ),
    "pods:demo": Requirement(
        "CONTRIBUTING.md, Tests",
        "Hidden rounds over HTTP and MCP beside what the runner saw, one trade, the denied tool, the audit, no leak.",
    ),
    "pods:demo-stops-clean": Requirement(
        "CONTRIBUTING.md, Tests", "A signal leaves no process and no file behind."
    ),
    "pods:demo-fails-clearly": Requirement(
        "CONTRIBUTING.md, Tests", "What does not come true is named, and the status is 1."
    ),
}
