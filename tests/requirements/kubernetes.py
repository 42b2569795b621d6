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
        "docs/spec/compile.md, Verbs",
        "A Compose service becomes a Deployment, a Service and its claims.",
    ),
    "kubernetes:not-carried": Requirement(
        "docs/spec/compile.md",
        "What can't be carried over from Compose is one diagnostic each, where it stands.",
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
    "kubernetes:world": Requirement(
        "docs/deployment.md, Kubernetes",
        "The internet is no address that is private, of a metadata service or of nobody, in IPv6 and through NAT64 neither.",
    ),
    "kubernetes:commands": Requirement(
        "docs/deployment.md, Kubernetes",
        "A command means what it means in Compose: the cluster fills in no variable of it.",
    ),
    "kubernetes:surfaces": Requirement(
        "docs/spec/compile.md, Output",
        "A surface opens its service's ports and no more; what its mode keeps an agent from there is told.",
    ),
    "gateway:fleet": Requirement(
        "docs/spec/compile.md, Verbs",
        "For --topology gateway a pod has one Deployment of proxies without rights, spread, behind a Service, and no sidecar.",
    ),
    "gateway:scales": Requirement(
        "decision 0036",
        "The fleet is scaled by the turns under way in each proxy, which it tells to whoever has its token.",
    ),
    "gateway:drains": Requirement(
        "decision 0036",
        "A proxy that is stopped first leaves the Service, and then has as much time as a turn may take.",
    ),
    "gateway:shared-state": Requirement(
        "decision 0036",
        "The proxies share one server, whose URL is a Secret of its own; a pod without one is refused.",
    ),
    "gateway:transparent": Requirement(
        "docs/spec/compile.md, Verbs",
        "A transparent agent is refused: what it sends can't be redirected to another pod.",
    ),
    "gateway:policies": Requirement(
        "docs/spec/compile.md, Verbs",
        "An agent reaches the fleet's entrances and its surfaces' ports; the fleet what it calls, its state, and the world.",
    ),
    "gateway:history": Requirement(
        "decision 0036", "Each proxy writes a history of its own, in a claim that outlives it."
    ),
    "gateway:sessions": Requirement(
        "docs/spec/mcp.md, The broker",
        "Where a client has a session with the broker, it stays with one proxy of the fleet.",
    ),
}
