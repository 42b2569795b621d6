"""Error bodies in a dialect's own shape, for every path of a governed host; and the message in a provider's error body."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from claw_mediate.core.api_paths import is_anthropic

_OPENAI_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
}
_ANTHROPIC_TYPES = {
    **_OPENAI_TYPES,
    402: "billing_error",
    413: "request_too_large",
    504: "timeout_error",
    529: "overloaded_error",
}


def build_error_body(
    path: str, status: int, code: str, message: str, more: Mapping[str, object] | None = None
) -> bytes:
    """Return an error body: Anthropic's shape on its paths, else OpenAI's. ``more``: members beside ``error``."""
    if is_anthropic(path):
        error: dict[str, object] = {"type": _ANTHROPIC_TYPES.get(status, "api_error"), "message": message}
        return json.dumps({"type": "error", "error": error, **(more or {})}).encode()
    error = {"message": message, "type": _OPENAI_TYPES.get(status, "api_error"), "param": None, "code": code}
    return json.dumps({"error": error, **(more or {})}).encode()


class _Error(msgspec.Struct):
    error: Any


def read_error_message(body: bytes) -> str:
    """Return the message of an error body of any dialect; "" where there is none."""
    try:
        error = msgspec.json.decode(body, type=_Error).error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return ""
    words = error.get("message") if isinstance(error, dict) else error
    return words if isinstance(words, str) else ""
