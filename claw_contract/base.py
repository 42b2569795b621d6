"""The base of every model of the contract."""

from typing import Any

from pydantic import BaseModel, ConfigDict

type JsonObject = dict[str, Any]
"""A JSON object as plain Python data."""


class Contract(BaseModel):
    """A model that is strict (a string is never a number), frozen, and tolerant of unknown keys."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", populate_by_name=True)


def error_line(error: Exception) -> str:
    """Return one line for a log: the place and the reason of an error, and never the invalid value.

    >>> error_line(ValueError("not JSON"))
    'not JSON'
    """
    errors = getattr(error, "errors", None)
    if errors is None:  # no error of pydantic's
        return str(error)

    first, *others = errors(include_input=False, include_url=False, include_context=False)
    place = ".".join(str(part) for part in first["loc"]) or "document"
    more = f" (and {len(others)} more)" if others else ""
    return f"{place}: {first['msg']}{more}"
