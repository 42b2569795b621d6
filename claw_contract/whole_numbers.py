"""Whole numbers that somebody wrote as text.

Python's ``int`` raises ``ValueError`` for thousands of digits, and takes digits of any script.
"""

import re
from typing import Final

MAX_INT32: Final = 2**31 - 1
_MAX: Final = 10**18 - 1
_DIGITS = re.compile(r"[0-9]{1,18}")


def whole_number(text: str, maximum: int = _MAX) -> int | None:
    """Return the number that ASCII digits write; None for any other text, or above the maximum.

    >>> whole_number("007"), whole_number("-1"), whole_number("65536", 65535)
    (7, None, None)
    """
    if _DIGITS.fullmatch(text) is None:
        return None

    number = int(text)
    return number if number <= maximum else None
