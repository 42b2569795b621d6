"""The worked pods; of the trading desk its service, its scripted model, the demo."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

REQUIREMENTS: dict[str, Requirement] = {
    "pods:worked": Requirement(
        "issue 5, Build 7",
        "A worked pod is whole: its README names what it needs; Compose, the proxy, plan and explain take it.",
    ),
    "pods:service-bearer": Requirement("issue 2, trading-api", "No route is reached without the bearer token."),
    "pods:service-money": Requirement("issue 2, trading-api", "Money is exact: cents inside, two places outside."),
    "pods:service-identity": Requirement(
        "mediation 4, X-Claw-ID",
        "An agent sees and moves its own account only; identity is a header, never an argument.",
    ),
    "pods:service-idempotency": Requirement(
        "mediation 4, Idempotency-Key", "The same key gives the recorded answer: once, at once, and after a kill."
    ),
    "pods:service-concurrency": Requirement("issue 2, trading-api", "Trades at once cannot spend the same money."),
    "pods:service-refusals": Requirement("issue 2, bad input", "A refused request says why and changes nothing."),
    "pods:service-descriptor": Requirement(
        "issue 2, trading-api", "Every tool of the descriptor is served at its path, with its arguments."
    ),
    "pods:service-open-orders": Requirement(
        "issue 2, trading-api", "An open order holds money back until it is cancelled; nothing else can be cancelled."
    ),
    "pods:scripted-model-wire": Requirement(
        "issue 2, embedded scripted model", "The real wire, behind a key, labelled as scripted in every response."
    ),
    "pods:scripted-model-decides": Requirement(
        "issue 2, embedded scripted model", "It decides from the offered tools, the choice and the results alone."
    ),
    "pods:demo": Requirement(
        "issue 2, make demo",
        "Hidden rounds beside what the runner saw, one trade, the denied tool, the audit, no leak.",
    ),
    "pods:demo-stops-clean": Requirement("issue 2, make demo", "A signal leaves no process and no file behind."),
    "pods:demo-fails-clearly": Requirement(
        "issue 2, make demo", "What does not come true is named, and the status is 1."
    ),
}
