"""The build context of a service: what its image is made of, as far as it is in the pod's directory.

Compose may build from anywhere; a context that is an address, or outside of the pod's directory, is not looked into.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass, field

from claw_compile.descriptors.dockerfile import Labels, labels
from claw_compile.grammar.pod import ServiceSpec
from claw_compile.loading.files import Files
from claw_compile.reading.interpolation import Lookup, interpolate
from claw_compile.reading.node import MapNode, Node, ScalarNode
from claw_compile.reading.source import Source

_ADDRESSES = ("git@", "github.com/")


@dataclass(frozen=True)
class BuildContext:
    """``path`` is relative to the pod's directory; ``labels`` are those of its Dockerfile."""

    path: str
    labels: Labels = field(default_factory=dict)


def places(directories: Iterable[str], in_image: str) -> tuple[str, ...]:
    """Where a file of the image may be found before it is built: at its path, or copied from the top."""
    inside = posixpath.normpath(in_image.strip()).lstrip("/")
    names = (inside, posixpath.basename(inside))
    return tuple(dict.fromkeys(posixpath.join(directory, name) for directory in directories for name in names))


def build_context(service: ServiceSpec, files: Files, lookup: Lookup) -> BuildContext | None:
    """The context of ``build: DIR`` or ``build: {context, dockerfile, dockerfile_inline, target}``."""
    build = service.body.value("build") if service.body else None
    if build is None or (isinstance(build, ScalarNode) and build.is_null):
        return None
    parts = build if isinstance(build, MapNode) else None
    context = filled(parts.value("context"), lookup) or "." if parts else filled(build, lookup)
    if context is None or "://" in context or context.startswith(_ADDRESSES):
        return None
    try:
        directory = files.target(context)
        if directory is None or not directory.is_dir():
            return None
    except (OSError, ValueError):
        return None
    dockerfile = _dockerfile(parts, context, files, lookup)
    target = filled(parts.value("target"), lookup) if parts else None
    return BuildContext(context, labels(dockerfile, target) if dockerfile is not None else {})


def _dockerfile(parts: MapNode | None, context: str, files: Files, lookup: Lookup) -> Source | None:
    inline = parts.value("dockerfile_inline") if parts else None
    if isinstance(inline, ScalarNode):
        # Its lines are not lines of the pod file: what is said of them is said of the whole.
        return Source(inline.span.file, interpolate(inline.text, lookup).text)
    name = (filled(parts.value("dockerfile"), lookup) if parts else None) or "Dockerfile"
    found = files.implied(posixpath.join(context, name), "the Dockerfile")
    return found.value if found else None


def filled(node: Node | None, lookup: Lookup) -> str | None:
    """A single value that Compose reads, with its variables; None when it is not there or can't be filled in."""
    if not isinstance(node, ScalarNode) or node.is_null:
        return None
    result = interpolate(node.text, lookup)
    return result.text if result.text.strip() and not result.problems else None
