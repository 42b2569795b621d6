"""The deployed pod: compose.generated.yml, and how it is written to the disk."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

REQUIREMENTS: dict[str, Requirement] = {
    "compose:oracle": Requirement(
        "docs/spec/compile.md", "Docker Compose itself takes every file that is generated."
    ),
    "compose:passes-through": Requirement(
        "docs/spec/compile.md, Grammar",
        "Every key that the user wrote outside x-claw means in the generated file what it meant in the pod file.",
    ),
    "compose:derived-networks": Requirement(
        "docs/spec/compile.md, Output; decision 0018",
        "An agent reaches its proxy and its surfaces, the proxy what it calls for somebody, and only the proxy the world.",
    ),
    "compose:count": Requirement(
        "docs/spec/compile.md, count",
        "An agent with count is so many containers, each with its own credential; who waits for it waits for each.",
    ),
    "compose:surfaces": Requirement(
        "docs/spec/compile.md, Defaults",
        "volume:// and host:// are mounts in the long form, read-only unless rw is said.",
    ),
    "compose:secrets": Requirement(
        "docs/spec/compile.md, Output",
        "A secret arrives byte for byte, and compose.generated.yml holds none.",
    ),
    "compose:proxy": Requirement(
        "docs/spec/compile.md, Output",
        "The proxy runs without root, without a capability, on a file system that it can't write to.",
    ),
    "compose:modes": Requirement(
        "docs/spec/compile.md, Output",
        "In each mode a runner has what it needs to come to its proxy, and no other credential than its token.",
    ),
    "compose:live-tree": Requirement(
        "docs/spec/contract.md, Layout; decision 0019",
        "A proxy that is serving sees the old tree or the new one, whole, also where it has the directory mounted.",
    ),
}
