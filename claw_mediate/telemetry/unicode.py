"""Text that no encoder takes, written all the same: Python reads bytes of a peer's that are no UTF-8 as surrogates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec


def encoded(document: Any) -> bytes:
    r"""JSON, whatever text is in it.

    >>> encoded({"path": "/v1/\udcff", "tools": ["caf\u00e9"]})
    b'{"path":"/v1/\\\\udcff","tools":["caf\xc3\xa9"]}'
    """
    try:
        return msgspec.json.encode(document)
    except UnicodeEncodeError:
        return msgspec.json.encode(well_formed(document))


def well_formed(value: Any) -> Any:
    """The same, with surrogates spelled out: JSON's own escape for them is one that strict readers refuse."""
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, Mapping):
        return {well_formed(name): well_formed(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [well_formed(each) for each in value]
    return value
