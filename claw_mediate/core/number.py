"""Numbers of JSON, exact: ``int``, or ``Number`` for what has a point or an exponent. Never ``float``."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

_MOST_DIGITS = 4000


class Number(Decimal):
    """A decimal that is written as JSON writes it: messages quote values."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


_BEYOND = Number("sNaN")
"""Beyond all computing (``1e99999999999999999999``): every comparison with it raises ``ArithmeticError``."""


def exact(text: str) -> Number:
    """A number of a JSON text that has a point or an exponent."""
    try:
        return Number(text) if len(text) <= _MOST_DIGITS else _BEYOND
    except InvalidOperation:
        return _BEYOND


def is_number(value: object) -> bool:
    return isinstance(value, int | Decimal | float) and not isinstance(value, bool)


def is_multiple(value: int | Decimal, factor: int | Decimal) -> bool:
    """By digits and powers of ten: exact (19.99 is a multiple of 0.01), and no power is ever written out.

    Raises ``ArithmeticError``.
    """
    digits, power = _parts(value)
    of_digits, of_power = _parts(factor)
    # The digits end in no zero, so that a factor with a higher power of ten can't go into them.
    return digits == 0 or (power >= of_power and digits * pow(10, power - of_power, of_digits) % of_digits == 0)


def _parts(number: int | Decimal) -> tuple[int, int]:
    """``digits`` and ``power`` of a number that is ± digits × 10^power; the digits end in no zero."""
    _, every, power = Decimal(number).as_tuple()
    if not isinstance(power, int):
        raise ArithmeticError("not a finite number")  # noqa: TRY004 — of its value, not of its type
    text = "".join(map(str, every)).lstrip("0")
    digits = text.rstrip("0")
    return int(digits or 0), power + len(text) - len(digits)
