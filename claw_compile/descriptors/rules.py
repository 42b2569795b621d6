"""Rules between the parts of a descriptor, and of each tool: its schema, its call, its effect.

Specification: docs/spec/compile.md "Descriptors".

A tool's ``inputSchema`` is an object schema, sound, and self-contained. A reference that leaves the
document would make the proxy ask the network while it checks a call, and one that leads nowhere
would fail at the first call.
"""

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import jsonschema_rs

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Diagnostic, Note, Span, did_you_mean, quote
from claw_compile.parsing.node import (
    ListNode,
    Node,
    ScalarNode,
    child,
    entries_of,
    items_of,
    scalars,
    span_at,
)
from claw_contract.base import JsonObject
from claw_contract.descriptor import Descriptor, DescriptorTool, DescriptorV2
from claw_contract.manifest import PLACEHOLDER, Annotations
from claw_contract.pattern import PatternError, compile_pattern, find_patterns

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_REFERENCES = ("$ref", "$dynamicRef")
_ANCHORS = ("$anchor", "$dynamicAnchor")
MAX_CHARACTERS = 65536
MAX_DEPTH = 24
_INDEX = re.compile(r"[0-9]{1,9}")
_FEED_PATH = re.compile(r"/[^\s#\\]*")
MAX_DESCRIPTION = 1024
_BODY_METHODS = {"POST", "PUT", "PATCH"}
_HIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"
    "\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ue000-\uf8ff"
    "\U000e0000-\U000e0fff]"
)
"""Control characters, marks of direction, and letters without a glyph.

With them a hostile descriptor could tell a model what no reviewer sees.
"""
_NOT_SINGLE = ("object", "array")
_OURS = "x-claw."
_ANNOTATIONS = tuple(
    field.alias
    for field in Annotations.model_fields.values()
    if field.alias and field.alias.startswith(_OURS)
)
type _Path = tuple[str | int, ...]


def rules(descriptor: Descriptor, root: Node) -> Iterator[Diagnostic]:
    """Yield everything that is wrong with a descriptor whose values have the right shapes."""
    yield from _feeds(descriptor, root)

    if descriptor.skill is not None and not is_image_path(descriptor.skill):
        message = "'skill' is the path of a file in the image, without '..'"
        yield codes.DESCRIPTOR_SHAPE.at(span_at(root, ("skill",)), message)

    if isinstance(descriptor, DescriptorV2):
        yield from _memory(descriptor, root)
        yield from _tools(descriptor, root)


def _feeds(descriptor: Descriptor, root: Node) -> Iterator[Diagnostic]:
    first: dict[str, int] = {}
    for index, feed in enumerate(descriptor.feeds):
        if feed.name in first:
            earlier = span_at(root, ("feeds", first[feed.name]))
            notes = [Note(earlier, "the first one is here")]
            message = f"two feeds are called {quote(feed.name)}"
            at = span_at(root, ("feeds", index))
            yield codes.DESCRIPTOR_SHAPE.at(at, message, notes=notes)
        first.setdefault(feed.name, index)

        # A feed may have a query, in which dots and braces mean nothing to the server's paths.
        is_path = _FEED_PATH.fullmatch(feed.path) is not None
        leaves = leaves_its_place(feed.path.partition("?")[0])
        other_parameters = set(PLACEHOLDER.findall(feed.path)) - {"claw_id"}
        if not is_path or leaves or other_parameters:
            message = (
                f"{quote(feed.path)} is no path of a feed; it takes no parameter but {{claw_id}}"
            )
            yield codes.BAD_PATH.at(span_at(root, ("feeds", index, "path")), message)


def is_image_path(path: str) -> bool:
    """Return whether a descriptor may name a file of its image so."""
    return bool(path.strip("/ ")) and ".." not in path.split("/") and path.isprintable()


def _memory(descriptor: DescriptorV2, root: Node) -> Iterator[Diagnostic]:
    memory = descriptor.memory
    if memory is None:
        return

    if memory.recall is None and memory.retain is None:
        at = span_at(root, ("memory",))
        yield codes.DESCRIPTOR_SHAPE.at(at, "'memory' needs 'recall' or 'retain'")

    for name in ("recall", "retain", "forget"):
        operation = getattr(memory, name)
        if operation is not None:
            yield from _check_path(operation.path, span_at(root, ("memory", name, "path")))


def _tools(descriptor: DescriptorV2, root: Node) -> Iterator[Diagnostic]:
    if descriptor.mcp is not None:
        yield from _check_path(descriptor.mcp.path, span_at(root, ("mcp", "path")))

    first: dict[str, int] = {}
    for index, tool in enumerate(descriptor.tools):
        if tool.name in first:
            earlier = span_at(root, ("tools", first[tool.name], "name"))
            notes = [Note(earlier, "the first one is here")]
            message = f"two tools are called {quote(tool.name)}"
            at = span_at(root, ("tools", index, "name"))
            yield codes.DUPLICATE_TOOL.at(at, message, notes=notes)
        first.setdefault(tool.name, index)

        yield from tool_rules(descriptor, root, index)


def _check_path(path: str, at: Span) -> Iterator[Diagnostic]:
    if leaves_its_place(path):
        message = f"{quote(path)} holds '.' or '..' segments, a stray brace, or a control character"
        yield codes.BAD_PATH.at(at, message)


def leaves_its_place(path: str) -> bool:
    """Return whether a path may mean another place to a server than it says.

    It does with segments that a server resolves away, a stray brace, or invisible characters.
    """
    without_parameters = PLACEHOLDER.sub("", path)
    has_stray_brace = "{" in without_parameters or "}" in without_parameters
    has_dot_segment = not {".", ".."}.isdisjoint(path.split("/"))
    return has_dot_segment or has_stray_brace or not path.isprintable()


def tool_rules(descriptor: DescriptorV2, root: Node, index: int) -> Iterator[Diagnostic]:
    """Yield everything that is wrong with one tool."""
    tool = descriptor.tools[index]
    base = ("tools", index)
    node = _node(root, base)

    yield from _texts(tool, node)
    yield from check_schema(_node(node, ("inputSchema",)), tool.input_schema)
    yield from _annotations(tool, node)

    if tool.http is not None and descriptor.mcp is not None:
        notes = [Note(span_at(root, ("mcp",)), "'mcp' is here")]
        message = f"{quote(tool.name)} has 'http' beside 'mcp'"
        yield codes.HTTP_FORBIDDEN.at(span_at(root, (*base, "http")), message, notes=notes)
    elif tool.http is not None:
        yield from _http(tool, root, base)
    elif descriptor.mcp is None:
        yield codes.HTTP_REQUIRED.at(span_at(root, base), f"{quote(tool.name)} needs 'http'")


def _texts(tool: DescriptorTool, node: Node) -> Iterator[Diagnostic]:
    """Check the texts that a model will read: the description, and all others of the tool."""
    if not tool.description.strip():
        message = f"{quote(tool.name)} has no description"
        yield codes.MISSING_DESCRIPTION.at(span_at(node, ("name",)), message)
    if len(tool.description) > MAX_DESCRIPTION:
        message = f"the description has {len(tool.description)} characters"
        yield codes.LONG_DESCRIPTION.at(span_at(node, ("description",)), message)

    for text in scalars(node, keys=True):
        if _HIDDEN.search(text.text):
            message = f"{quote(tool.name)} holds characters that nobody sees: {quote(text.text)}"
            yield codes.HIDDEN_TEXT.at(text.span, message)
            break


def _http(tool: DescriptorTool, root: Node, base: _Path) -> Iterator[Diagnostic]:
    http = tool.http
    assert http is not None
    yield from _check_path(http.path, span_at(root, (*base, "http", "path")))

    for name in dict.fromkeys(PLACEHOLDER.findall(http.path)):
        if name != "claw_id":
            yield from _parameter(tool, name, root, base)

    if http.body_key is not None and http.method not in _BODY_METHODS:
        at = span_at(root, (*base, "http", "body_key"))
        yield codes.BAD_BODY.at(at, f"{http.method} takes no body")

    # "Only reads" lets the proxy repeat a call: for a DELETE that is hardly meant.
    if http.method == "DELETE" and tool.annotations.effect == "read":
        at = span_at(root, (*base, "http", "method"))
        message = f"{quote(tool.name)} is a DELETE that says it only reads"
        yield codes.READ_ONLY_DELETE.at(at, message)


def _parameter(tool: DescriptorTool, name: str, root: Node, base: _Path) -> Iterator[Diagnostic]:
    """Check that a parameter of the path is declared, required, and a single value."""
    in_path = span_at(root, (*base, "http", "path"))
    properties = tool.input_schema.get("properties")
    if not isinstance(properties, dict) or name not in properties:
        yield codes.PATH_PARAMETER.at(in_path, f"the schema has no property {quote(name)}")
        return

    at = span_at(root, (*base, "inputSchema", "properties", name))
    notes = [Note(in_path, "the path needs it here")]
    required_names = tool.input_schema.get("required")
    if not isinstance(required_names, list) or name not in required_names:
        message = f"the property {quote(name)} is not required"
        yield codes.PATH_PARAMETER.at(at, message, notes=notes)

    property_schema = properties[name]
    kind = property_schema.get("type") if isinstance(property_schema, dict) else None
    if kind in _NOT_SINGLE:
        message = f"the property {quote(name)} is an {kind}, and a path takes a single value"
        yield codes.PATH_PARAMETER.at(at, message, notes=notes)


def _annotations(tool: DescriptorTool, tool_node: Node) -> Iterator[Diagnostic]:
    node = child(tool_node, "annotations")
    if node is None:
        return

    annotations = tool.annotations
    says_both = annotations.read_only is not None and annotations.read_only_hint is not None
    if says_both and annotations.read_only != annotations.read_only_hint:
        notes = [Note(span_at(node, ("readOnly",)), "this one wins")]
        at = span_at(node, ("readOnlyHint",))
        yield codes.EFFECT_CONFLICT.at(at, "'readOnlyHint' contradicts 'readOnly'", notes=notes)

    is_destructive = (annotations.model_extra or {}).get("destructiveHint") is True
    if annotations.effect == "read" and is_destructive:
        message = f"{quote(tool.name)} says that it only reads, and that it is destructive"
        yield codes.EFFECT_CONFLICT.at(span_at(node, ("destructiveHint",)), message)

    # Other annotations are MCP's or anybody's, and pass.
    for entry in entries_of(node):
        name = entry.key.text
        if name.startswith(_OURS) and name not in _ANNOTATIONS:
            message = f"the annotation {quote(name)} is not known"
            hint = did_you_mean(name, _ANNOTATIONS)
            yield codes.DESCRIPTOR_UNKNOWN_KEY.at(entry.key.span, message, hint=hint)


def _node(root: Node, path: _Path) -> Node:
    """Return the node at a path that exists."""
    node: Node | None = root
    for part in path:
        node = items_of(node)[part] if isinstance(part, int) else child(node, part)
    assert node is not None
    return node


def check_schema(node: Node, schema: JsonObject) -> Iterator[Diagnostic]:
    """Yield what is wrong with a schema, each at its place under ``node``."""
    # First of all, because everything after it walks through the schema.
    size = len(json.dumps(schema, ensure_ascii=False))
    depth = _depth(schema)
    if size > MAX_CHARACTERS or depth > MAX_DEPTH:
        what = f"{size} characters" if size > MAX_CHARACTERS else f"{depth} levels"
        yield codes.SCHEMA_TOO_LARGE.at(node.span, f"inputSchema has {what}")
        return

    if schema.get("type") != "object":
        yield codes.BAD_SCHEMA.at(span_at(node, ("type",)), "inputSchema needs 'type': 'object'")
        return
    if not isinstance(schema.get("$schema", ""), str):
        yield codes.BAD_SCHEMA.at(span_at(node, ("$schema",)), "'$schema' is a URI")
        return

    wrong = None if _is_sound(schema) else _first_error(schema)
    if wrong is not None:
        place = ".".join(str(part) for part in wrong.absolute_path) or "the schema"
        at = span_at(node, tuple(wrong.absolute_path))
        yield codes.BAD_SCHEMA.at(at, f"{place} is not JSON Schema ({wrong.validator})")
        return

    # JSON Schema leaves patterns to the reader: ours must run in bounded time.
    for path, source in find_patterns(schema):
        try:
            compile_pattern(source)
        except PatternError as error:
            yield codes.BAD_SCHEMA.at(span_at(node, path), f"the pattern {error}")
    yield from _check_references(node, node)


def _is_sound(schema: JsonObject) -> bool:
    """Return whether a fast library says that this is JSON Schema.

    Most schemas are, and a large pod has thousands.

    The library would fetch an unknown ``$schema``, so it is asked only about schemas of one draft.
    For any other answer the slow library is asked, which has the place of a mistake.
    """
    try:
        return schema.get("$schema", _DRAFT) == _DRAFT and jsonschema_rs.meta.is_valid(schema)
    except (ValueError, OverflowError):
        return False


def _first_error(schema: JsonObject) -> Any:
    """Return the first mistake as jsonschema's ``SchemaError``, or None."""
    # The import takes a twentieth of a second, for a mistake that most pods don't have.
    from jsonschema import Draft202012Validator, FormatChecker, exceptions, validators

    try:
        draft: Any = validators.validator_for(schema, default=Draft202012Validator)
        draft.check_schema(schema, format_checker=FormatChecker(formats=()))
    except exceptions.SchemaError as error:
        return error
    return None


def _depth(value: Any) -> int:
    """Return how many objects and lists are inside each other: 0 for a single value."""
    if isinstance(value, dict):
        return 1 + max(map(_depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(_depth, value), default=0)
    return 0


def _check_references(node: Node, root: Node) -> Iterator[Diagnostic]:
    """Check that every reference below ``node`` leads to a place in the schema ``root``."""
    for item in items_of(node):
        yield from _check_references(item, root)

    for entry in entries_of(node):
        value = entry.value
        # A reference is a string. Anything else under this name is the name of a property.
        if entry.key.text in _REFERENCES and isinstance(value, ScalarNode) and not value.plain:
            if not value.text.startswith("#"):
                yield codes.BAD_SCHEMA.at(value.span, "a reference that leaves the schema")
            elif not _leads_somewhere(value.text, root):
                yield codes.BAD_SCHEMA.at(value.span, "a reference that leads nowhere")

        yield from _check_references(value, root)


def _leads_somewhere(reference: str, root: Node) -> bool:
    """Return whether a reference leads to a place, by a JSON pointer (RFC 6901) or an anchor."""
    if reference == "#":
        return True
    if not reference.startswith("#/"):
        return unquote(reference[1:]) in _anchors(root)

    node: Node | None = root
    for part in unquote(reference[2:]).split("/"):
        key = part.replace("~1", "/").replace("~0", "~")
        node = _item(node, key) if isinstance(node, ListNode) else child(node, key)
    return node is not None


def _item(node: ListNode, key: str) -> Node | None:
    """Return the item that a part of a pointer names; its length is bounded before it is read."""
    if not _INDEX.fullmatch(key):
        return None

    index = int(key)
    return node.items[index] if index < len(node.items) else None


def _anchors(node: Node) -> Iterator[str]:
    for item in items_of(node):
        yield from _anchors(item)
    for entry in entries_of(node):
        if entry.key.text in _ANCHORS and isinstance(entry.value, ScalarNode):
            yield entry.value.text
        yield from _anchors(entry.value)
