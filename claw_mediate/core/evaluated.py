"""Which members of an object, or items of a list, a schema has looked at: what ``unevaluated…`` leaves over.

The library's own answer is a list that is searched for each member, and knows Python's regular expressions only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from referencing.jsonschema import lookup_recursive_ref

type Matches = Callable[[str, str], bool]
"""Whether a pattern is found in a name."""


def evaluated(validator: Any, instance: Any, schema: Any, matches: Matches) -> set[str | int]:
    """Names, or indexes. ``schema`` has accepted the value, except for what is asked about."""
    if not isinstance(schema, dict):
        return set()
    found = _members(instance, schema, matches) if isinstance(instance, dict) else _items(validator, instance, schema)
    for within, part in _in_place(validator, instance, schema):
        found |= evaluated(within, instance, part, matches)
    return found


def _members(instance: dict[str, Any], schema: dict[str, Any], matches: Matches) -> set[str | int]:
    if schema.get("additionalProperties") is not None or schema.get("unevaluatedProperties") is not None:
        return set(instance)
    patterns = schema.get("patternProperties", {})
    named = schema.get("properties", {}).keys() & instance.keys()
    return {*named, *(name for name in instance if any(matches(source, name) for source in patterns))}


def _items(validator: Any, instance: list[Any], schema: dict[str, Any]) -> set[str | int]:
    everything = range(len(instance))
    items = schema.get("items")
    if schema.get("unevaluatedItems") is not None or isinstance(items, dict | bool):
        return set(everything)
    if isinstance(items, list):  # draft 2019-09
        return set(everything if schema.get("additionalItems") is not None else everything[: len(items)])
    found: set[str | int] = set(everything[: len(schema.get("prefixItems", ()))])
    if "contains" in schema and "prefixItems" in validator.VALIDATORS:  # since draft 2020-12
        wanted = validator.evolve(schema=schema["contains"])
        found |= {index for index in everything if index not in found and wanted.is_valid(instance[index])}
    return found


def _in_place(validator: Any, instance: Any, schema: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    """The schemas that hold for the same value: those referred to, and the applicators' that accept it."""
    yield from _referred(validator, schema)
    parts = [*schema.get("allOf", ()), *schema.get("anyOf", ()), *schema.get("oneOf", ())]
    parts += [part for name, part in schema.get("dependentSchemas", {}).items() if name in instance]
    if "if" in schema:
        holds = validator.evolve(schema=schema["if"]).is_valid(instance)
        parts += [schema["if"], schema.get("then")] if holds else [schema.get("else")]
    for part in parts:
        if isinstance(part, dict) and validator.evolve(schema=part).is_valid(instance):
            yield validator, part


def _referred(validator: Any, schema: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    resolver = validator._resolver  # noqa: SLF001 — what the library's own keywords use
    targets = [resolver.lookup(schema[key]) for key in ("$ref", "$dynamicRef") if key in schema]
    if "$recursiveRef" in schema:
        targets.append(lookup_recursive_ref(resolver))
    for target in targets:
        yield validator.evolve(schema=target.contents, _resolver=target.resolver), target.contents
