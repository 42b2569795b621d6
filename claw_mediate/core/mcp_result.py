"""The result of a call over MCP, as the model receives it (docs/spec/mcp.md, "Tools over MCP").

Pure.

the server's answer              the model's result
───────────────────────────────
────────────────────────────────────────────────────────────────────── ``structuredContent``
``data`` is that JSON, in its own bytes ``content`` only                 ``data`` is the text of its
parts; other parts are named with type and size images within the limit          stand behind it, in
dialects whose results hold images ``isError``                      ``tool_error``, with the same as
``details``; where it has both, the text is its message ``resultType: input_required``
``tool_error``: nobody can be asked a JSON-RPC error                 ``mcp_error``, with its code
and message
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

_IMAGE_TYPES = frozenset(
    {"image/png", "image/jpeg", "image/gif", "image/webp"}
)  # Those that the models' APIs take
_NULL = b"null"
_SAYS_NOTHING = "The tool reports an error."
_MAX_TYPE = 200  # Characters of a result's type that are shown


def read_call_result(
    call: ToolCall, message: RpcMessage, redactor: Redactor, limit: int
) -> ToolResult | None:
    """Return the result of a call by the server's response; None for a response
    that is no result of a tool.

    At most ``limit`` bytes of the answer are shown.
    """
    if (error := message.rpc_error()) is not None:
        return _mcp_error(call, error, redactor, limit)
    result = read_result(message.result)
    if result is None:
        return None
    if result.result_type != COMPLETE:
        return _unfinished(call, result.result_type, redactor)
    if result.is_error and (words := _read_words(result, redactor)):
        return _error_in_words(call, words, result, redactor, limit)
    data, size = _read_data(result, redactor, limit)
    cut = {"truncated": True, "original_bytes": size} if size > limit else {}
    if not result.is_error:
        content = msgspec.json.encode(
            {"ok": True, **({} if data is None else {"data": data}), **cut}
        )
        images = tuple(_find_images(result, redactor, limit - min(size, limit)))
        return ToolResult(call, content, ok=True, ran=True, images=images)
    return _tool_error(call, _SAYS_NOTHING, data, cut)


def _read_data(result: CallResult, redactor: Redactor, limit: int) -> tuple[Any, int]:
    """Return what is shown of an answer, without secrets and cut, and the size of the whole."""
    if _has_structure(result):
        clear = redactor.document(bytes(result.structured_content))
        return tool_result.read_body(clear, len(clear), limit)[0], len(clear)
    clear = redactor.document(describe(result).encode(errors="replace"))
    return tool_result.utf8_prefix(clear, limit) if clear else None, len(clear)


def _has_structure(result: CallResult) -> bool:
    return bytes(result.structured_content) not in (b"", _NULL)


def _read_words(result: CallResult, redactor: Redactor) -> bytes:
    """Return the text that stands beside structured content; b"" where it only
    repeats that content as JSON.
    """
    text = describe(result).strip() if _has_structure(result) else ""
    if not text or _is_same_json(text, bytes(result.structured_content)):
        return b""
    return redactor.document(text.encode(errors="replace"))


def _is_same_json(text: str, document: bytes) -> bool:
    """Return whether the text is that JSON again, as servers write it for clients
    of older revisions.
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
    size = len(words) + details_size
    cut = {"truncated": True, "original_bytes": size} if size > limit else {}
    return _tool_error(
        call, tool_result.utf8_prefix(words, limit), details or None if cut else details, cut
    )


def _tool_error(call: ToolCall, message: str, details: Any, cut: dict[str, Any]) -> ToolResult:
    failure = {
        "code": tool_result.TOOL_ERROR,
        "message": message,
        **({} if details is None else {"details": details}),
    }
    content = msgspec.json.encode({"ok": False, "error": failure, **cut})
    return ToolResult(call, content, ok=False, code=tool_result.TOOL_ERROR, ran=True)


def _find_images(result: CallResult, redactor: Redactor, room: int) -> Iterator[Image]:
    """Yield the images that models take, as long as they fit into ``room`` bytes
    beside the text.
    """
    for raw in result.content:
        part = read_part(raw)
        if part is None or not _is_base64(part.data):
            continue
        room -= len(part.data)
        if (
            part.type == "image"
            and part.mime_type in _IMAGE_TYPES
            and room >= 0
            and redactor.text(part.data) == part.data
        ):
            yield Image(part.mime_type, part.data)


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except ValueError:
        return False
    return True


def _mcp_error(call: ToolCall, error: RpcError, redactor: Redactor, limit: int) -> ToolResult:
    said = tool_result.utf8_prefix(redactor.document(error.message.encode(errors="replace")), limit)
    details = {"code": error.code, "message": said}
    message = "The server refused the call, or failed in it."
    return tool_result.failure(call, tool_result.MCP_ERROR, message, details=details, ran=True)


def _unfinished(call: ToolCall, result_type: str, redactor: Redactor) -> ToolResult:
    message = (
        "The tool asks for more input before it goes on, and nobody can be asked in this turn."
    )
    if result_type != "input_required":
        message = (
            f"The tool did not complete: its result is {redactor.text(result_type[:_MAX_TYPE])!r}."
        )
    return tool_result.failure(call, tool_result.TOOL_ERROR, message, ran=True)
