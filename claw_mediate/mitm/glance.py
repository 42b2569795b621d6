"""The types of a message's parts, checked at a glance (bench/README.md has what it saves).

With each request and response mitmproxy compares every field with its annotation, which it takes apart anew each time. Here
that is done once. What is exactly of a type that a field may have passes; of all else mitmproxy decides as before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, get_args

from mitmproxy import http

_thorough: Callable[[Any], None] | None = getattr(http.MessageData, "__post_init__", None)
"""There is none where Python leaves assertions out (``-O``)."""
_MAY_BE = {
    kind: tuple((field.name, frozenset(get_args(field.type) or (field.type,))) for field in fields(kind))
    for kind in (http.RequestData, http.ResponseData)
}
_UNKNOWN = (("__class__", frozenset[Any]()),)
"""Of a kind of message that is not known here, nothing passes."""


def check(message: Any) -> None:
    """Raises ``TypeError`` where mitmproxy's own check does."""
    for name, kinds in _MAY_BE.get(type(message), _UNKNOWN):
        if type(getattr(message, name)) not in kinds:
            assert _thorough is not None
            _thorough(message)
            return


def choose(*, fast: bool) -> None:
    """Put this check in the place of mitmproxy's own, or put that back."""
    if _thorough is not None:
        http.MessageData.__post_init__ = check if fast else _thorough  # type: ignore[method-assign]
