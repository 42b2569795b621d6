"""JSON objects as a model writes them, read strictly: no repeated key, no NaN, and
numbers in their exact value.
"""

import json
from collections import Counter
from typing import Any

from claw_contract.base import JsonObject
from claw_contract.json_schema_keywords import parse_exact

_MAX_SHOWN = 64


class RepeatedKeyError(ValueError):
    """An object that has a key twice: which of the values is meant, nobody knows."""


class NoObjectError(ValueError):
    """JSON that is no object."""


def read_strict_object(text: str) -> JsonObject:
    """Return the one object that the text is; a number with a point or an exponent
    is a ``Decimal``.

    Raise ``RepeatedKeyError``, ``NoObjectError``, or ``ValueError`` for what is no JSON (RFC 8259)
    or nested too deeply.
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
    document = dict(pairs)
    if len(document) != len(pairs):
        repeated = next(
            name for name, count in Counter(name for name, _ in pairs).items() if count > 1
        )
        raise RepeatedKeyError(f"the key {repeated[:_MAX_SHOWN]!r} stands twice in one object.")
    return document


def _refuse_constant(name: str) -> Any:
    raise ValueError(name)
