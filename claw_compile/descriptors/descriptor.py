"""A descriptor's tree → the tools that a service offers, or what is wrong with it (spec/compile.md "Descriptors", Rules).

Shapes are the contract's models: a pydantic error's ``loc`` finds its place in the tree. Here are the rules that relate one
part to another.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import ValidationError

from claw_compile import codes
from claw_compile.descriptors.tool_schema import check_schema
from claw_compile.diagnostics.diagnostic import Checked, Code, Diagnostic, Note, did_you_mean, quoted
from claw_compile.reading.node import ListNode, MapNode, Node, kind, plain_data, span_at
from claw_contract.descriptor import Descriptor, DescriptorTool, DescriptorV1, DescriptorV2
from claw_contract.manifest import PLACEHOLDER

LONGEST_DESCRIPTION = 1024
_V2_KEYS = ("tools", "mcp", "memory")
_BODY_METHODS = {"POST", "PUT", "PATCH"}
_KNOWN: dict[tuple[str, ...], tuple[str, ...]] = {
    (): ("version", "description", "feeds", "endpoints", "auth", "skill", "mcp", "tools", "memory"),
    ("feeds",): ("name", "path", "ttl", "description"),
    ("endpoints",): ("method", "path", "description"),
    ("auth",): ("type", "env", "header"),
    ("mcp",): ("transport", "path"),
    ("tools",): ("name", "description", "inputSchema", "http", "annotations"),
    ("tools", "http"): ("method", "path", "body", "body_key"),
    ("memory",): ("recall", "retain", "forget"),
}


@dataclass(frozen=True)
class Described:
    """A descriptor that has the right shape, and its tree for places."""

    file: str
    descriptor: Descriptor
    root: Node

    @property
    def tools(self) -> tuple[DescriptorTool, ...]:
        return self.descriptor.tools if isinstance(self.descriptor, DescriptorV2) else ()


def read_descriptor(file: str, root: Node) -> Checked[Described]:
    """The descriptor, with everything that is wrong with it."""
    found = list(_version(root))
    if found or not isinstance(root, MapNode):
        return Checked(None, tuple(found))
    found.extend(_unknown_keys(root, ()))
    model = DescriptorV2 if plain_data(root)["version"] == 2 else DescriptorV1  # noqa: PLR2004 - the format's version
    try:
        described = Described(file, model.model_validate_json(_json(root), strict=True), root)
    except ValidationError as error:
        return Checked(None, (*found, *_shape_errors(error, root)))
    return Checked(described, (*found, *_rules(described)))


def _json(root: Node) -> bytes:
    # By way of JSON, because strict models take a list for a tuple only there.
    return json.dumps(plain_data(root)).encode()


def _version(root: Node) -> Iterator[Diagnostic]:
    if not isinstance(root, MapNode):
        yield codes.DESCRIPTOR_SHAPE.at(root.span, f"a descriptor is an object, and this is {kind(root)}")
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
                yield codes.DESCRIPTOR_NEEDS_V2.at(entry.key.span, f"{quoted(key)} needs version 2", notes=notes)


def _unknown_keys(node: Node, path: tuple[str, ...]) -> Iterator[Diagnostic]:
    if isinstance(node, ListNode):
        for item in node.items:
            yield from _unknown_keys(item, path)
    if path not in _KNOWN or not isinstance(node, MapNode):
        return
    for entry in node.entries:
        name = entry.key.text
        if name not in _KNOWN[path] and not name.startswith("x-"):
            message = f"the key {quoted(name)} is not known here, and is dropped"
            hint = did_you_mean(name, _KNOWN[path])
            yield codes.DESCRIPTOR_UNKNOWN_KEY.at(entry.key.span, message, hint=hint)
        yield from _unknown_keys(entry.value, (*path, name))


def _shape_errors(error: ValidationError, root: Node) -> Iterator[Diagnostic]:
    for problem in error.errors(include_input=False, include_url=False, include_context=False):
        path = problem["loc"]
        yield _shape_code(path).at(span_at(root, path), f"{_dotted(path)}: {problem['msg']}")


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


def _dotted(path: tuple[str | int, ...]) -> str:
    return ".".join(str(part) for part in path)


def _rules(described: Described) -> Iterator[Diagnostic]:
    root = described.root
    for name in (
        name for name, count in Counter(feed.name for feed in described.descriptor.feeds).items() if count > 1
    ):
        places = [span_at(root, ("feeds", i)) for i, f in enumerate(described.descriptor.feeds) if f.name == name]
        notes = [Note(places[0], "the first one is here")]
        yield codes.DESCRIPTOR_SHAPE.at(places[1], f"two feeds are called {quoted(name)}", notes=notes)
    first: dict[str, int] = {}
    for index, tool in enumerate(described.tools):
        if tool.name in first:
            notes = [Note(span_at(root, ("tools", first[tool.name], "name")), "the first one is here")]
            at = span_at(root, ("tools", index, "name"))
            yield codes.DUPLICATE_TOOL.at(at, f"two tools are called {quoted(tool.name)}", notes=notes)
        first.setdefault(tool.name, index)
        yield from _tool_rules(described, index, tool)


def _tool_rules(described: Described, index: int, tool: DescriptorTool) -> Iterator[Diagnostic]:
    descriptor, base = described.descriptor, ("tools", index)
    assert isinstance(descriptor, DescriptorV2)
    if len(tool.description) > LONGEST_DESCRIPTION:
        at = span_at(described.root, (*base, "description"))
        yield codes.LONG_DESCRIPTION.at(at, f"the description has {len(tool.description)} characters")
    yield from check_schema(_node(described.root, (*base, "inputSchema")), tool.input_schema)
    if tool.http is None and descriptor.mcp is None:
        yield codes.HTTP_REQUIRED.at(span_at(described.root, base), f"{quoted(tool.name)} needs 'http'")
    elif tool.http is not None and descriptor.mcp is not None:
        at = span_at(described.root, (*base, "http"))
        notes = [Note(span_at(described.root, ("mcp",)), "'mcp' is here")]
        yield codes.HTTP_FORBIDDEN.at(at, f"{quoted(tool.name)} has 'http' beside 'mcp'", notes=notes)
    elif tool.http is not None:
        yield from _http_rules(described.root, base, tool)


def _http_rules(root: Node, base: tuple[str | int, ...], tool: DescriptorTool) -> Iterator[Diagnostic]:
    http, at_path = tool.http, span_at(root, (*base, "http", "path"))
    assert http is not None
    left = PLACEHOLDER.sub("", http.path)
    if any(segment in {".", ".."} for segment in http.path.split("/")) or "{" in left or "}" in left:
        yield codes.BAD_PATH.at(at_path, f"{quoted(http.path)} holds '.' or '..' segments, or a stray brace")
    properties, required = tool.input_schema.get("properties"), tool.input_schema.get("required")
    for name in dict.fromkeys(PLACEHOLDER.findall(http.path)):
        if name == "claw_id":
            continue
        if not isinstance(properties, dict) or name not in properties:
            yield codes.PATH_PARAMETER.at(at_path, f"the schema has no property {quoted(name)}")
        elif not isinstance(required, list) or name not in required:
            at = span_at(root, (*base, "inputSchema", "properties", name))
            notes = [Note(at_path, "the path needs it here")]
            yield codes.PATH_PARAMETER.at(at, f"the property {quoted(name)} is not required", notes=notes)
    if http.body_key is not None and http.method not in _BODY_METHODS:
        yield codes.BAD_BODY.at(span_at(root, (*base, "http", "body_key")), f"{http.method} takes no body")
    if http.method == "DELETE" and tool.annotations.effect == "read":
        at = span_at(root, (*base, "http", "method"))
        yield codes.READ_ONLY_DELETE.at(at, f"{quoted(tool.name)} is a DELETE that says it only reads")


def _node(root: Node, path: tuple[str | int, ...]) -> Node:
    """What stands at ``path``, which the model has found there already."""
    node: Node | None = root
    for part in path:
        node = node.items[part] if isinstance(node, ListNode) and isinstance(part, int) else _child(node, part)
    assert node is not None
    return node


def _child(node: Node | None, key: str | int) -> Node | None:
    return node.value(str(key)) if isinstance(node, MapNode) else None
