"""The check of values by a JSON Schema of any draft, with the jsonschema library.

Formats are not checked, and no reference is ever fetched. Keywords that a model or a schema could
make slow or inexact are our own (``json_schema_keywords``). A check ends within a budget of steps:
a value that is not checked to the end is not valid.
"""

import json
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import Any, Protocol

import referencing
import referencing.exceptions
import referencing.jsonschema
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import validator_for
from jsonschema_specifications import REGISTRY as SPECIFICATIONS  # type: ignore[import-untyped]

from claw_contract.json_schema_keywords import (
    MAX_WORK,
    TooMuchWorkError,
    Work,
    bounded_validator,
    current_work,
    parse_exact,
    shorten,
)
from claw_contract.json_schema_plain import PlainSchema, read_plain_schema
from claw_contract.pattern import PatternError, compile_pattern, find_patterns

_MAX_WORK_AT_LOAD = 2 * MAX_WORK
_MAX_ERRORS = 1_000
"""Violations that are collected and put in order; any more are not looked for."""
_UNCHECKABLE = "these arguments can't be checked against the schema"
_TOO_LARGE = "these arguments are too large to be checked against the schema"


class _Validator(Protocol):
    def iter_errors(self, instance: Any) -> Iterator[ValidationError]: ...


def find_schema_problem(schema: dict[str, Any]) -> str | None:
    """Return why a tool can't have this schema, or None.

    It may be no JSON Schema, refer to another document, or have a pattern that can't be searched.
    """
    try:
        return _find_problem(json.dumps(schema))
    except RecursionError:
        return "inputSchema is nested too deeply"
    except (TypeError, ValueError):
        return "inputSchema is not a valid JSON Schema"


@lru_cache(maxsize=256)  # many agents are granted the same tools
def _find_problem(text: str) -> str | None:
    schema = json.loads(text)
    try:
        violation = _first_error(text)
        if violation is not None:
            return f"inputSchema is not a valid JSON Schema: {violation.message}"

        _resolve_references(schema)
        for _, source in find_patterns(schema):
            compile_pattern(source)
    except PatternError as error:
        return f"inputSchema has a pattern that can't be used: {error}"
    except TooMuchWorkError:
        return "inputSchema is too large"
    except (referencing.exceptions.Unresolvable, referencing.exceptions.NoSuchResource):
        return "inputSchema refers to a schema that is not inside it; references are never fetched"
    except RecursionError:
        return "inputSchema is nested too deeply"
    except (AttributeError, TypeError, ValueError):
        return "inputSchema is not a valid JSON Schema"
    return None


def check_instance(schema: dict[str, Any] | str, instance: Any, limit: int) -> list[dict[str, str]]:
    """Return at most ``limit`` violations, ``{path, message}``, in the order of their places.

    A path is written ``a.b[1]``. A caller that checks often gives the schema as JSON. Numbers of
    the instance are ``int`` or ``json_schema_keywords.Number``.
    """
    errors: list[ValidationError] = []
    token = current_work.set(Work(MAX_WORK))
    try:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        plain = _plain_schema(text)
        if plain is not None and plain.accepts(instance):
            return []

        errors.extend(islice(_validator(text).iter_errors(instance), _MAX_ERRORS))
    except TooMuchWorkError:
        # The violations that were found until then are true, so they are reported.
        if not errors:
            return [{"path": "", "message": _TOO_LARGE}]
    except (
        RecursionError,
        ArithmeticError,
        ValueError,
        TypeError,
        referencing.exceptions.Unresolvable,
    ):
        # A loop of references, nesting, or a number that can't be compared: what is not checked is
        # not valid.
        return [{"path": "", "message": _UNCHECKABLE}]
    finally:
        current_work.reset(token)

    errors.sort(key=_sort_key)
    return [
        {"path": shorten(_format_path(error)), "message": error.message} for error in errors[:limit]
    ]


def _first_error(schema: str) -> ValidationError | None:
    """Return the first violation by which a schema is none of its draft."""
    document = json.loads(schema, parse_float=parse_exact)
    draft = validator_for(document, default=Draft202012Validator)
    token = current_work.set(Work(_MAX_WORK_AT_LOAD))
    try:
        return next(_meta_validator(draft).iter_errors(document), None)
    finally:
        current_work.reset(token)


@lru_cache(maxsize=16)
def _meta_validator(draft: Any) -> _Validator:
    """Return the validator of a draft's schemas."""
    parts = [(uri, _resource(SPECIFICATIONS.contents(uri))) for uri in SPECIFICATIONS]
    # Crawled before the library adds its own parts: else their anchors would win.
    registry = referencing.Registry().with_resources(parts).crawl()
    meta_schema = _without_dialects(draft.META_SCHEMA)
    validator: _Validator = bounded_validator(draft)(meta_schema, registry=registry)
    return validator


def _resource(document: dict[str, Any]) -> referencing.jsonschema.SchemaResource:
    specification = referencing.jsonschema.specification_with(document["$schema"])
    return specification.create_resource(_without_dialects(document))


@lru_cache(maxsize=1024)
def _validator(schema: str) -> _Validator:
    document = json.loads(schema, parse_float=parse_exact)
    draft = validator_for(document, default=Draft202012Validator)
    own_schema = _without_dialects(document)
    # An empty registry: references lead into the schema itself, or nowhere.
    validator: _Validator = bounded_validator(draft)(own_schema, registry=referencing.Registry())
    return validator


@lru_cache(maxsize=1024)
def _plain_schema(schema: str) -> PlainSchema | None:
    return read_plain_schema(json.loads(schema, parse_float=parse_exact))


def _without_dialects(node: Any) -> Any:
    """Return the schema without ``$schema``.

    Where the library meets one, it goes on with its own keywords in place of ours.
    """
    if isinstance(node, list):
        return [_without_dialects(value) for value in node]
    if not isinstance(node, dict):
        return node
    return {
        key: _without_dialects(value)
        for key, value in node.items()
        if key != "$schema" or not isinstance(value, str)
    }


def _sort_key(error: ValidationError) -> tuple[list[tuple[bool, Any]], str]:
    return [(isinstance(part, str), part) for part in error.absolute_path], error.message


def _format_path(error: ValidationError) -> str:
    text = "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path
    )
    return text.lstrip(".")


def _resolve_references(schema: dict[str, Any]) -> None:
    """Raise an error of ``referencing`` if a reference leads out of the schema."""
    resource = referencing.Resource.from_contents(
        schema, default_specification=referencing.jsonschema.DRAFT202012
    )
    own_uri = resource.id()
    if own_uri:
        registry = resource @ referencing.Registry()
    else:
        registry = referencing.Registry().with_resource("", resource)

    resolver = registry.resolver(base_uri=own_uri or "")
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
