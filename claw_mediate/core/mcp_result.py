"""The result of a call over MCP, as the model receives it (docs/spec/mcp.md, "Tools over MCP").

Pure. The first row that holds decides.

    the server's answer               the model's result
    ────────────────────────────────  ────────────────────────────────────────────────────────────
    a JSON-RPC error                  ``mcp_error``, with its code and message
    ``resultType: input_required``    ``tool_error``: in a turn, nobody can be asked
    ``isError``                       ``tool_error``, with the content as ``details``. If there is
                                        structured content and text, the text is the message
    ``structuredContent``             ``data`` is that JSON, in its own bytes
    ``content`` only                  ``data`` is the text of its parts. Other parts are named,
                                        with type and size

Images within the limit are added to a result, for dialects whose results can hold images.
"""

import base64
from collections.abc import Iterator
from typing import Any

import msgspec

from claw_contract.redaction.redactor import Redactor
from claw_mcp.call_result import COMPLETE, CallResult, describe, read_part, read_result
from claw_mcp.protocol import RpcError, RpcMessage
from claw_mediate.core import tool_result
from claw_mediate.core.types import Image, ToolCall, ToolResult

# Those that the models' APIs accept
_IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_NULL = b"null"
_DEFAULT_ERROR = "The tool reports an error."
_MAX_TYPE = 200  # Characters of a result's type that are shown


def read_call_result(
    call: ToolCall, message: RpcMessage, redactor: Redactor, limit: int
) -> ToolResult | None:
    """Return the result of a call, given the server's response.

    None for a response that is no result of a tool. At most ``limit`` bytes of it are shown.
    """
    error = message.rpc_error()
    if error is not None:
        return _mcp_error(call, error, redactor, limit)

    result = read_result(message.result)
    if result is None:
        return None

    if result.result_type != COMPLETE:
        return _unfinished(call, result.result_type, redactor)

    if result.is_error:
        words = _read_words(result, redactor)
        if words:
            return _error_in_words(call, words, result, redactor, limit)

    data, size = _read_data(result, redactor, limit)
    truncation = _truncation(size, limit)
    if result.is_error:
        return _tool_error(call, _DEFAULT_ERROR, data, truncation)

    envelope: dict[str, Any] = {"ok": True}
    if data is not None:
        envelope["data"] = data
    content = msgspec.json.encode(envelope | truncation)
    images = tuple(_find_images(result, redactor, limit - min(size, limit)))
    return ToolResult(call, content, ok=True, ran=True, images=images)


def _truncation(size: int, limit: int) -> dict[str, Any]:
    """Return the members of an envelope that say that its data was cut."""
    return {"truncated": True, "original_bytes": size} if size > limit else {}


def _read_data(result: CallResult, redactor: Redactor, limit: int) -> tuple[Any, int]:
    """Return the first ``limit`` bytes of an answer, without secrets, and the size of the whole."""
    if _has_structure(result):
        clear = redactor.document(bytes(result.structured_content))
        data, _ = tool_result.read_body(clear, len(clear), limit)
        return data, len(clear)

    clear = redactor.document(describe(result).encode(errors="replace"))
    return tool_result.utf8_prefix(clear, limit) if clear else None, len(clear)


def _has_structure(result: CallResult) -> bool:
    return bytes(result.structured_content) not in (b"", _NULL)


def _read_words(result: CallResult, redactor: Redactor) -> bytes:
    """Return the text of an answer that also has structured content.

    b"" if it has no text, no structured content, or a text that is only that content as JSON.
    """
    if not _has_structure(result):
        return b""

    text = describe(result).strip()
    if not text or _is_same_json(text, bytes(result.structured_content)):
        return b""

    return redactor.document(text.encode(errors="replace"))


def _is_same_json(text: str, document: bytes) -> bool:
    """Return True if the text is that JSON again.

    Servers write it twice, for clients of older revisions.
    """
    try:
        return bool(msgspec.json.decode(text) == msgspec.json.decode(document))
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return False


def _error_in_words(
    call: ToolCall, words: bytes, result: CallResult, redactor: Redactor, limit: int
) -> ToolResult:
    """Return the error with its words as the message, and its structured content as ``details``."""
    room = max(limit - len(words), 0)
    details, details_size = _read_data(result, redactor, room)

    truncation = _truncation(len(words) + details_size, limit)
    if truncation and not details:
        details = None  # Nothing is left of them

    return _tool_error(call, tool_result.utf8_prefix(words, limit), details, truncation)


def _tool_error(
    call: ToolCall, message: str, details: Any, truncation: dict[str, Any]
) -> ToolResult:
    error = {"code": tool_result.TOOL_ERROR, "message": message}
    if details is not None:
        error["details"] = details

    content = msgspec.json.encode({"ok": False, "error": error, **truncation})
    return ToolResult(call, content, ok=False, code=tool_result.TOOL_ERROR, ran=True)


def _find_images(result: CallResult, redactor: Redactor, room: int) -> Iterator[Image]:
    """Yield the images that models accept, as long as they fit into ``room`` bytes of base64.

    An image whose data contains a secret is left out.
    """
    for raw in result.content:
        part = read_part(raw)
        if part is None or not _is_base64(part.data):
            continue

        room -= len(part.data)
        is_image = part.type == "image" and part.mime_type in _IMAGE_TYPES
        if is_image and room >= 0 and redactor.text(part.data) == part.data:
            yield Image(part.mime_type, part.data)


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except ValueError:
        return False
    return True


def _mcp_error(call: ToolCall, error: RpcError, redactor: Redactor, limit: int) -> ToolResult:
    clear = redactor.document(error.message.encode(errors="replace"))
    details = {"code": error.code, "message": tool_result.utf8_prefix(clear, limit)}
    message = "The server refused the call, or failed in it."
    return tool_result.failure(call, tool_result.MCP_ERROR, message, details=details, ran=True)


def _unfinished(call: ToolCall, result_type: str, redactor: Redactor) -> ToolResult:
    if result_type == "input_required":
        message = (
            "The tool asks for more input before it goes on, and nobody can be asked in this turn."
        )
    else:
        shown_type = redactor.text(result_type[:_MAX_TYPE])
        message = f"The tool did not complete: its result is {shown_type!r}."

    return tool_result.failure(call, tool_result.TOOL_ERROR, message, ran=True)
