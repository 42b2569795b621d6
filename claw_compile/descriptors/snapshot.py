"""Whether a snapshot in ``.claw-discovered/`` is still of what the pod runs (origin-compile.md 2.14).

``claw discover`` writes into ``x-claw-discovery`` what it asked: the command and its arguments, the image. What is not
written there is not compared.
"""

from __future__ import annotations

from typing import Any

from claw_compile.descriptors.descriptor import Described
from claw_compile.grammar.pod import Stdio

_IMAGE_KEYS = ("image", "wrapper_image")


def differences(snapshot: Described, stdio: Stdio | None, image: str | None) -> tuple[str, ...]:
    """What of the pod is no longer what the snapshot was made of, by name: a value may be a variable's."""
    recorded = _recorded(snapshot)
    parts: list[tuple[str, str, Any]] = []
    if stdio is not None:
        parts += [("command", "command", stdio.command.text), ("args", "args", [arg.text for arg in stdio.args])]
    if image is not None:
        parts += [(key, "image", image) for key in _IMAGE_KEYS]
    return tuple(dict.fromkeys(name for key, name, value in parts if key in recorded and recorded[key] != value))


def is_of_image(snapshot: Described, image: str) -> bool:
    """Whether it says that it was taken from this image; one that says nothing was not."""
    recorded = _recorded(snapshot)
    return any(recorded.get(name) == image for name in _IMAGE_KEYS)


def _recorded(snapshot: Described) -> dict[str, Any]:
    return snapshot.descriptor.discovery or {}
