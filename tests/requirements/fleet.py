"""Several proxies behind a load balancer, on one state."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

REQUIREMENTS: dict[str, Requirement] = {
    "fleet:moves": Requirement(
        "decision 0036",
        "Each turn of a conversation may be served by another proxy, and the model is shown all of it.",
    ),
    "fleet:entrances": Requirement(
        "docs/deployment.md",
        "Base URL and forward proxy work through a load balancer, by HTTP and by TCP.",
    ),
    "fleet:rolling": Requirement(
        "decision 0036",
        "A rolling restart under load interrupts no turn, and the SDKs' own retries lose no request.",
    ),
    "fleet:killed": Requirement(
        "decision 0036",
        "Whatever proxy is killed at whatever step: a request that its SDK retries succeeds, and no write is repeated.",
    ),
    "fleet:sessions": Requirement(
        "docs/deployment.md",
        "A session with the broker works where it stays with one proxy, and is opened anew when that is gone.",
    ),
}
