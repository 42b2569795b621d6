"""What runs: compose.generated.yml, and how it comes onto the disk."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

REQUIREMENTS: dict[str, Requirement] = {
    "compose:oracle": Requirement(
        "issue 5, Build 3",
        "Docker Compose itself takes every file that is generated.",
    ),
    "compose:passes-through": Requirement(
        "compile.md, Grammar",
        "Every key that the user wrote outside x-claw means in the generated file what it meant in the pod file.",
    ),
    "compose:derived-networks": Requirement(
        "compile.md, Output; decision 0018",
        "An agent reaches its proxy and its surfaces, the proxy what it calls for somebody, and only the proxy the world.",
    ),
    "compose:count": Requirement(
        "compile.md, count; origin-compile.md 2.12, edge cases 26 and 28",
        "An agent with count is so many containers, each with its own credential; who waits for it waits for each.",
    ),
    "compose:surfaces": Requirement(
        "compile.md, Defaults",
        "volume:// and host:// are mounts in the long form, read-only unless rw is said.",
    ),
    "compose:secrets": Requirement(
        "compile.md, Output; origin-compile.md edge case 30",
        "A secret arrives byte for byte, and compose.generated.yml holds none.",
    ),
    "compose:proxy": Requirement(
        "compile.md, Output",
        "The proxy runs without root, without a capability, on a file system that it can't write to.",
    ),
    "compose:modes": Requirement(
        "compile.md, Output; origin-compile.md 4.2",
        "In each mode a runner has what it needs to come to its proxy, and no other credential than its token.",
    ),
    "compose:live-tree": Requirement(
        "contract.md, Layout; origin-compile.md edge case 40; decision 0019",
        "A proxy that is serving sees the old tree or the new one, whole, also where it has the directory mounted.",
    ),
}
