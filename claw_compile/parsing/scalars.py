"""What a plain scalar means: YAML 1.2's core schema, and nothing more.

``on``, ``yes`` and ``22:22`` are strings (YAML 1.1 would make them true, true and 1342). JSON's literals are a subset.
"""

from __future__ import annotations

import re

_INT = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEX = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: dict[str, bool | float | None] = (
    dict.fromkeys(("", "~", "null", "Null", "NULL"))
    | dict.fromkeys(("true", "True", "TRUE"), True)
    | dict.fromkeys(("false", "False", "FALSE"), False)
    | dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf"))
    | dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf"))
    | dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan"))
)
MOST_DIGITS = 400
"""A longer number stays a string; Python refuses to convert some thousand digits, and nobody means them."""


def typed(text: str) -> str | int | float | bool | None:
    """The value of a plain scalar.

    >>> typed("on"), typed("4000:22"), typed("0x10"), typed("1e3"), typed("~")
    ('on', '4000:22', 16, 1000.0, None)
    """
    if text in _WORDS:
        return _WORDS[text]
    if len(text) > MOST_DIGITS:
        return text
    if _INT.fullmatch(text):
        return int(text)
    if _OCTAL.fullmatch(text):
        return int(text, 8)
    if _HEX.fullmatch(text):
        return int(text, 16)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text
