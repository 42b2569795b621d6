"""The build context of a service: the source of its image, as far as it is in the pod's directory.

Compose may build from anywhere; a context that is an address, or outside of the pod's directory, is not looked into.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass, field

from claw_compile.descriptors.dockerfile import Labels, labels
from claw_compile.grammar.pod import ServiceSpec
from claw_compile.loading.files import Files
from claw_compile.parsing.interpolation import Lookup, interpolate
from claw_compile.parsing.node import MapNode, Node, ScalarNode, child
from claw_compile.parsing.source import Source

_ADDRESSES = ("git@", "github.com/")


@dataclass(frozen=True)
class BuildContext:
    """``path`` is relative to the pod's directory; ``labels`` are those of its Dockerfile."""

    path: str
    labels: Labels = field(default_factory=dict)


def candidate_paths(directories: Iterable[str], in_image: str) -> tuple[str, ...]:
    """Return the paths where a file of the image may be before it is built: its own path, or copied from the top."""
    inside = posixpath.normpath(in_image.strip()).lstrip("/")
    names = (inside, posixpath.basename(inside))
    return tuple(dict.fromkeys(posixpath.join(directory, name) for directory in directories for name in names))


def build_context(service: ServiceSpec, files: Files, lookup: Lookup) -> BuildContext | None:
    """Return the context of ``build: DIR`` or ``build: {context, dockerfile, dockerfile_inline, target}``."""
    build = child(service.body, "build")
    if build is None or (context := _directory(build, files, lookup)) is None:
        return None
    source = dockerfile(build, files, lookup)
    return BuildContext(context, labels(source, fill_in(child(build, "target"), lookup)) if source is not None else {})


def dockerfile(build: Node, files: Files, lookup: Lookup, within: str = "") -> Source | None:
    """Return the Dockerfile of a service's ``build``. ``within`` is the directory of its Compose file, from the pod's."""
    context = _directory(build, files, lookup, within)
    if context is None:
        return None
    parts = build if isinstance(build, MapNode) else None
    inline = child(parts, "dockerfile_inline")
    if isinstance(inline, ScalarNode):
        # Its lines are not lines of the pod file: what is said of them is said of the whole.
        return Source(inline.span.file, interpolate(inline.text, lookup).text)
    name = (fill_in(parts.value("dockerfile"), lookup) if parts else None) or "Dockerfile"
    source = files.read_if_present(posixpath.join(context, name), "the Dockerfile")
    return source.value if source else None


def _directory(build: Node, files: Files, lookup: Lookup, within: str = "") -> str | None:
    """Return the context as a directory of the pod's; None for what is not looked into."""
    if isinstance(build, ScalarNode) and build.is_null:
        return None
    context = fill_in(build.value("context"), lookup) or "." if isinstance(build, MapNode) else fill_in(build, lookup)
    if context is None or "://" in context or context.startswith(_ADDRESSES):
        return None
    context = posixpath.join(within, context)
    try:
        directory = files.resolve_path(context)
        return context if directory is not None and directory.is_dir() else None
    except (OSError, ValueError):
        return None


def fill_in(node: Node | None, lookup: Lookup) -> str | None:
    """Return a single value with its variables filled in; None when it is absent or can't be filled in."""
    if not isinstance(node, ScalarNode) or node.is_null:
        return None
    result = interpolate(node.text, lookup)
    return result.text if result.text.strip() and not result.problems else None
