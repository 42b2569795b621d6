"""What relates one part of a descriptor to another; ``tool_rules`` has those of one tool (spec/compile.md, Rules)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from claw_compile import codes
from claw_compile.descriptors.tool_rules import leaves_its_place, tool_rules
from claw_compile.diagnostics.diagnostic import Diagnostic, Note, quoted
from claw_compile.parsing.node import Node, span_at
from claw_contract.descriptor import Descriptor, DescriptorV2
from claw_contract.manifest import PLACEHOLDER

_FEED_PATH = re.compile(r"/[^\s#\\]*")


def rules(descriptor: Descriptor, root: Node) -> Iterator[Diagnostic]:
    """Everything that is wrong with a descriptor whose values have the right shapes."""
    yield from _feeds(descriptor, root)
    yield from _skill(descriptor, root)
    if isinstance(descriptor, DescriptorV2):
        yield from _memory(descriptor, root)
        yield from _tools(descriptor, root)


def _feeds(descriptor: Descriptor, root: Node) -> Iterator[Diagnostic]:
    first: dict[str, int] = {}
    for index, feed in enumerate(descriptor.feeds):
        if feed.name in first:
            notes = [Note(span_at(root, ("feeds", first[feed.name])), "the first one is here")]
            at = span_at(root, ("feeds", index))
            yield codes.DESCRIPTOR_SHAPE.at(at, f"two feeds are called {quoted(feed.name)}", notes=notes)
        first.setdefault(feed.name, index)
        parameters = set(PLACEHOLDER.findall(feed.path)) - {"claw_id"}
        if not _FEED_PATH.fullmatch(feed.path) or leaves_its_place(feed.path.partition("?")[0]) or parameters:
            at = span_at(root, ("feeds", index, "path"))
            message = f"{quoted(feed.path)} is no path of a feed; it takes no parameter but {{claw_id}}"
            yield codes.BAD_PATH.at(at, message)


def _skill(descriptor: Descriptor, root: Node) -> Iterator[Diagnostic]:
    skill = descriptor.skill
    if skill is not None and not is_image_path(skill):
        at = span_at(root, ("skill",))
        yield codes.DESCRIPTOR_SHAPE.at(at, "'skill' is the path of a file in the image, without '..'")


def is_image_path(path: str) -> bool:
    """Whether a descriptor may name a file of its image so."""
    return bool(path.strip("/ ")) and ".." not in path.split("/") and path.isprintable()


def _memory(descriptor: DescriptorV2, root: Node) -> Iterator[Diagnostic]:
    memory = descriptor.memory
    if memory is None:
        return
    if memory.recall is None and memory.retain is None:
        yield codes.DESCRIPTOR_SHAPE.at(span_at(root, ("memory",)), "'memory' needs 'recall' or 'retain'")
    for name in ("recall", "retain", "forget"):
        operation = getattr(memory, name)
        if operation is not None and leaves_its_place(operation.path):
            message = f"{quoted(operation.path)} holds '.' or '..' segments, a stray brace, or a control character"
            yield codes.BAD_PATH.at(span_at(root, ("memory", name, "path")), message)


def _tools(descriptor: DescriptorV2, root: Node) -> Iterator[Diagnostic]:
    if descriptor.mcp is not None and leaves_its_place(descriptor.mcp.path):
        message = f"{quoted(descriptor.mcp.path)} holds '.' or '..' segments, a stray brace, or a control character"
        yield codes.BAD_PATH.at(span_at(root, ("mcp", "path")), message)
    first: dict[str, int] = {}
    for index, tool in enumerate(descriptor.tools):
        if tool.name in first:
            notes = [Note(span_at(root, ("tools", first[tool.name], "name")), "the first one is here")]
            at = span_at(root, ("tools", index, "name"))
            yield codes.DUPLICATE_TOOL.at(at, f"two tools are called {quoted(tool.name)}", notes=notes)
        first.setdefault(tool.name, index)
        yield from tool_rules(descriptor, root, index)
