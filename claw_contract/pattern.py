"""Patterns of JSON Schemas: ECMA-262 regular expressions, searched in bounded time.

The reasons are in docs/decisions/0010.

A pattern runs on a linear engine if possible. Look-around and back-references need backtracking,
which is counted and limited. A pattern that neither engine supports is rejected when the schema is
read, not when a model calls.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jsonschema_rs

_TINY = 32 * 1024
_SMALL = 256 * 1024
_LARGE = 10 * 1024 * 1024
"""Limits of a compiled pattern in bytes.

Counted repetitions of Unicode classes are large: ``^\\p{L}{1,100}$`` takes megabytes.
"""
_MAX_BACKTRACKS = 10_000
_ENGINES = (
    (1, jsonschema_rs.RegexOptions(size_limit=_TINY)),
    (10, jsonschema_rs.RegexOptions(size_limit=_SMALL)),
    (400, jsonschema_rs.RegexOptions(size_limit=_LARGE)),
    (20, jsonschema_rs.FancyRegexOptions(backtrack_limit=_MAX_BACKTRACKS, size_limit=_SMALL)),
)
"""Engines in the order in which they are tried, each with the price of a character."""
_ESCAPE = re.compile(
    r"\\(?:u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})|0(?![0-9])|.)", re.IGNORECASE | re.DOTALL
)
_VALUES = frozenset({"const", "default", "enum", "examples"})
"""Keywords of a schema that hold values and no schemas: a ``pattern`` in them is none."""


class PatternError(ValueError):
    """A pattern that can't be used, or a text that can't be searched."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A compiled pattern."""

    source: str
    price: int
    """The time for one character in the worst case, roughly in microseconds."""
    engine: jsonschema_rs.Validator

    def matches(self, text: str) -> bool:
        """Return True if the pattern matches anywhere in the text.

        Raise ``PatternError`` after too much backtracking, or if the text is not valid Unicode.
        """
        try:
            if self.engine.is_valid(text):
                return True
            error = next(self.engine.iter_errors(text))
        except ValueError as reason:
            raise PatternError("the text holds a lone surrogate") from reason
        if not isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Pattern):
            raise PatternError("the search takes too many steps")
        return False


@lru_cache(maxsize=256)
def compile_pattern(source: str) -> Pattern:
    """Compile a pattern. Raise ``PatternError``."""
    rust = _ESCAPE.sub(_as_rust, source)
    for price, options in _ENGINES:
        try:
            engine = jsonschema_rs.validator_for({"pattern": rust}, pattern_options=options)
        except ValueError:
            continue
        return Pattern(source, price, engine)
    raise PatternError(f"{source[:100]!r} is no regular expression of ECMA-262, or too large")


def _as_rust(escape: re.Match[str]) -> str:
    """Translate the two escapes that the engine does not support: NUL, and a surrogate pair."""
    high, low = escape.groups()
    if high is not None:
        high_bits = int(high, 16) - 0xD800
        low_bits = int(low, 16) - 0xDC00
        return f"\\u{{{0x10000 + (high_bits << 10) + low_bits:x}}}"
    return r"\x00" if escape[0] == r"\0" else escape[0]


def find_patterns(
    schema: Any, at: tuple[str | int, ...] = ()
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield the path and source of every pattern in a schema.

    Patterns below a property that is named like one of ``_VALUES`` are missed; they are rejected
    when they are used.
    """
    parts: Iterable[tuple[str | int, Any]] = ()
    if isinstance(schema, dict):
        source = schema.get("pattern")
        if isinstance(source, str):
            yield (*at, "pattern"), source

        by_pattern = schema.get("patternProperties")
        if isinstance(by_pattern, dict):
            for source in by_pattern:
                yield (*at, "patternProperties", source), source
        parts = schema.items()
    elif isinstance(schema, list):
        parts = enumerate(schema)

    for part, value in parts:
        if part not in _VALUES:
            yield from find_patterns(value, (*at, part))
