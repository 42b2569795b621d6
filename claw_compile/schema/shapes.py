"""The shapes that the grammar's ``Reading`` takes, as JSON Schema.

Rules. An editor sees values before their variables are filled in: text with a ``$`` may become anything. A plain scalar is a
number or a boolean to it, and text to the grammar, which reads spellings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from claw_compile.grammar.reader import LARGEST_LIMIT

type Schema = dict[str, Any]
NULL: Schema = {"type": "null"}
_ANY = r"[\s\S]*\S[\s\S]*"
_SAMPLES = {"integer": "5", "number": "1.5", "boolean": "true"}
VARIABLE: Schema = {"type": "string", "pattern": r"^(?:[^$]|\$\$)*\$[A-Za-z_{]"}
"""A value with a variable."""


def described(description: str, schema: Schema, **more: Any) -> Schema:
    """The schema with what an editor shows of it."""
    return {"description": description, **schema, **more}


def text(pattern: str = _ANY) -> Schema:
    """A single value that is not empty, in any type whose spelling may fit."""
    types = ["string", *(name for name, sample in _SAMPLES.items() if re.fullmatch(pattern, sample))]
    return or_variable({"type": types, "pattern": f"^(?:{pattern})$"})


def prose() -> Schema:
    """A text that may be empty."""
    return {"type": ["string", "number", "boolean"]}


def choice(options: Iterable[str]) -> Schema:
    """One word of a closed set."""
    return or_variable({"enum": list(options)})


def flag() -> Schema:
    """True or false, in quotes too."""
    return or_variable({"type": ["boolean", "string"], "pattern": "^(?:true|false)$"})


def limit(most: int = LARGEST_LIMIT) -> Schema:
    """A positive integer, in quotes too."""
    number = {"type": ["integer", "string"], "minimum": 1, "maximum": most, "pattern": "^0*[1-9][0-9]{0,9}$"}
    return or_variable(number)


def or_variable(schema: Schema) -> Schema:
    """Or what a variable makes of it."""
    return {"anyOf": [schema, VARIABLE]}


def nullable(schema: Schema) -> Schema:
    """Or nothing."""
    return {"anyOf": [schema, NULL]}


def listed(item: Schema) -> Schema:
    """A list; ``null`` is an empty one."""
    return {"type": ["array", "null"], "items": item}


def mapping(keys: Mapping[str, Schema], *required: str, **more: Any) -> Schema:
    """A mapping with these keys and no others."""
    needs = {"required": list(required)} if required else {}
    return {"type": "object", "properties": dict(keys), **needs, "additionalProperties": False, **more}


def named(value: Schema, name: str) -> Schema:
    """A mapping of any names that fit the pattern; ``null`` is an empty one."""
    return {"type": ["object", "null"], "propertyNames": {"pattern": f"^(?:{name})$"}, "additionalProperties": value}


def either(*keys: str) -> Schema:
    """Exactly one of the keys."""
    return {"oneOf": [{"required": [key]} for key in keys]}
