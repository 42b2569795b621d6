"""The one configuration that every model of the contract shares."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

type JsonObject = dict[str, Any]
"""A JSON object as plain Python data."""


class Contract(BaseModel):
    """Strict (a string is never taken for a number), frozen, and tolerant of keys that it does not know."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", populate_by_name=True)


def error_line(error: Exception) -> str:
    """One line for a log: where a document is wrong and why, and never the value that was found there.

    >>> error_line(ValueError("not JSON"))
    'not JSON'
    """
    errors = getattr(error, "errors", None)
    if errors is None:
        return str(error)
    first, *rest = errors(include_input=False, include_url=False, include_context=False)
    place = ".".join(str(part) for part in first["loc"]) or "document"
    more = f" (and {len(rest)} more)" if rest else ""
    return f"{place}: {first['msg']}{more}"
