"""A strict reader of the JSON objects that a model writes: the arguments of its calls.

No key may be repeated, there is no NaN, and numbers keep their exact value.
"""

import json
from collections import Counter
from typing import Any

from claw_contract.base import JsonObject
from claw_contract.json_schema_keywords import parse_exact

_MAX_SHOWN = 64


class RepeatedKeyError(ValueError):
    """An object has a key twice: nobody knows which of the values is meant."""


class NoObjectError(ValueError):
    """The text is JSON, and no object."""


def read_strict_object(text: str) -> JsonObject:
    """Return the object that the text is. A number with a point or an exponent is a ``Decimal``.

    Raise ``RepeatedKeyError``; ``NoObjectError``; ``ValueError`` for a text that is no JSON
    (RFC 8259), or nested too deeply.
    """
    try:
        values = json.loads(
            text,
            object_pairs_hook=_object_of_unique_keys,
            parse_constant=_refuse_constant,
            parse_float=parse_exact,
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None

    if not isinstance(values, dict):
        raise NoObjectError("it is no object")
    return values


def _object_of_unique_keys(pairs: list[tuple[str, Any]]) -> JsonObject:
    members = dict(pairs)
    if len(members) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        repeated = [name for name, count in counts.items() if count > 1]
        raise RepeatedKeyError(f"the key {repeated[0][:_MAX_SHOWN]!r} stands twice in one object.")
    return members


def _refuse_constant(name: str) -> Any:
    raise ValueError(name)
