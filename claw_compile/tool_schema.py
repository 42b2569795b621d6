"""What a tool's ``inputSchema`` must be: an object schema, sound, and closed in itself.

A ``$ref`` that leaves the document would make the proxy ask the network while it checks a call, and a ``pattern`` that is no
regular expression would fail at the first call: both are found here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from jsonschema.exceptions import SchemaError
from jsonschema.validators import Draft202012Validator, validator_for

from claw_compile import codes
from claw_compile.diagnostic import Diagnostic
from claw_compile.node import ListNode, MapNode, Node, ScalarNode, span_at
from claw_contract.base import JsonObject


def check_schema(node: Node, schema: JsonObject) -> Iterator[Diagnostic]:
    """What is wrong with a schema, each at its place under ``node``."""
    if schema.get("type") != "object":
        yield codes.BAD_SCHEMA.at(span_at(node, ("type",)), "inputSchema needs 'type': 'object'")
        return
    try:
        validator_for(schema, default=Draft202012Validator).check_schema(schema)
    except SchemaError as error:
        at = span_at(node, tuple(error.absolute_path))
        place = ".".join(str(part) for part in error.absolute_path) or "the schema"
        yield codes.BAD_SCHEMA.at(at, f"{place} is not JSON Schema ({error.validator})")
        return
    yield from _closed(node)


def _closed(node: Node) -> Iterator[Diagnostic]:
    if isinstance(node, ListNode):
        for item in node.items:
            yield from _closed(item)
    if not isinstance(node, MapNode):
        return
    for entry in node.entries:
        key, value = entry.key.text, entry.value
        if isinstance(value, ScalarNode) and not value.plain:
            if key == "$ref" and not value.text.startswith("#"):
                yield codes.BAD_SCHEMA.at(value.span, "a $ref that leaves the schema")
            if key == "pattern" and not _is_regex(value.text):
                yield codes.BAD_SCHEMA.at(value.span, "a pattern that is no regular expression")
        yield from _closed(value)


def _is_regex(text: str) -> bool:
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError):
        return False
    return True
