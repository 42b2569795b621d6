"""Durations in the syntax of Go (``24h``, ``1h30m``, ``500ms``): the windows of metadata.json.

Specification: docs/spec/contract.md.
"""

import re
from typing import Annotated, Final

from pydantic import AfterValidator

_SECONDS: Final = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
}
_PART = re.compile(r"([0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18})(ns|us|µs|μs|ms|s|m|h)")
_WHOLE = re.compile(rf"\+?(?:{_PART.pattern})+")


def parse_duration(text: str) -> float:
    """Return a duration in seconds. Raise ``ValueError`` if it is malformed or not above zero.

    >>> parse_duration("1h30m"), parse_duration("500ms"), parse_duration("1.5h")
    (5400.0, 0.5, 5400.0)
    """
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text))
    if _WHOLE.fullmatch(text) is None or seconds <= 0:
        raise ValueError("a window is a duration above zero such as 90s, 30m or 24h")
    return seconds


def _check_duration(text: str) -> str:
    parse_duration(text)
    return text


Duration = Annotated[str, AfterValidator(_check_duration)]
"""A duration above zero, as it was written."""
