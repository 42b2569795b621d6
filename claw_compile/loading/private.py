"""What of the pod's directory no agent may have mounted: the compiled tree, the master secret, ``.env``, and files of secrets.

A mount is judged by where it leads, after symlinks; one of a directory above brings all that is below it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Diagnostic, Span, quoted
from claw_compile.grammar.pod import PodSpec, written
from claw_compile.loading.files import Files
from claw_compile.reading.interpolation import Lookup, interpolate
from claw_compile.reading.node import ListNode, MapNode, Node, ScalarNode

_PRIVATE = (".claw-runtime", ".claw-master", ".claw-ca/private", ".env")
_FOR_AGENTS = "claw"
"""``.claw-runtime/agents/<id>/claw`` holds what an agent may know."""


def private_mounts(pod: PodSpec, files: Files, lookup: Lookup) -> Iterator[Diagnostic]:
    """Every bind mount of an agent, and every ``host://`` surface, that leads to what is private."""
    secrets = [secret.of.text for secret in pod.secrets if secret.source == "file"]
    private = {name: _real(files.root / name) for name in (*_PRIVATE, *secrets)}
    for at, path in _mounts(pod, lookup):
        target = _real(files.root / path)
        held = next((name for name, place in private.items() if _brings(target, place)), None)
        if held is not None:
            yield codes.PRIVATE_MOUNT.at(at, f"this mount gives the agent {quoted(held)}")


def _mounts(pod: PodSpec, lookup: Lookup) -> Iterator[tuple[Span, str]]:
    for agent in pod.agents:
        volumes = agent.body.value("volumes") if agent.body else None
        for item in volumes.items if isinstance(volumes, ListNode) else ():
            if (path := bind_source(item, lookup)) is not None:
                yield item.span, path
    for owner in pod.owners:
        for surface in written(owner.surfaces):
            if surface.scheme == "host":
                yield surface.span, surface.target


def _brings(target: Path, private: Path) -> bool:
    if private.is_relative_to(target):
        return True
    if not target.is_relative_to(private):
        return False
    inside = target.relative_to(private).parts
    return not (inside[:1] == ("agents",) and inside[2:3] == (_FOR_AGENTS,))


def _real(path: Path) -> Path:
    try:
        return Path(os.path.realpath(path))
    except (OSError, ValueError):
        return path


def bind_source(item: Node, lookup: Lookup) -> str | None:
    """The path of the host that a volume of a service is: short form or long, never a named volume."""
    if isinstance(item, MapNode):
        kind, source = item.value("type"), item.value("source")
        is_bind = isinstance(kind, ScalarNode) and kind.text == "bind"
        return _path(source.text, lookup) if is_bind and isinstance(source, ScalarNode) else None
    if not isinstance(item, ScalarNode):
        return None
    source_text, colon, _ = interpolate(item.text, lookup).text.partition(":")
    return source_text if colon and source_text.startswith((".", "/", "~")) else None


def _path(text: str, lookup: Lookup) -> str | None:
    return interpolate(text, lookup).text or None
