"""The failure that a stream of chat completions tells of: ``data: {"error": …}``.

It stands for a response with the status that it means, so that keys rest and other providers are
asked as after any such response (``providers.failover``). Providers give the status as ``code``
(OpenRouter), as ``status``, or by a code or type of OpenAI's.
"""

from typing import Any, Final

import msgspec

from claw_mediate.dialects.base import FailedResponseError

_UNKNOWN: Final = 502
_STATUSES: Final = range(400, 600)
_BY_NUMERAL: Final = {str(status): status for status in _STATUSES}
_BY_NAME: Final = {
    "invalid_request_error": 400,
    "context_length_exceeded": 400,
    "content_filter": 400,
    "content_policy_violation": 400,
    "invalid_api_key": 401,
    "authentication_error": 401,
    "billing_error": 402,
    "insufficient_quota": 429,
    "permission_error": 403,
    "permission_denied": 403,
    "not_found_error": 404,
    "model_not_found": 404,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "tokens": 429,  # The type of OpenAI's limit of tokens
    "requests": 429,
    "overloaded_error": 529,
    "server_error": 500,
    "internal_server_error": 500,
    "service_unavailable": 503,
}
"""The statuses of responses that have these words as the code or the type of their error."""


def read_failure(document: dict[str, msgspec.Raw]) -> FailedResponseError:
    """Return the failure of an event, which is an error body or the error itself.

    Raise ``DecodeError`` or ``RecursionError`` for one that is no JSON.
    """
    raw = document.get("error")
    error = msgspec.json.decode(msgspec.json.encode(document) if raw is None else raw)
    if not isinstance(error, dict):
        error = {"message": str(error), "type": "api_error", "param": None, "code": None}

    top_level = document.get("status", document.get("status_code", msgspec.Raw(b"null")))
    candidates = (error.get("status"), error.get("code"), error.get("type"))
    statuses = (_read_status(word) for word in (*candidates, msgspec.json.decode(top_level)))
    status = next(filter(None, statuses), _UNKNOWN)
    return FailedResponseError(status, msgspec.json.encode({"error": error}))


def _read_status(word: Any) -> int | None:
    """Return the status that a code, a type or a status means; None for one that says nothing."""
    if isinstance(word, str):
        return _BY_NUMERAL.get(word) or _BY_NAME.get(word.lower())

    is_status = type(word) is int and word in _STATUSES
    return word if is_status else None
