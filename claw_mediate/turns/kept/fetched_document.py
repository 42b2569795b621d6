"""A document that the proxy fetches itself, because it edits the document as a whole.

The document, or the failure to fetch it, becomes the runner's answer.
"""

import re
from collections.abc import Awaitable
from http import HTTPStatus

from msgspec.structs import replace

from claw_mediate.core.http import build_error_body
from claw_mediate.dialects.base import UnreadableRequestError, UnreadableResponseError
from claw_mediate.providers.client import BAD_REPLY, ProviderResponse, TransportFailure
from claw_mediate.turns.context import TurnResult
from claw_mediate.turns.kept.ownership import STATE_UNAVAILABLE
from claw_state.url import StoreError

_SECONDS = re.compile(r"[0-9]{1,9}", re.ASCII)


class FailedFetchError(Exception):
    """The provider's answer is no success, or there is none."""

    def __init__(self, result: ProviderResponse | TransportFailure) -> None:
        super().__init__("the provider gave no answer that can be shown")
        self.result = result


def whole_body(result: ProviderResponse | TransportFailure) -> bytes:
    """Return the body of a success. Raise ``FailedFetchError`` and ``UnreadableResponseError``."""
    if isinstance(result, TransportFailure) or result.status >= HTTPStatus.BAD_REQUEST:
        raise FailedFetchError(result)
    if result.status in {HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED}:
        raise FailedFetchError(replace(result, body=b""))

    # A part of an answer can't be edited, and what else it may be is not known.
    if result.status != HTTPStatus.OK:
        raise UnreadableResponseError(f"the provider answered with status {result.status}")
    return result.body


async def answer_with(path: str, document: Awaitable[bytes]) -> TurnResult:
    """Return a document as the answer to a request, or its failure in the form of ``path``."""
    try:
        return TurnResult(200, ok=True, body=await document)
    except FailedFetchError as error:
        match error.result:
            case ProviderResponse(status, content_type, body, retry_after):
                # A provider can say anything in its headers.
                is_json = "json" in content_type.lower()
                return TurnResult(
                    status,
                    ok=False,
                    body=body,
                    content_type="application/json" if is_json else "application/octet-stream",
                    retry_after=retry_after if _SECONDS.fullmatch(retry_after) else "",
                )
            case TransportFailure(code, message, status, retry_after):
                return _error_result(path, status, code, message, retry_after)
    except UnreadableResponseError as error:
        return _error_result(path, 502, BAD_REPLY, str(error))
    except UnreadableRequestError as error:
        return _error_result(path, 400, "invalid_request", str(error))
    except StoreError:
        message = "what the agent may read of it can't be looked up at the moment"
        return _error_result(path, 503, STATE_UNAVAILABLE, message)


def _error_result(
    path: str, status: int, code: str, message: str, retry_after: str = ""
) -> TurnResult:
    body = build_error_body(path, status, code, message)
    return TurnResult(status, ok=False, body=body, code=code, retry_after=retry_after)
