"""A descriptor's tree → ``ServiceDescriptor``, or diagnostics (docs/spec/compile.md "Descriptors").

Shapes are the contract's models: a pydantic error's ``loc`` finds its place in the tree. ``rules``
has what relates one part to another. ``.claw-tools.json``, the result of MCP's ``tools/list``,
becomes a descriptor of version 2: the pod or the image's label says where the server listens, and a
tool that can't be granted is left out, for nobody here can correct it.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal

from pydantic import ValidationError

from claw_compile import codes
from claw_compile.descriptors.rules import rules
from claw_compile.diagnostics.diagnostic import Code, Diagnostic, Note, Result, did_you_mean, quote
from claw_compile.parsing.node import (
    Entry,
    ListNode,
    MapNode,
    Node,
    ScalarNode,
    child,
    entries_of,
    items_of,
    kind,
    plain_data,
    span_at,
)
from claw_contract.descriptor import Descriptor, DescriptorTool, DescriptorV1, DescriptorV2

FIRST_TOOL = "tools.0."  # The start of a message about a tool that is read alone
_V2_KEYS = ("tools", "mcp", "memory")
_LISTS = ("tools", "feeds", "endpoints")
_KNOWN: dict[tuple[str, ...], tuple[str, ...]] = {
    (): ("version", "description", "feeds", "endpoints", "auth", "skill", "mcp", "tools", "memory"),
    ("feeds",): ("name", "path", "ttl", "description"),
    ("endpoints",): ("method", "path", "description"),
    ("auth",): ("type", "env", "header", "username"),
    ("mcp",): ("transport", "path"),
    # The last four are MCP's own: an output of tools/list has them, and nothing of ours acts on
    # them.
    ("tools",): (
        *("name", "description", "inputSchema", "http", "annotations"),
        *("title", "outputSchema", "icons", "execution", "_meta"),
    ),
    ("tools", "http"): ("method", "path", "body", "body_key"),
    ("memory",): ("recall", "retain", "forget"),
}


type Source = Literal["tools-host", "describe-file", "snapshot", "image", "build", "tools-list"]
"""The source of a descriptor, in the order of rank."""


@dataclass(frozen=True)
class ServiceDescriptor:
    """A descriptor that has the right shape, and its tree for places. ``digest`` is of its file."""

    file: str
    descriptor: Descriptor
    root: Node
    source: Source = "describe-file"
    digest: str = ""

    @property
    def tools(self) -> tuple[DescriptorTool, ...]:
        return self.descriptor.tools if isinstance(self.descriptor, DescriptorV2) else ()


def read_descriptor(file: str, root: Node) -> Result[ServiceDescriptor]:
    """Return the descriptor, and everything that is wrong with it."""
    diagnostics = list(_version(root))
    if diagnostics or not isinstance(root, MapNode):
        return Result(None, tuple(diagnostics))
    diagnostics.extend(_unknown_keys(root, ()))
    try:
        descriptor = _validated(root)
    except ValidationError as error:
        return Result(
            None, (*diagnostics, *_shape_errors(error, root), *_rules_of_the_rest(error, root))
        )
    return Result(
        ServiceDescriptor(file, descriptor, root), (*diagnostics, *rules(descriptor, root))
    )


def _validated(root: Node) -> Descriptor:
    data = plain_data(root)
    model = DescriptorV2 if data["version"] == 2 else DescriptorV1  # noqa: PLR2004 - the format's version
    # By way of JSON, because strict models take a list for a tuple only there.
    return model.model_validate_json(json.dumps(data), strict=True)


def _rules_of_the_rest(error: ValidationError, root: MapNode) -> Iterator[Diagnostic]:
    """Check the parts that have the right shape: one bad tool must not hide the
    mistakes of the others.
    """
    bad = {problem["loc"][:2] for problem in error.errors()}
    if any(path[0] not in _LISTS or len(path) == 1 for path in bad):
        return
    entries = tuple(
        Entry(entry.key, _without(entry.value, entry.key.text, bad)) for entry in root.entries
    )
    rest = MapNode(entries, root.span)
    yield from rules(_validated(rest), rest)


def _without(node: Node, key: str, bad: Collection[tuple[str | int, ...]]) -> Node:
    if not isinstance(node, ListNode):
        return node
    return ListNode(
        tuple(item for index, item in enumerate(node.items) if (key, index) not in bad), node.span
    )


def _version(root: Node) -> Iterator[Diagnostic]:
    if not isinstance(root, MapNode):
        yield codes.DESCRIPTOR_SHAPE.at(
            root.span, f"a descriptor is an object, and this is {kind(root)}"
        )
        return
    version = root.get("version")
    if version is None:
        yield codes.DESCRIPTOR_VERSION.at(root.span, "the descriptor has no 'version'")
        return
    number = plain_data(version.value)
    if isinstance(number, bool) or number not in {1, 2} or not isinstance(number, int):
        yield codes.DESCRIPTOR_VERSION.at(version.value.span, "'version' is 1 or 2")
    elif number == 1:
        for key in _V2_KEYS:
            if (entry := root.get(key)) is not None:
                notes = [Note(version.value.span, "the version is declared here")]
                yield codes.DESCRIPTOR_NEEDS_V2.at(
                    entry.key.span, f"{quote(key)} needs version 2", notes=notes
                )


def _unknown_keys(node: Node, path: tuple[str, ...]) -> Iterator[Diagnostic]:
    for item in items_of(node):
        yield from _unknown_keys(item, path)
    for entry in entries_of(node) if path in _KNOWN else ():
        name = entry.key.text
        if name not in _KNOWN[path] and not name.startswith("x-"):
            message = f"the key {quote(name)} is not known here, and is dropped"
            hint = did_you_mean(name, _KNOWN[path])
            yield codes.DESCRIPTOR_UNKNOWN_KEY.at(entry.key.span, message, hint=hint)
        yield from _unknown_keys(entry.value, (*path, name))


def _shape_errors(error: ValidationError, root: Node) -> Iterator[Diagnostic]:
    for problem in error.errors(include_input=False, include_url=False, include_context=False):
        path = problem["loc"]
        yield _shape_code(path).at(
            span_at(root, path), f"{'.'.join(map(str, path))}: {problem['msg']}"
        )


def _shape_code(path: tuple[str | int, ...]) -> Code:
    if path[:1] == ("tools",) and len(path) > len(("tools", 0)):
        match path[2]:
            case "name":
                return codes.BAD_TOOL_NAME
            case "inputSchema":
                return codes.BAD_SCHEMA
            case "annotations":
                return codes.BAD_ANNOTATION
    return codes.BAD_PATH if path[-1:] == ("path",) else codes.DESCRIPTOR_SHAPE


def as_descriptor(root: Node, mcp_path: ScalarNode) -> Result[Node]:
    """Return a version 2 descriptor with the listed tools, from a ``result`` or
    from the whole JSON-RPC answer.
    """
    listed = (
        root.value("result")
        if isinstance(root, MapNode) and root.get("jsonrpc") is not None
        else root
    )
    if not isinstance(listed, MapNode):
        at = listed.span if listed is not None else root.span
        message = (
            "the result of tools/list is an object, and this is "
            f"{kind(listed) if listed else 'an error'}"
        )
        return Result(None, (codes.BAD_TOOLS_LIST.at(at, message),))
    tools, cursor = listed.get("tools"), listed.value("nextCursor")
    if tools is None or not isinstance(tools.value, ListNode):
        at = tools.value.span if tools else listed.span
        return Result(
            None, (codes.BAD_TOOLS_LIST.at(at, "the result of tools/list has a list 'tools'"),)
        )
    if cursor is not None and not (isinstance(cursor, ScalarNode) and cursor.is_null):
        message = "this is one page of several: 'nextCursor' asks for the next"
        return Result(None, (codes.BAD_TOOLS_LIST.at(cursor.span, message),))
    left_out: list[Diagnostic] = []
    items = ListNode(tuple(_grantable(tools.value, left_out)), tools.value.span)
    path = MapNode((Entry(ScalarNode("path", mcp_path.span), mcp_path),), mcp_path.span)
    return Result(_descriptor_of(path, items), tuple(left_out))


def _descriptor_of(mcp: MapNode, tools: ListNode) -> MapNode:
    version = ScalarNode("version", tools.span), ScalarNode("2", tools.span, plain=True)
    entries = (
        version,
        (ScalarNode("mcp", mcp.span), mcp),
        (ScalarNode("tools", tools.span), tools),
    )
    return MapNode(tuple(Entry(key, value) for key, value in entries), tools.span)


def _grantable(tools: ListNode, left_out: list[Diagnostic]) -> Iterator[Node]:
    """Yield the tools without an error; each of the others costs only itself, and is reported."""
    names = Counter(_name(each) for each in tools.items)
    for tool in tools.items:
        name, alone = _name(tool), ListNode((tool,), tools.span)
        checked = read_descriptor("", _descriptor_of(MapNode((), tools.span), alone))
        error = next((each for each in checked.diagnostics if each.is_error), None)
        if error is not None:
            message = (
                f"the tool {quote(name)} is left out: {error.message.removeprefix(FIRST_TOOL)}"
            )
            left_out.append(codes.TOOL_LEFT_OUT.at(error.span, message))
        elif names[name] > 1:
            message = (
                f"the tool {quote(name)} is left out: the list has this name {names[name]} times"
            )
            left_out.append(codes.TOOL_LEFT_OUT.at(span_at(tool, ("name",)), message))
        else:
            yield tool


def _name(tool: Node) -> str:
    name = child(tool, "name")
    return name.text if isinstance(name, ScalarNode) else ""
