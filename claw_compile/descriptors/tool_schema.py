"""The rules of a tool's ``inputSchema``: an object schema, sound, and closed in itself.

A reference that leaves the document would make the proxy ask the network while it checks a call, and one that leads
nowhere would fail at the first call: both are found here. So are patterns that the proxy can't search for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import jsonschema_rs

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Diagnostic
from claw_compile.parsing.node import ListNode, Node, ScalarNode, child, entries_of, items_of, span_at
from claw_contract.base import JsonObject
from claw_contract.pattern import PatternError, pattern, patterns

if TYPE_CHECKING:
    from jsonschema.exceptions import SchemaError

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_REFERENCES = ("$ref", "$dynamicRef")
_ANCHORS = ("$anchor", "$dynamicAnchor")
MAX_CHARACTERS = 65536
MAX_DEPTH = 24
_INDEX = re.compile(r"[0-9]{1,9}")


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
    for path, source in patterns(schema):
        try:
            pattern(source)
        except PatternError as error:
            yield codes.BAD_SCHEMA.at(span_at(node, path), f"the pattern {error}")
    yield from _closed(node, node)


def _is_sound(schema: JsonObject) -> bool:
    """Return whether this is JSON Schema, by a fast library: most are, and a large pod has thousands.

    It would fetch an unknown ``$schema``, and so is asked about those of one draft only; any other answer is left to the
    library that has the place of a mistake.
    """
    try:
        return schema.get("$schema", _DRAFT) == _DRAFT and jsonschema_rs.meta.is_valid(schema)
    except (ValueError, OverflowError):
        return False


def _first_error(schema: JsonObject) -> SchemaError | None:
    # A twentieth of a second, for a mistake that most pods don't have.
    from jsonschema import Draft202012Validator, FormatChecker, exceptions, validators

    try:
        draft: Any = validators.validator_for(schema, default=Draft202012Validator)
        draft.check_schema(schema, format_checker=FormatChecker(formats=()))
    except exceptions.SchemaError as error:
        return error
    return None


def _depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
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
    """Return whether a JSON pointer, or the name of an anchor, leads somewhere."""
    if reference == "#":
        return True
    if not reference.startswith("#/"):
        return unquote(reference[1:]) in _anchors(root)
    node: Node | None = root
    for part in unquote(reference[2:]).split("/"):
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, ListNode):
            node = node.items[int(key)] if _INDEX.fullmatch(key) and int(key) < len(node.items) else None
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
