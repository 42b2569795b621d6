"""Refusals in the dialect's own shape, for every path of a governed host."""

from __future__ import annotations

import json
from collections.abc import Mapping

_OPENAI_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
}
ANTHROPIC_PATHS = ("/messages", "/messages/count_tokens")
_ANTHROPIC_TYPES = {**_OPENAI_TYPES, 413: "request_too_large"}


def refusal(path: str, status: int, code: str, message: str, more: Mapping[str, object] | None = None) -> bytes:
    """An error body: Anthropic's shape below ``/messages``, OpenAI's everywhere else. ``more``: members beside ``error``."""
    if path.partition("?")[0].rstrip("/").endswith(ANTHROPIC_PATHS):
        error: dict[str, object] = {"type": _ANTHROPIC_TYPES.get(status, "api_error"), "message": message}
        return json.dumps({"type": "error", "error": error, **(more or {})}).encode()
    error = {"message": message, "type": _OPENAI_TYPES.get(status, "api_error"), "param": None, "code": code}
    return json.dumps({"error": error, **(more or {})}).encode()
