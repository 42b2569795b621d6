"""JSON Schema, by the jsonschema library: all drafts' keywords, formats off, and no reference is ever fetched."""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterator
from functools import lru_cache
from typing import Any, Protocol

import referencing
import referencing.exceptions
import referencing.jsonschema
from jsonschema import Draft202012Validator, SchemaError
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend, validator_for

MAX_MESSAGE = 200


class _Validator(Protocol):
    def iter_errors(self, instance: Any) -> Iterator[ValidationError]: ...


def schema_problem(schema: dict[str, Any]) -> str | None:
    """Why a tool can't be offered with this schema: it is no valid schema, or refers to something outside itself."""
    try:
        cls = validator_for(schema, default=Draft202012Validator)
        cls.check_schema(schema)
        _resolve_references(schema)
    except SchemaError as error:
        return f"inputSchema is not a valid JSON Schema: {error.message[:MAX_MESSAGE]}"
    except (referencing.exceptions.Unresolvable, referencing.exceptions.NoSuchResource):
        return "inputSchema refers to a schema that is not inside it; references are never fetched"
    except RecursionError:
        return "inputSchema is nested too deeply"
    except (AttributeError, TypeError, ValueError):
        return "inputSchema is not a valid JSON Schema"
    return None


def check(schema: dict[str, Any], instance: Any, most: int) -> list[dict[str, str]]:
    """At most ``most`` violations, in a stable order: ``{path, message}``, the path as ``a.b[1]``."""
    try:
        errors = sorted(_validator(json.dumps(schema)).iter_errors(instance), key=lambda e: (_path(e), e.message))
    except (RecursionError, ArithmeticError, referencing.exceptions.Unresolvable, re.error):
        # A loop of references, nesting or a number beyond what can be compared: not checked is not valid.
        return [{"path": "", "message": "these arguments can't be checked against the schema"}]
    return [{"path": _path(error), "message": error.message[:MAX_MESSAGE]} for error in errors[:most]]


@lru_cache(maxsize=1024)
def _validator(schema: str) -> _Validator:
    document = json.loads(schema)
    cls = extend(  # type: ignore[no-untyped-call]
        validator_for(document, default=Draft202012Validator), {"uniqueItems": _unique_items}
    )
    validator: _Validator = cls(document, registry=referencing.Registry())
    return validator


def _unique_items(_validator: Any, wanted: bool, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    """In linear time: the library compares every item with every other, and a model chooses how many there are."""
    if wanted and isinstance(instance, list) and len(set(map(_frozen, instance))) < len(instance):
        yield ValidationError("items are not unique")


def _frozen(value: Any) -> Hashable:
    """A value that is equal to another's exactly when JSON Schema takes the two for equal (1 is 1.0, and not true)."""
    if isinstance(value, dict):
        return "{", frozenset((name, _frozen(member)) for name, member in value.items())
    if isinstance(value, list):
        return "[", *map(_frozen, value)
    return type(value) is bool, value


def _path(error: ValidationError) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path)
    return text.lstrip(".")


def _resolve_references(schema: dict[str, Any]) -> None:
    resource = referencing.Resource.from_contents(schema, default_specification=referencing.jsonschema.DRAFT202012)
    registry = (
        resource @ referencing.Registry() if resource.id() else referencing.Registry().with_resource("", resource)
    )
    resolver = registry.resolver(base_uri=resource.id() or "")
    for reference in _references(schema):
        resolver.lookup(reference)


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key in {"$ref", "$dynamicRef", "$recursiveRef"} and isinstance(value, str):
                yield value
            else:
                yield from _references(value)
    elif isinstance(node, list):
        for value in node:
            yield from _references(value)
