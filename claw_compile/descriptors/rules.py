"""Rules between the parts of a descriptor, and of each tool: its schema, its call,
its effect (docs/spec/compile.md).

A tool's ``inputSchema`` is an object schema, sound, and closed in itself: a reference that leaves
the document would make the proxy ask the network while it checks a call, and one that leads nowhere
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
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ue000-\uf8ff"
    "\U000e0000-\U000e0fff]"
)
"""Control characters, marks of direction, and letters without a glyph: they show a
model what no reviewer sees.
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
        at = span_at(root, ("skill",))
        yield codes.DESCRIPTOR_SHAPE.at(
            at, "'skill' is the path of a file in the image, without '..'"
        )
    if isinstance(descriptor, DescriptorV2):
        yield from _memory(descriptor, root)
        yield from _tools(descriptor, root)


def _feeds(descriptor: Descriptor, root: Node) -> Iterator[Diagnostic]:
    first: dict[str, int] = {}
    for index, feed in enumerate(descriptor.feeds):
        if feed.name in first:
            notes = [Note(span_at(root, ("feeds", first[feed.name])), "the first one is here")]
            at = span_at(root, ("feeds", index))
            yield codes.DESCRIPTOR_SHAPE.at(
                at, f"two feeds are called {quote(feed.name)}", notes=notes
            )
        first.setdefault(feed.name, index)
        parameters = set(PLACEHOLDER.findall(feed.path)) - {"claw_id"}
        if (
            not _FEED_PATH.fullmatch(feed.path)
            or leaves_its_place(feed.path.partition("?")[0])
            or parameters
        ):
            at = span_at(root, ("feeds", index, "path"))
            message = (
                f"{quote(feed.path)} is no path of a feed; it takes no parameter but {{claw_id}}"
            )
            yield codes.BAD_PATH.at(at, message)


def is_image_path(path: str) -> bool:
    """Return whether a descriptor may name a file of its image so."""
    return bool(path.strip("/ ")) and ".." not in path.split("/") and path.isprintable()


def _memory(descriptor: DescriptorV2, root: Node) -> Iterator[Diagnostic]:
    memory = descriptor.memory
    if memory is None:
        return
    if memory.recall is None and memory.retain is None:
        yield codes.DESCRIPTOR_SHAPE.at(
            span_at(root, ("memory",)), "'memory' needs 'recall' or 'retain'"
        )
    for name in ("recall", "retain", "forget"):
        operation = getattr(memory, name)
        if operation is not None:
            yield from _check_place(operation.path, span_at(root, ("memory", name, "path")))


def _tools(descriptor: DescriptorV2, root: Node) -> Iterator[Diagnostic]:
    if descriptor.mcp is not None:
        yield from _check_place(descriptor.mcp.path, span_at(root, ("mcp", "path")))
    first: dict[str, int] = {}
    for index, tool in enumerate(descriptor.tools):
        if tool.name in first:
            notes = [
                Note(span_at(root, ("tools", first[tool.name], "name")), "the first one is here")
            ]
            at = span_at(root, ("tools", index, "name"))
            yield codes.DUPLICATE_TOOL.at(
                at, f"two tools are called {quote(tool.name)}", notes=notes
            )
        first.setdefault(tool.name, index)
        yield from tool_rules(descriptor, root, index)


def _check_place(path: str, at: Span) -> Iterator[Diagnostic]:
    if leaves_its_place(path):
        message = f"{quote(path)} holds '.' or '..' segments, a stray brace, or a control character"
        yield codes.BAD_PATH.at(at, message)


def leaves_its_place(path: str) -> bool:
    """Return whether a path holds segments that a server resolves away, a stray
    brace, or invisible characters.
    """
    left = PLACEHOLDER.sub("", path)
    return (
        bool({".", ".."} & set(path.split("/")))
        or "{" in left
        or "}" in left
        or not path.isprintable()
    )


def tool_rules(descriptor: DescriptorV2, root: Node, index: int) -> Iterator[Diagnostic]:
    tool, base = descriptor.tools[index], ("tools", index)
    if not tool.description.strip():
        yield codes.MISSING_DESCRIPTION.at(
            span_at(root, (*base, "name")), f"{quote(tool.name)} has no description"
        )
    if len(tool.description) > MAX_DESCRIPTION:
        at = span_at(root, (*base, "description"))
        yield codes.LONG_DESCRIPTION.at(
            at, f"the description has {len(tool.description)} characters"
        )
    hidden = next(
        (each for each in scalars(_node(root, base), keys=True) if _HIDDEN.search(each.text)), None
    )
    if hidden is not None:
        message = f"{quote(tool.name)} holds characters that nobody sees: {quote(hidden.text)}"
        yield codes.HIDDEN_TEXT.at(hidden.span, message)
    yield from check_schema(_node(root, (*base, "inputSchema")), tool.input_schema)
    yield from _annotations(tool, root, (*base, "annotations"))
    if tool.http is None and descriptor.mcp is None:
        yield codes.HTTP_REQUIRED.at(span_at(root, base), f"{quote(tool.name)} needs 'http'")
    elif tool.http is not None and descriptor.mcp is not None:
        notes = [Note(span_at(root, ("mcp",)), "'mcp' is here")]
        message = f"{quote(tool.name)} has 'http' beside 'mcp'"
        yield codes.HTTP_FORBIDDEN.at(span_at(root, (*base, "http")), message, notes=notes)
    elif tool.http is not None:
        yield from _http(tool, root, base)


def _http(tool: DescriptorTool, root: Node, base: _Path) -> Iterator[Diagnostic]:
    http, at_path = tool.http, span_at(root, (*base, "http", "path"))
    assert http is not None
    yield from _check_place(http.path, at_path)
    for name in dict.fromkeys(PLACEHOLDER.findall(http.path)):
        if name != "claw_id":
            yield from _parameter(tool, name, root, base)
    if http.body_key is not None and http.method not in _BODY_METHODS:
        yield codes.BAD_BODY.at(
            span_at(root, (*base, "http", "body_key")), f"{http.method} takes no body"
        )
    if http.method == "DELETE" and tool.annotations.effect == "read":
        at = span_at(root, (*base, "http", "method"))
        yield codes.READ_ONLY_DELETE.at(
            at, f"{quote(tool.name)} is a DELETE that says it only reads"
        )


def _parameter(tool: DescriptorTool, name: str, root: Node, base: _Path) -> Iterator[Diagnostic]:
    """Check that a parameter of the path is one segment: declared, required, and no list."""
    at_path = span_at(root, (*base, "http", "path"))
    properties, required = tool.input_schema.get("properties"), tool.input_schema.get("required")
    if not isinstance(properties, dict) or name not in properties:
        yield codes.PATH_PARAMETER.at(at_path, f"the schema has no property {quote(name)}")
        return
    at = span_at(root, (*base, "inputSchema", "properties", name))
    notes = [Note(at_path, "the path needs it here")]
    if not isinstance(required, list) or name not in required:
        yield codes.PATH_PARAMETER.at(
            at, f"the property {quote(name)} is not required", notes=notes
        )
    declared = properties[name]
    if isinstance(declared, dict) and declared.get("type") in _NOT_SINGLE:
        message = (
            f"the property {quote(name)} is an {declared['type']}, and a path takes a single value"
        )
        yield codes.PATH_PARAMETER.at(at, message, notes=notes)


def _annotations(tool: DescriptorTool, root: Node, base: _Path) -> Iterator[Diagnostic]:
    said, node = tool.annotations, child(_node(root, base[:-1]), "annotations")
    if node is None:
        return
    if None not in {said.read_only, said.read_only_hint} and said.read_only != said.read_only_hint:
        notes = [Note(span_at(node, ("readOnly",)), "this one wins")]
        at = span_at(node, ("readOnlyHint",))
        yield codes.EFFECT_CONFLICT.at(at, "'readOnlyHint' contradicts 'readOnly'", notes=notes)
    if said.effect == "read" and (said.model_extra or {}).get("destructiveHint") is True:
        message = f"{quote(tool.name)} says that it only reads, and that it is destructive"
        yield codes.EFFECT_CONFLICT.at(span_at(node, ("destructiveHint",)), message)
    for entry in entries_of(node):
        name = entry.key.text
        if name.startswith(_OURS) and name not in _ANNOTATIONS:
            message, hint = (
                f"the annotation {quote(name)} is not known",
                did_you_mean(name, _ANNOTATIONS),
            )
            yield codes.DESCRIPTOR_UNKNOWN_KEY.at(entry.key.span, message, hint=hint)


def _node(root: Node, path: _Path) -> Node:
    node: Node | None = root
    for part in path:
        node = items_of(node)[part] if isinstance(part, int) else child(node, part)
    assert node is not None
    return node


def check_schema(node: Node, schema: JsonObject) -> Iterator[Diagnostic]:
    """Yield what is wrong with a schema, each at its place under ``node``."""
    size, depth = len(json.dumps(schema, ensure_ascii=False)), _depth(schema)
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
    if not _is_sound(schema):
        wrong = _first_error(schema)
        if wrong is not None:
            place = ".".join(str(part) for part in wrong.absolute_path) or "the schema"
            at = span_at(node, tuple(wrong.absolute_path))
            yield codes.BAD_SCHEMA.at(at, f"{place} is not JSON Schema ({wrong.validator})")
            return
    for path, source in find_patterns(schema):
        try:
            compile_pattern(source)
        except PatternError as error:
            yield codes.BAD_SCHEMA.at(span_at(node, path), f"the pattern {error}")
    yield from _closed(node, node)


def _is_sound(schema: JsonObject) -> bool:
    """Return whether this is JSON Schema, by a fast library: most are, and a large
    pod has thousands.

    It would fetch an unknown ``$schema``, and so is asked about those of one draft only; any other
    answer is left to the library that has the place of a mistake.
    """
    try:
        return schema.get("$schema", _DRAFT) == _DRAFT and jsonschema_rs.meta.is_valid(schema)
    except (ValueError, OverflowError):
        return False


def _first_error(schema: JsonObject) -> Any:
    """Return the first mistake as jsonschema's ``SchemaError``, or None."""
    # A twentieth of a second, for a mistake that most pods don't have.
    from jsonschema import Draft202012Validator, FormatChecker, exceptions, validators

    try:
        draft: Any = validators.validator_for(schema, default=Draft202012Validator)
        draft.check_schema(schema, format_checker=FormatChecker(formats=()))
    except exceptions.SchemaError as error:
        return error
    return None


def _depth(value: Any) -> int:
    inner = (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    )
    return 0 if inner is None else 1 + max(map(_depth, inner), default=0)


def _closed(node: Node, root: Node) -> Iterator[Diagnostic]:
    for item in items_of(node):
        yield from _closed(item, root)
    for entry in entries_of(node):
        value = entry.value
        if entry.key.text in _REFERENCES and isinstance(value, ScalarNode) and not value.plain:
            if not value.text.startswith("#"):
                yield codes.BAD_SCHEMA.at(value.span, "a reference that leaves the schema")
            elif not _leads_somewhere(value.text, root):
                yield codes.BAD_SCHEMA.at(value.span, "a reference that leads nowhere")
        yield from _closed(value, root)


def _leads_somewhere(reference: str, root: Node) -> bool:
    if reference == "#":
        return True
    if not reference.startswith("#/"):
        return unquote(reference[1:]) in _anchors(root)
    node: Node | None = root
    for part in unquote(reference[2:]).split("/"):
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, ListNode):
            node = (
                node.items[int(key)]
                if _INDEX.fullmatch(key) and int(key) < len(node.items)
                else None
            )
        else:
            node = child(node, key)
    return node is not None


def _anchors(node: Node) -> Iterator[str]:
    for item in items_of(node):
        yield from _anchors(item)
    for entry in entries_of(node):
        if entry.key.text in _ANCHORS and isinstance(entry.value, ScalarNode):
            yield entry.value.text
        yield from _anchors(entry.value)
