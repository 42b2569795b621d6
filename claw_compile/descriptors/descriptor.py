"""A descriptor's tree → ``ServiceDescriptor``, or diagnostics (docs/spec/compile.md "Descriptors").

Shapes are the contract's models: a pydantic error's ``loc`` finds its place in the tree. ``rules``
has what relates one part to another. ``.claw-tools.json``, the result of MCP's ``tools/list``,
becomes a descriptor of version 2: the pod or the image's label says where the server listens. A
tool of it that can't be granted is left out, because nobody here can correct it.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal

from pydantic import ValidationError

from claw_compile import codes
from claw_compile.descriptors.rules import rules
from claw_compile.diagnostics.diagnostic import (
    Code,
    Diagnostic,
    Note,
    Result,
    Span,
    did_you_mean,
    quote,
)
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
    ("tools",): (
        "name",
        "description",
        "inputSchema",
        "http",
        "annotations",
        # These are MCP's own: an output of tools/list has them, and nothing of ours acts on them.
        "title",
        "outputSchema",
        "icons",
        "execution",
        "_meta",
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
        diagnostics.extend(_shape_errors(error, root))
        diagnostics.extend(_rules_of_the_rest(error, root))
        return Result(None, tuple(diagnostics))

    diagnostics.extend(rules(descriptor, root))
    return Result(ServiceDescriptor(file, descriptor, root), tuple(diagnostics))


def _validated(root: Node) -> Descriptor:
    data = plain_data(root)
    model = DescriptorV2 if data["version"] == 2 else DescriptorV1  # noqa: PLR2004 - the format's version
    # By way of JSON, because strict models take a list for a tuple only there.
    return model.model_validate_json(json.dumps(data), strict=True)


def _rules_of_the_rest(error: ValidationError, root: MapNode) -> Iterator[Diagnostic]:
    """Check the parts that have the right shape.

    One bad tool must not hide the mistakes of the others.
    """
    # ("tools", 3) is the path of one item, which is left out. Any other path means that the
    # descriptor itself is wrong: then nothing more is checked.
    bad = {problem["loc"][:2] for problem in error.errors()}
    if any(path[0] not in _LISTS or len(path) == 1 for path in bad):
        return

    entries = [
        Entry(entry.key, _without(entry.value, entry.key.text, bad)) for entry in root.entries
    ]
    rest = MapNode(tuple(entries), root.span)
    yield from rules(_validated(rest), rest)


def _without(node: Node, key: str, bad: Collection[tuple[str | int, ...]]) -> Node:
    """Return a list without its bad items; anything else as it is."""
    if not isinstance(node, ListNode):
        return node

    sound = [item for index, item in enumerate(node.items) if (key, index) not in bad]
    return ListNode(tuple(sound), node.span)


def _version(root: Node) -> Iterator[Diagnostic]:
    if not isinstance(root, MapNode):
        message = f"a descriptor is an object, and this is {kind(root)}"
        yield codes.DESCRIPTOR_SHAPE.at(root.span, message)
        return

    version = root.get("version")
    if version is None:
        yield codes.DESCRIPTOR_VERSION.at(root.span, "the descriptor has no 'version'")
        return

    number = plain_data(version.value)
    # In Python, True and 1.0 equal 1; in a descriptor they are no versions.
    is_integer = isinstance(number, int) and not isinstance(number, bool)
    if not is_integer or number not in {1, 2}:
        yield codes.DESCRIPTOR_VERSION.at(version.value.span, "'version' is 1 or 2")
        return

    if number == 1:
        for key in _V2_KEYS:
            entry = root.get(key)
            if entry is not None:
                notes = [Note(version.value.span, "the version is declared here")]
                message = f"{quote(key)} needs version 2"
                yield codes.DESCRIPTOR_NEEDS_V2.at(entry.key.span, message, notes=notes)


def _unknown_keys(node: Node, path: tuple[str, ...]) -> Iterator[Diagnostic]:
    """Report keys that nothing reads; ``path`` has the keys above the node, without indices.

    What is below other objects, such as a schema, has keys of its own and is not checked.
    """
    for item in items_of(node):
        yield from _unknown_keys(item, path)

    if path not in _KNOWN:
        return
    for entry in entries_of(node):
        name = entry.key.text
        if name not in _KNOWN[path] and not name.startswith("x-"):
            message = f"the key {quote(name)} is not known here, and is dropped"
            hint = did_you_mean(name, _KNOWN[path])
            yield codes.DESCRIPTOR_UNKNOWN_KEY.at(entry.key.span, message, hint=hint)
        yield from _unknown_keys(entry.value, (*path, name))


def _shape_errors(error: ValidationError, root: Node) -> Iterator[Diagnostic]:
    for problem in error.errors(include_input=False, include_url=False, include_context=False):
        path = problem["loc"]
        message = f"{'.'.join(map(str, path))}: {problem['msg']}"
        yield _shape_code(path).at(span_at(root, path), message)


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
    """Return a version 2 descriptor with the tools of a tools/list.

    ``root`` is its ``result``, or the whole JSON-RPC answer.
    """
    listing: Node | None = root
    if isinstance(root, MapNode) and root.get("jsonrpc") is not None:
        listing = root.value("result")

    tools = _listed_tools(listing, root)
    if tools.value is None:
        return Result(None, tools.diagnostics)

    left_out: list[Diagnostic] = []
    grantable = ListNode(tuple(_grantable(tools.value, left_out)), tools.value.span)
    path = Entry(ScalarNode("path", mcp_path.span), mcp_path)
    mcp = MapNode((path,), mcp_path.span)
    return Result(_descriptor_of(mcp, grantable), tuple(left_out))


def _listed_tools(listing: Node | None, root: Node) -> Result[ListNode]:
    """Return the list of tools in the result of tools/list; None for an answer without result."""
    if not isinstance(listing, MapNode):
        at = listing.span if listing is not None else root.span
        what = kind(listing) if listing is not None else "an error"
        message = f"the result of tools/list is an object, and this is {what}"
        return Result(None, (codes.BAD_TOOLS_LIST.at(at, message),))

    tools = listing.value("tools")
    if not isinstance(tools, ListNode):
        at = tools.span if tools is not None else listing.span
        message = "the result of tools/list has a list 'tools'"
        return Result(None, (codes.BAD_TOOLS_LIST.at(at, message),))

    # The tools of further pages would be missing without a word.
    cursor = listing.value("nextCursor")
    is_last_page = cursor is None or (isinstance(cursor, ScalarNode) and cursor.is_null)
    if cursor is not None and not is_last_page:
        message = "this is one page of several: 'nextCursor' asks for the next"
        return Result(None, (codes.BAD_TOOLS_LIST.at(cursor.span, message),))
    return Result(tools)


def _descriptor_of(mcp: MapNode, tools: ListNode) -> MapNode:
    version = ScalarNode("2", tools.span, plain=True)
    entries = (
        Entry(ScalarNode("version", tools.span), version),
        Entry(ScalarNode("mcp", mcp.span), mcp),
        Entry(ScalarNode("tools", tools.span), tools),
    )
    return MapNode(entries, tools.span)


def _grantable(tools: ListNode, left_out: list[Diagnostic]) -> Iterator[Node]:
    """Yield the tools without an error; each of the others costs only itself, and is reported."""
    counts = Counter(_name(each) for each in tools.items)
    for tool in tools.items:
        name = _name(tool)
        objection = _first_error(tool, tools.span)
        if objection is not None:
            reason = objection.message.removeprefix(FIRST_TOOL)
            at = objection.span
        elif counts[name] > 1:
            reason = f"the list has this name {counts[name]} times"
            at = span_at(tool, ("name",))
        else:
            yield tool
            continue

        message = f"the tool {quote(name)} is left out: {reason}"
        left_out.append(codes.TOOL_LEFT_OUT.at(at, message))


def _first_error(tool: Node, at: Span) -> Diagnostic | None:
    """Return the first error of a tool, read as the only one of a descriptor."""
    alone = _descriptor_of(MapNode((), at), ListNode((tool,), at))
    for diagnostic in read_descriptor("", alone).diagnostics:
        if diagnostic.is_error:
            return diagnostic
    return None


def _name(tool: Node) -> str:
    name = child(tool, "name")
    return name.text if isinstance(name, ScalarNode) else ""
