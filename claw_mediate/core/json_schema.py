"""JSON Schema, by the jsonschema library: all drafts' keywords, formats off, and no reference is ever fetched.

What a model or a schema could make slow or inexact is ours (``keywords``). A check ends within a budget of steps: a value
that is not checked through is not valid.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Protocol

import referencing
import referencing.exceptions
import referencing.jsonschema
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import validator_for
from jsonschema_specifications import REGISTRY as SPECIFICATIONS  # type: ignore[import-untyped]

from claw_contract.pattern import PatternError, compile_pattern, find_patterns
from claw_mediate.core.json_schema_keywords import MOST_WORK, TooMuchWorkError, Work, bounded, shortened, work
from claw_mediate.core.number import exact

_MOST_WORK_AT_LOAD = 2 * MOST_WORK


class _Validator(Protocol):
    def iter_errors(self, instance: Any) -> Iterator[ValidationError]: ...


def schema_problem(schema: dict[str, Any]) -> str | None:
    """Why a tool can't be offered with this schema: it is none, refers to something outside, or has a hopeless pattern."""
    try:
        if (wrong := _first_error(schema)) is not None:
            return f"inputSchema is not a valid JSON Schema: {wrong.message}"
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


def check(schema: dict[str, Any], instance: Any, most: int) -> list[dict[str, str]]:
    """At most ``most`` violations, in the order of their places: ``{path, message}``, the path as ``a.b[1]``.

    Numbers of the instance are ``int`` or ``number.Number``.
    """
    errors: list[ValidationError] = []
    token = work.set(Work(MOST_WORK))
    try:
        errors.extend(_validator(json.dumps(schema)).iter_errors(instance))
    except TooMuchWorkError:
        if not errors:
            return [{"path": "", "message": "these arguments are too large to be checked against the schema"}]
    except (RecursionError, ArithmeticError, ValueError, TypeError, referencing.exceptions.Unresolvable):
        # A loop of references, nesting or a number beyond what can be compared: not checked is not valid.
        return [{"path": "", "message": "these arguments can't be checked against the schema"}]
    finally:
        work.reset(token)
    errors.sort(key=_place)
    return [{"path": shortened(_path(error)), "message": error.message} for error in errors[:most]]


def _first_error(schema: dict[str, Any]) -> ValidationError | None:
    """What is wrong with a schema, by its draft's own."""
    document = json.loads(json.dumps(schema), parse_float=exact)
    draft = validator_for(document, default=Draft202012Validator)
    token = work.set(Work(_MOST_WORK_AT_LOAD))
    try:
        return next(_of_schemas(draft).iter_errors(document), None)
    finally:
        work.reset(token)


@lru_cache(maxsize=16)
def _of_schemas(draft: Any) -> _Validator:
    """The validator of a draft's schemas."""
    parts = [(uri, _bare(SPECIFICATIONS.contents(uri))) for uri in SPECIFICATIONS]
    registry = (
        referencing.Registry().with_resources(parts).crawl()
    )  # before the library adds its own: its anchors would win
    made = bounded(draft)(_without_dialects(draft.META_SCHEMA), registry=registry)
    validator: _Validator = made
    return validator


def _bare(document: dict[str, Any]) -> referencing.jsonschema.SchemaResource:
    specification = referencing.jsonschema.specification_with(document["$schema"])
    return specification.create_resource(_without_dialects(document))


@lru_cache(maxsize=1024)
def _validator(schema: str) -> _Validator:
    document = json.loads(schema, parse_float=exact)
    draft = validator_for(document, default=Draft202012Validator)
    validator: _Validator = bounded(draft)(_without_dialects(document), registry=referencing.Registry())
    return validator


def _without_dialects(node: Any) -> Any:
    """Without ``$schema``: where the library meets one it goes on with its own keywords instead of ours."""
    if isinstance(node, dict):
        return {
            key: _without_dialects(value)
            for key, value in node.items()
            if key != "$schema" or not isinstance(value, str)
        }
    return [_without_dialects(value) for value in node] if isinstance(node, list) else node


def _place(error: ValidationError) -> tuple[list[tuple[bool, Any]], str]:
    return [(isinstance(part, str), part) for part in error.absolute_path], error.message


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
