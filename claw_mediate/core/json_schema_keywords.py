"""The keywords of JSON Schema as the jsonschema library has them, but for those where a model or a schema could make it work
for long, or where it is inexact.

Every use of a keyword is paid from a budget of steps, so that no schema and no value takes longer than the budget allows,
on any machine: a sum, not a clock. Patterns are ECMA-262's, in bounded time. Numbers compare exactly: they are ``int`` or
``Decimal``, never ``float``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from typing import Any

from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend

from claw_contract.pattern import compile_pattern
from claw_mediate.core.evaluated import evaluated
from claw_mediate.core.number import is_multiple, is_number

MAX_MESSAGE = 200
_TAIL = 60
MOST_WORK = 1_000_000
"""What one check may cost, in microseconds of a slow machine, roughly; an ordinary call costs some hundreds."""
_KEYWORD = 5
_REFERENCE = 40
_ERROR = 12
_MESSAGE = 64
"""Characters of a message for one step: a message quotes the value, and a value may be large."""

type Keyword = Callable[[Any, Any, Any, Any], Iterator[ValidationError] | None]


class TooMuchWorkError(Exception):
    """The budget is spent: whether the value is valid is not known."""


@dataclass(slots=True)
class Work:
    """What is left of the budget of one check, and the enumerations that it met (by their place in the schema)."""

    left: int
    enums: dict[int, frozenset[Hashable]] = field(default_factory=dict)

    def spend(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0:
            raise TooMuchWorkError


work: ContextVar[Work] = ContextVar("work")
"""Of the check that is under way. The library hands nothing of ours through, so it can't be an argument."""


@lru_cache(maxsize=16)
def bounded(draft: Any) -> Any:
    """The library's class for a draft, with our keywords, each of them paid for."""
    ours = {name: keyword for name, keyword in _OURS.items() if name in draft.VALIDATORS}
    paid = {name: _paid(name, keyword) for name, keyword in {**draft.VALIDATORS, **ours}.items()}
    integer = draft.TYPE_CHECKER.is_type(1.0, "integer")  # since draft 6
    types = draft.TYPE_CHECKER.redefine("integer", lambda _, value: _is_integer(value, whole_decimals=integer))
    return extend(draft, paid, type_checker=types)  # type: ignore[no-untyped-call]


def _paid(name: str, keyword: Keyword) -> Keyword:
    price = _REFERENCE if "ref" in name.lower() else _KEYWORD
    is_long = name not in {"const", "enum"}

    def paid(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        budget = work.get()
        budget.spend(price + (_KEYWORD * len(value) if is_long and isinstance(value, dict | list) else 0))
        for error in keyword(validator, value, instance, schema) or ():
            budget.spend(_ERROR + len(error.message) // _MESSAGE)
            error.message = shortened(error.message)
            yield error

    return paid


def shortened(text: str) -> str:
    """A message quotes first and complains last: both ends are kept."""
    return text if len(text) <= MAX_MESSAGE else f"{text[: MAX_MESSAGE - _TAIL - 1]}…{text[-_TAIL:]}"


def _is_integer(value: Any, *, whole_decimals: bool) -> bool:
    if isinstance(value, int):
        return not isinstance(value, bool)
    return isinstance(value, Decimal) and whole_decimals and value == value.to_integral_value()


def found(source: str, text: str) -> bool:
    """Whether a pattern is found in a text; paid for. Raises ``PatternError`` and ``TooMuchWorkError``."""
    wanted = compile_pattern(source)
    work.get().spend(wanted.price * len(text))
    return wanted.matches(text)


def _pattern(_validator: Any, source: str, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not found(source, instance):
        yield ValidationError(f"{instance!r} does not match {source!r}")


def _pattern_properties(validator: Any, patterns: Any, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, dict):
        for source, subschema in patterns.items():
            for name in instance:
                if found(source, name):
                    yield from validator.descend(instance[name], subschema, path=name, schema_path=source)


def _additional_properties(validator: Any, rule: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, dict):
        named, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
        for name in instance:
            if name not in named and not any(found(source, name) for source in patterns):
                yield from _not_allowed(validator, name, instance[name], rule)


def _unevaluated_properties(validator: Any, rule: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, dict):
        known = evaluated(validator, instance, {**schema, "unevaluatedProperties": None}, found)
        for name in instance:
            if name not in known:
                yield from _not_allowed(validator, name, instance[name], rule)


def _unevaluated_items(validator: Any, rule: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, list):
        known = evaluated(validator, instance, {**schema, "unevaluatedItems": None}, found)
        for index, item in enumerate(instance):
            if index not in known:
                yield from _not_allowed(validator, index, item, rule)


def _not_allowed(validator: Any, place: str | int, value: Any, rule: Any) -> Iterator[ValidationError]:
    if rule is False:
        yield ValidationError("is not allowed here", path=[place])
    else:
        yield from validator.descend(value, rule, path=place)


def _unique_items(_validator: Any, wanted: bool, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    """In linear time: the library compares every item with every other, and a model chooses how many there are."""
    if wanted and isinstance(instance, list) and len(set(map(_frozen, instance))) < len(instance):
        yield ValidationError("items are not unique")


def _enum(_validator: Any, values: Any, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    known = work.get().enums
    if id(values) not in known:
        known[id(values)] = frozenset(map(_frozen, values))
    if _frozen(instance) not in known[id(values)]:
        yield ValidationError(f"{instance!r} is not one of {values}")


def _const(_validator: Any, value: Any, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    if _frozen(instance) != _frozen(value):
        yield ValidationError(f"{value} was expected")


def _frozen(value: Any) -> Hashable:
    """A value that is equal to another's exactly when JSON Schema takes the two for equal (1 is 1.0, and not true)."""
    if isinstance(value, dict):
        work.get().spend(1 + len(value))
        return "{", frozenset((name, _frozen(member)) for name, member in value.items())
    if isinstance(value, list):
        work.get().spend(1 + len(value))
        return "[", *map(_frozen, value)
    return type(value) is bool, value


def _multiple_of(_validator: Any, factor: Any, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    if is_number(instance) and not is_multiple(instance, factor):
        yield ValidationError(f"{instance!r} is not a multiple of {factor!r}")


_OURS: dict[str, Keyword] = {
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "unevaluatedProperties": _unevaluated_properties,
    "unevaluatedItems": _unevaluated_items,
    "uniqueItems": _unique_items,
    "enum": _enum,
    "const": _const,
    "multipleOf": _multiple_of,
    "divisibleBy": _multiple_of,
}
