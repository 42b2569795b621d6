"""What is left of a call in a conversation that has no room for all of it: its arguments and its status, in a line each.

The same call gives the same bytes every time. Nothing in them invites the model to call again: it may have been a write.
"""

from __future__ import annotations

from typing import Any

import msgspec

from claw_contract.base import JsonObject

SHORT = 256
"""Characters that stay as they are."""
_BEGINNING = 160


def arguments(text: str) -> JsonObject | None:
    """Arguments, as an object, by how they begin; None: they are short."""
    return None if len(text) <= SHORT else {"left_out": f"{len(text)} characters", "beginning": text[:_BEGINNING]}


def result(content: str) -> str:
    """A result envelope without its data; the code and status stay."""
    if len(content) <= SHORT:
        return content
    try:
        envelope = msgspec.json.decode(content, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        envelope = {}
    less: JsonObject = {"ok": envelope.get("ok") is True}
    if isinstance(error := envelope.get("error"), dict):
        less["error"] = {"code": error.get("code"), "message": str(error.get("message"))[:_BEGINNING]}
    if "status_code" in envelope:
        less["status_code"] = envelope["status_code"]
    return msgspec.json.encode(less | {"left_out": f"{len(content)} characters of an older result"}).decode()
