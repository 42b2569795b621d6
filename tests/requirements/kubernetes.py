"""``--target kubernetes``: the same authority for another runtime."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

REQUIREMENTS: dict[str, Requirement] = {
    "kubernetes:schemas": Requirement(
        "docs/spec/compile.md",
        "Every object is valid by the API's own schemas, of the oldest version with native sidecars and of the newest.",
    ),
    "kubernetes:sidecar": Requirement(
        "docs/spec/compile.md, Verbs",
        "Each agent has its proxy as a native sidecar without rights, whose files no other container mounts.",
    ),
    "kubernetes:policies": Requirement(
        "docs/spec/compile.md, Verbs, Output",
        "Everything is denied both ways but what is derived; only proxies and services that had it reach the world.",
    ),
    "kubernetes:secrets": Requirement(
        "docs/spec/compile.md, Interpolation",
        "Values from the environment stand in Secrets only, in a file that only its owner reads.",
    ),
    "kubernetes:carried": Requirement(
        "docs/spec/compile.md, Verbs", "A Compose service becomes a Deployment, a Service and its claims."
    ),
    "kubernetes:not-carried": Requirement(
        "docs/spec/compile.md", "What can't be carried over from Compose is one diagnostic each, where it stands."
    ),
    "kubernetes:modes": Requirement(
        "docs/spec/compile.md, Output",
        "In transparent mode the redirect is set in the agent's own pod, by a step that ends before the proxy starts.",
    ),
    "kubernetes:guarded": Requirement(
        "docs/spec/compile.md, Verbs",
        "An agent beside its proxy has no right that lets it out past the guard, and is not its proxy's user.",
    ),
    "kubernetes:names": Requirement(
        "docs/spec/compile.md, Output",
        "No two things of a pod are one object: names are made so, and what is nevertheless the same is refused.",
    ),
    "kubernetes:surfaces": Requirement(
        "docs/spec/compile.md, Output",
        "A surface opens its service's ports and no more; what its mode keeps an agent from there is told.",
    ),
}
