"""The check of arguments by a plain schema: of an object whose members are single values, without
references and patterns.

Most tools' schemas are plain, and most arguments fit. ``PlainSchema.accepts`` only ever says that
they do: everything else, with its messages, is left to the library (``json_schema``).
"""

import math
from typing import Any, NamedTuple

_ANNOTATIONS = frozenset(
    {"$schema", "title", "description", "default", "examples", "format", "deprecated"}
)
"""Keywords that no draft checks, formats being off.

``$schema``: what is read here means the same in all drafts.
"""
_OBJECT = frozenset({"type", "properties", "required", "additionalProperties"})
_NUMERIC = ("minimum", "maximum")
_MEMBERS: dict[str, tuple[type[Any], tuple[str, ...]]] = {
    "boolean": (bool, ()),
    "integer": (int, _NUMERIC),
    "number": (int, _NUMERIC),  # Numbers with a point are left to the library
    "string": (str, ("minLength", "maxLength", "enum")),
}
"""Type of a member → the type of its values, and the keywords that it may have."""
_MAX_MEMBERS = 200  # Beyond it the library's check might cost more than its budget


class _Member(NamedTuple):
    kind: type[Any]
    low: float  # Of a number, or of a text's length
    high: float
    allowed: frozenset[str] | None


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
            if (member := self.members.get(name)) is None:
                if self.is_closed:
                    return False
                continue
            kind, low, high, allowed = member
            if type(own) is not kind or (allowed is not None and own not in allowed):
                return False
            if not low <= (len(own) if kind is str else own) <= high:
                return False
        return True


def read_plain_schema(schema: Any) -> PlainSchema | None:
    """Return a schema that is valid, if it is plain."""
    if (
        not isinstance(schema, dict)
        or schema.get("type") != "object"
        or not schema.keys() <= _OBJECT | _ANNOTATIONS
    ):
        return None
    properties, required = schema.get("properties", {}), schema.get("required", [])
    others = schema.get("additionalProperties", True)
    if not isinstance(properties, dict) or not _are_texts(required) or not isinstance(others, bool):
        return None
    members = {
        name: read
        for name, member in properties.items()
        if (read := _read_member(member)) is not None
    }
    if len(members) < len(properties) or len(members) + len(required) > _MAX_MEMBERS:
        return None
    return PlainSchema(members, frozenset(required), not others)


def _read_member(schema: Any) -> _Member | None:
    kind, keywords = (
        _MEMBERS.get(str(schema.get("type")), (None, ()))
        if isinstance(schema, dict)
        else (None, ())
    )
    if kind is None or not schema.keys() <= {"type", *keywords} | _ANNOTATIONS:
        return None
    low, high = (
        schema.get(name, bound)
        for name, bound in zip(keywords[:2] or ("", ""), (-math.inf, math.inf), strict=True)
    )
    if not {type(low), type(high)} <= {int, float} or (
        "enum" in schema and not _are_texts(schema["enum"])
    ):
        return None
    return _Member(kind, low, high, frozenset(schema["enum"]) if "enum" in schema else None)


def _are_texts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)
