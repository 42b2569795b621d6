"""Whether a snapshot in ``.claw-discovered/`` is still of what the pod runs (origin-compile.md 2.14).

``claw discover`` writes into ``x-claw-discovery`` what it asked: the command and its arguments, the image. What is not
written there is not compared.
"""

from __future__ import annotations

from typing import Any

from claw_compile.descriptors.descriptor import Described
from claw_compile.grammar.relations import Stdio
from claw_contract.descriptor import DescriptorV2

_IMAGE_KEYS = ("image", "wrapper_image")


def differences(snapshot: Described, stdio: Stdio | None, image: str | None) -> tuple[str, ...]:
    """What of the pod is no longer what the snapshot was made of, by name: a value may be a variable's."""
    recorded = _recorded(snapshot)
    pod: dict[str, Any] = {} if image is None else dict.fromkeys(_IMAGE_KEYS, image)
    if stdio is not None:
        pod |= {"command": stdio.command.text, "args": [arg.text for arg in stdio.args]}
    return tuple(name for name, value in pod.items() if name in recorded and recorded[name] != value)


def is_of_image(snapshot: Described, image: str) -> bool:
    """Whether it says that it was taken from this image; one that says nothing was not."""
    recorded = _recorded(snapshot)
    return any(recorded.get(name) == image for name in _IMAGE_KEYS)


def _recorded(snapshot: Described) -> dict[str, Any]:
    descriptor = snapshot.descriptor
    return (descriptor.discovery or {}) if isinstance(descriptor, DescriptorV2) else {}
