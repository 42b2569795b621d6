"""The life of the proxy: its start, reload and end; and the image and the manifests in which it runs."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

REQUIREMENTS: dict[str, Requirement] = {
    "drain:what-was-begun-ends": Requirement(
        "decision 0029",
        "A proxy that is stopped ends what was begun: turns, streams, and what it forwards.",
    ),
    "drain:nothing-new": Requirement(
        "decision 0029",
        "Meanwhile it is alive but not ready, and what is new gets 503 with retry-after and close.",
    ),
    "drain:idle": Requirement(
        "decision 0029",
        "Connections that runners keep for later are closed at once, so that none is used for a retry.",
    ),
    "drain:nothing-runs": Requirement(
        "decision 0029",
        "Where nothing runs it ends at once, with exit 0, also where its log can't be written.",
    ),
    "drain:signals": Requirement(
        "decision 0029", "More signals change nothing, to the very end of the process."
    ),
    "drain:cut-off": Requirement(
        "decision 0029",
        "What does not end in time is cut off: who waits is told, and history has its line.",
    ),
    "drain:taken-up": Requirement(
        "decision 0029",
        "A retry after the next start goes on with a turn that was cut off; no write is repeated.",
    ),
    "reload:turns-go-on": Requirement(
        "decision 0029",
        "Turns, streams and forwarded requests go on through a reload of the script.",
    ),
    "reload:broken-and-repaired": Requirement(
        "decision 0029",
        "Also through a broken one, which the guard answers for until it is repaired.",
    ),
    "reload:nothing-forgotten": Requirement(
        "decision 0029",
        "Neither a reload nor new settings forget turns, hidden rounds or budgets, also in memory.",
    ),
    "reload:new-settings": Requirement(
        "decision 0029",
        "Requests that began before new settings end under the old ones, and are recorded as ever.",
    ),
    "reload:ten-in-a-row": Requirement(
        "decision 0029",
        "Ten reloads under traffic cost no request, and the history stays one chain.",
    ),
    "compose:grace": Requirement(
        "docs/deployment.md",
        "The proxy's grace period is longer than the time that its requests have, whatever a pod sets.",
    ),
    "image:linted": Requirement(
        "docs/deployment.md", "The Dockerfile of the proxy's image pleases its linter."
    ),
    "image:same-command": Requirement(
        "docs/deployment.md",
        "The image, Compose and Kubernetes run the same command, and ask for its health alike.",
    ),
    "image:contents": Requirement(
        "docs/deployment.md",
        "The image has what compose.generated.yml expects of it, and nothing else.",
    ),
    "contained:compose": Requirement(
        "docs/deployment.md",
        "As compose.generated.yml says, without root, rights or a root that it can write, it mediates.",
    ),
    "contained:any-user": Requirement(
        "docs/deployment.md", "The image's own command runs for any user, without a home."
    ),
    "cli:no-image": Requirement(
        "docs/deployment.md",
        "claw up says how to build the proxy's image where it is missing; it is never pulled unasked.",
    ),
    "start:in-any-order": Requirement(
        "decision 0029",
        "It starts before keys, provider, services and names are there, says so, and works when they are.",
    ),
    "kubernetes:by-hand": Requirement(
        "docs/deployment.md",
        "A manifest for those without the compiler is sound, and locked as the compiled one.",
    ),
    "history:one-chain": Requirement(
        "decision 0027", "Mediators that write the same history at the same time write one chain."
    ),
}
