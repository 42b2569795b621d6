"""Text that no encoder takes, written all the same: Python reads bytes of a peer's that are no UTF-8 as surrogates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec


def encode_json(document: Any) -> bytes:
    r"""JSON, whatever text is in it.

    >>> encoded({"path": "/v1/\udcff", "tools": ["caf\u00e9"]})
    b'{"path":"/v1/\\\\udcff","tools":["caf\xc3\xa9"]}'
    """
    try:
        return msgspec.json.encode(document)
    except UnicodeEncodeError:
        return msgspec.json.encode(escape_surrogates(document))


def escape_surrogates(value: Any) -> Any:
    """The same, with surrogates spelled out: JSON's own escape for them is one that strict readers refuse."""
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, Mapping):
        return {escape_surrogates(name): escape_surrogates(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [escape_surrogates(each) for each in value]
    return value
