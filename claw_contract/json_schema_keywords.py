"""The keywords of JSON Schema that replace the jsonschema library's own.

They replace those with which a model or a schema could make the library work for long, and those
in which the library is inexact.

Every use of a keyword is paid from a budget of steps, so that no schema and no value takes longer
than the budget allows, on any machine: a sum, not a clock. Patterns are ECMA-262's, in bounded
time. Numbers compare exactly: they are ``int`` or ``Decimal``, never ``float``.
"""

from collections.abc import Callable, Hashable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any

from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend
from referencing.jsonschema import lookup_recursive_ref

from claw_contract.pattern import compile_pattern

MAX_MESSAGE = 200
_MESSAGE_TAIL = 60
MAX_WORK = 1_000_000
"""The budget of one check, in steps of about a microsecond on a slow machine.

An ordinary call costs some hundreds.
"""
_KEYWORD_STEPS = 5
_REFERENCE_STEPS = 40
_ERROR_STEPS = 12
_MESSAGE_CHARACTERS = 64
"""Characters of a message for one step: a message quotes the value, which may be large."""

type Keyword = Callable[[Any, Any, Any, Any], Iterator[ValidationError] | None]


class TooMuchWorkError(Exception):
    """The budget is spent: the value may be valid or not."""


@dataclass(slots=True)
class Work:
    """The rest of the budget of one check, and what the check has computed once."""

    left: int
    enums: dict[int, frozenset[Hashable]] = field(default_factory=dict)
    """The frozen values of each ``enum`` that the check has met, by the list's ``id``."""

    def spend(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0:
            raise TooMuchWorkError


current_work: ContextVar[Work] = ContextVar("work")
"""The work of the check that is under way.

The library passes nothing of ours through, so it can't be an argument.
"""


@lru_cache(maxsize=16)
def bounded_validator(draft: Any) -> Any:
    """Return the library's class for a draft, with our keywords, each of them paid for."""
    ours = {name: keyword for name, keyword in _OURS.items() if name in draft.VALIDATORS}
    keywords = {**draft.VALIDATORS, **ours}
    paid = {name: _charge(name, keyword) for name, keyword in keywords.items()}

    # Since draft 6 a number with a point may be an integer, too: 1.0.
    whole_decimals = draft.TYPE_CHECKER.is_type(1.0, "integer")
    types = draft.TYPE_CHECKER.redefine(
        "integer", lambda _, value: _is_integer(value, whole_decimals=whole_decimals)
    )
    return extend(draft, paid, type_checker=types)  # type: ignore[no-untyped-call]


def _charge(name: str, keyword: Keyword) -> Keyword:
    """Return the keyword, paid for from the budget of the check that is under way."""
    base_price = _REFERENCE_STEPS if "ref" in name.lower() else _KEYWORD_STEPS
    # Their values are compared at once, not one by one.
    is_paid_by_length = name not in {"const", "enum"}

    def charged(
        validator: Any, value: Any, instance: Any, schema: Any
    ) -> Iterator[ValidationError]:
        price = base_price
        if is_paid_by_length and isinstance(value, dict | list):
            price += _KEYWORD_STEPS * len(value)
        budget = current_work.get()
        budget.spend(price)

        for error in keyword(validator, value, instance, schema) or ():
            budget.spend(_ERROR_STEPS + len(error.message) // _MESSAGE_CHARACTERS)
            error.message = shorten(error.message)
            yield error

    return charged


def shorten(text: str) -> str:
    """Return a message within ``MAX_MESSAGE`` characters.

    Both ends stay: a message quotes the value first, and says what is wrong at its end.
    """
    if len(text) <= MAX_MESSAGE:
        return text
    head = text[: MAX_MESSAGE - _MESSAGE_TAIL - 1]
    return f"{head}…{text[-_MESSAGE_TAIL:]}"


def _is_integer(value: Any, *, whole_decimals: bool) -> bool:
    if isinstance(value, int):
        return not isinstance(value, bool)
    return isinstance(value, Decimal) and whole_decimals and value == value.to_integral_value()


def matches_pattern(source: str, text: str) -> bool:
    """Return True if a pattern is found in a text; paid for.

    Raises ``PatternError`` and ``TooMuchWorkError``.
    """
    expression = compile_pattern(source)
    current_work.get().spend(expression.price * len(text))
    return expression.matches(text)


def _pattern(
    _validator: Any, source: str, instance: Any, _schema: Any
) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not matches_pattern(source, instance):
        yield ValidationError(f"{instance!r} does not match {source!r}")


def _pattern_properties(
    validator: Any, patterns: Any, instance: Any, _schema: Any
) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return

    for source, subschema in patterns.items():
        for name, member in instance.items():
            if matches_pattern(source, name):
                yield from validator.descend(member, subschema, path=name, schema_path=source)


def _additional_properties(
    validator: Any, rule: Any, instance: Any, schema: Any
) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return

    named = schema.get("properties", {})
    patterns = schema.get("patternProperties", {})
    for name, member in instance.items():
        if name in named or any(matches_pattern(source, name) for source in patterns):
            continue
        yield from _not_allowed(validator, name, member, rule)


def _unevaluated_properties(
    validator: Any, rule: Any, instance: Any, schema: Any
) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return

    other_keywords = {**schema, "unevaluatedProperties": None}
    known = evaluated_keys(validator, instance, other_keywords, matches_pattern)
    for name, member in instance.items():
        if name not in known:
            yield from _not_allowed(validator, name, member, rule)


def _unevaluated_items(
    validator: Any, rule: Any, instance: Any, schema: Any
) -> Iterator[ValidationError]:
    if not isinstance(instance, list):
        return

    other_keywords = {**schema, "unevaluatedItems": None}
    known = evaluated_keys(validator, instance, other_keywords, matches_pattern)
    for index, item in enumerate(instance):
        if index not in known:
            yield from _not_allowed(validator, index, item, rule)


def _not_allowed(
    validator: Any, place: str | int, value: Any, rule: Any
) -> Iterator[ValidationError]:
    """Yield the violations of a member or item that only ``rule`` allows: a boolean or a schema."""
    if rule is False:
        yield ValidationError("is not allowed here", path=[place])
    else:
        yield from validator.descend(value, rule, path=place)


def _unique_items(
    _validator: Any, wanted: bool, instance: Any, _schema: Any
) -> Iterator[ValidationError]:
    """Check in linear time.

    The library compares every item with every other one, and a model chooses how many there are.
    """
    if not wanted or not isinstance(instance, list):
        return

    distinct = set(map(_freeze, instance))
    if len(distinct) < len(instance):
        yield ValidationError("items are not unique")


def _enum(_validator: Any, values: Any, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    enums = current_work.get().enums
    if id(values) not in enums:
        enums[id(values)] = frozenset(map(_freeze, values))

    if _freeze(instance) not in enums[id(values)]:
        yield ValidationError(f"{instance!r} is not one of {values}")


def _const(_validator: Any, value: Any, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    if _freeze(instance) != _freeze(value):
        yield ValidationError(f"{value} was expected")


def _freeze(value: Any) -> Hashable:
    """Return a hashable value that equals another's if JSON Schema takes the two for equal.

    So 1 equals 1.0, and does not equal true.
    """
    if isinstance(value, dict):
        current_work.get().spend(1 + len(value))
        return "{", frozenset((name, _freeze(member)) for name, member in value.items())
    if isinstance(value, list):
        current_work.get().spend(1 + len(value))
        return "[", *map(_freeze, value)
    return type(value) is bool, value


def _multiple_of(
    _validator: Any, factor: Any, instance: Any, _schema: Any
) -> Iterator[ValidationError]:
    if is_number(instance) and not is_multiple(instance, factor):
        yield ValidationError(f"{instance!r} is not a multiple of {factor!r}")


type Matches = Callable[[str, str], bool]
"""A function that returns whether a pattern (the first text) is found in a name."""


def evaluated_keys(validator: Any, instance: Any, schema: Any, matches: Matches) -> set[str | int]:
    """Return the names, or indexes, that a schema has looked at: ``unevaluated…`` is about others.

    ``schema`` has accepted the value, except for what is asked about. The library's own function
    returns a list, which is searched for each member, and knows Python's regular expressions only.
    """
    if not isinstance(schema, dict):
        return set()

    if isinstance(instance, dict):
        keys = _evaluated_members(instance, schema, matches)
    else:
        keys = _evaluated_items(validator, instance, schema)

    for within, part in _applied_subschemas(validator, instance, schema):
        keys |= evaluated_keys(within, instance, part, matches)
    return keys


def _evaluated_members(
    instance: dict[str, Any], schema: dict[str, Any], matches: Matches
) -> set[str | int]:
    for keyword in ("additionalProperties", "unevaluatedProperties"):
        if schema.get(keyword) is not None:
            return set(instance)

    keys: set[str | int] = {*(schema.get("properties", {}).keys() & instance.keys())}
    patterns = schema.get("patternProperties", {})
    for name in instance:
        if any(matches(source, name) for source in patterns):
            keys.add(name)
    return keys


def _evaluated_items(validator: Any, instance: list[Any], schema: dict[str, Any]) -> set[str | int]:
    everything = range(len(instance))
    items = schema.get("items")
    if schema.get("unevaluatedItems") is not None or isinstance(items, dict | bool):
        return set(everything)

    if isinstance(items, list):  # draft 2019-09
        if schema.get("additionalItems") is not None:
            return set(everything)
        return set(everything[: len(items)])

    keys: set[str | int] = set(everything[: len(schema.get("prefixItems", ()))])
    if "contains" in schema and "prefixItems" in validator.VALIDATORS:  # since draft 2020-12
        wanted = validator.evolve(schema=schema["contains"])
        for index in everything:
            if index not in keys and wanted.is_valid(instance[index]):
                keys.add(index)
    return keys


def _applied_subschemas(
    validator: Any, instance: Any, schema: dict[str, Any]
) -> Iterator[tuple[Any, Any]]:
    """Yield the subschemas that hold for the same value, each with its validator.

    These are the ones that the schema refers to, and those of its applicators that accept the
    value.
    """
    yield from _referenced_schemas(validator, schema)

    parts = [*schema.get("allOf", ()), *schema.get("anyOf", ()), *schema.get("oneOf", ())]
    for name, part in schema.get("dependentSchemas", {}).items():
        if name in instance:
            parts.append(part)
    if "if" in schema:
        condition = schema["if"]
        if validator.evolve(schema=condition).is_valid(instance):
            parts += [condition, schema.get("then")]
        else:
            parts.append(schema.get("else"))

    for part in parts:
        if isinstance(part, dict) and validator.evolve(schema=part).is_valid(instance):
            yield validator, part


def _referenced_schemas(validator: Any, schema: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    resolver = validator._resolver  # noqa: SLF001 — what the library's own keywords use
    targets = [resolver.lookup(schema[key]) for key in ("$ref", "$dynamicRef") if key in schema]
    if "$recursiveRef" in schema:
        targets.append(lookup_recursive_ref(resolver))

    for target in targets:
        yield validator.evolve(schema=target.contents, _resolver=target.resolver), target.contents


_MAX_DIGITS = 4000


class Number(Decimal):
    """A decimal whose ``repr`` is JSON, since messages quote values.

    JSON numbers are ``int`` or this, never ``float``.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


_INCOMPARABLE = Number("sNaN")
"""Stands for a number that can't be computed with, such as ``1e99999999999999999999``.

Every comparison with it raises ``ArithmeticError``.
"""


def parse_exact(text: str) -> Number:
    """Return a number of a JSON text that has a point or an exponent."""
    if len(text) > _MAX_DIGITS:
        return _INCOMPARABLE
    try:
        return Number(text)
    except InvalidOperation:
        return _INCOMPARABLE


def is_number(value: object) -> bool:
    return isinstance(value, int | Decimal | float) and not isinstance(value, bool)


def is_multiple(value: int | Decimal, factor: int | Decimal) -> bool:
    """Return True if ``value`` is a multiple, exactly: 19.99 is a multiple of 0.01.

    It counts digits and powers of ten, so that no power is written out. Raise ``ArithmeticError``.
    """
    digits, power = _digits_and_power(value)
    factor_digits, factor_power = _digits_and_power(factor)
    if digits == 0:
        return True

    # No digits end in a zero, so a factor with a higher power of ten does not divide them.
    if power < factor_power:
        return False
    return digits * pow(10, power - factor_power, factor_digits) % factor_digits == 0


def _digits_and_power(number: int | Decimal) -> tuple[int, int]:
    """Return ``digits`` and ``power`` of a number that is ± digits × 10^power.

    The digits end in no zero.
    """
    _, every, power = Decimal(number).as_tuple()
    if not isinstance(power, int):
        raise ArithmeticError("not a finite number")  # noqa: TRY004 — of its value, not of its type

    text = "".join(map(str, every)).lstrip("0")
    digits = text.rstrip("0")
    return int(digits or 0), power + len(text) - len(digits)


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
