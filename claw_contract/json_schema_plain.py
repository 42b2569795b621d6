"""A fast check for plain schemas: an object of single values, without references and patterns.

Most tools' schemas are plain, and most arguments fit. ``PlainSchema.accepts`` only ever says that
arguments fit: all others, with their messages, are left to the library (``json_schema``).
"""

import math
from typing import Any, NamedTuple

_ANNOTATIONS = frozenset(
    {"$schema", "title", "description", "default", "examples", "format", "deprecated"}
)
"""Keywords that check nothing, since formats are off.

``$schema`` is one of them because the keywords below mean the same in all drafts.
"""
_OBJECT = frozenset({"type", "properties", "required", "additionalProperties"})
_NUMERIC = ("minimum", "maximum")
_MEMBERS: dict[str, tuple[type[Any], tuple[str, ...]]] = {
    "boolean": (bool, ()),
    "integer": (int, _NUMERIC),
    "number": (int, _NUMERIC),  # Numbers with a point are left to the library
    "string": (str, ("minLength", "maxLength", "enum")),
}
"""Type of a member → the type of its values, and the keywords that it may have.

The first two keywords are the lowest and the highest number, or length of a text.
"""
_MAX_MEMBERS = 200
"""A larger schema is left to the library: its check might exceed the budget, and be refused."""


class _Member(NamedTuple):
    kind: type[Any]
    low: float  # The lowest number, or length of a text
    high: float
    allowed: frozenset[str] | None  # None: any text


class PlainSchema(NamedTuple):
    """A plain schema, read once."""

    members: dict[str, _Member]
    required: frozenset[str]
    is_closed: bool  # True if no other members are allowed

    def accepts(self, value: Any) -> bool:
        """Return True only if the value fits the schema; False says nothing."""
        if type(value) is not dict or not self.required <= value.keys():
            return False

        for name, own in value.items():
            member = self.members.get(name)
            if member is None:
                if self.is_closed:
                    return False
                continue

            kind, low, high, allowed = member
            if type(own) is not kind or (allowed is not None and own not in allowed):
                return False

            size = len(own) if kind is str else own
            if not low <= size <= high:
                return False
        return True


def read_plain_schema(schema: Any) -> PlainSchema | None:
    """Return a schema that is valid, if it is plain."""
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return None
    if not schema.keys() <= _OBJECT | _ANNOTATIONS:
        return None

    properties = schema.get("properties", {})
    required = schema.get("required", [])
    others = schema.get("additionalProperties", True)
    if not isinstance(properties, dict) or not _are_texts(required) or not isinstance(others, bool):
        return None
    if len(properties) + len(required) > _MAX_MEMBERS:
        return None

    members: dict[str, _Member] = {}
    for name, subschema in properties.items():
        member = _read_member(subschema)
        if member is None:
            return None
        members[name] = member
    return PlainSchema(members, frozenset(required), not others)


def _read_member(schema: Any) -> _Member | None:
    """Return a member's schema, or None if it is not one of those in ``_MEMBERS``."""
    if not isinstance(schema, dict):
        return None
    kind, keywords = _MEMBERS.get(str(schema.get("type")), (None, ()))
    if kind is None or not schema.keys() <= {"type", *keywords} | _ANNOTATIONS:
        return None

    low: Any = -math.inf
    high: Any = math.inf
    if keywords:
        low = schema.get(keywords[0], low)
        high = schema.get(keywords[1], high)
    # A decimal, or null, is left to the library.
    if not {type(low), type(high)} <= {int, float}:
        return None

    allowed = None
    if "enum" in schema:
        if not _are_texts(schema["enum"]):
            return None
        allowed = frozenset(schema["enum"])
    return _Member(kind, low, high, allowed)


def _are_texts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)
