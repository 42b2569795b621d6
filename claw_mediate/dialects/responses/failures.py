"""The failures that a response of the Responses API tells of, in its body or in its stream.

docs/spec/responses.md section 5.
"""

from typing import Any, Final

from claw_mediate.dialects.base import FailedResponseError
from claw_mediate.dialects.bodies import encode

_STATUS: Final = {"rate_limit_exceeded": 429, "insufficient_quota": 402, "server_error": 502}
_REQUEST_ERRORS: Final = ("invalid", "context", "image", "policy")
"""Words of those other error codes that are the request's fault."""


def failed_response(error: Any) -> FailedResponseError:
    """Return the failure that an error object tells of, with a status by its code.

    ``error`` is decoded JSON. Anything but an object is a failure of the server.
    """
    details = error if isinstance(error, dict) else {}
    code = str(details.get("code") or "server_error")
    message = str(details.get("message") or "the provider failed")

    if code in _STATUS:
        status = _STATUS[code]
    elif any(word in code for word in _REQUEST_ERRORS):
        status = 400
    else:
        status = 502

    shown = {"message": message, "type": "api_error", "param": None, "code": code}
    return FailedResponseError(status, encode({"error": shown}))
