"""The MCP result of a call (docs/spec/mcp.md "The broker"). Pure.

success   the data as text, and as ``structuredContent`` where it is an object; then the images
          of an MCP server
failure   ``isError``, and the text ``{"code", "message", "details"?}``
a cut     a second text says so
"""

from typing import Any

import msgspec

from claw_mediate.core.types import ToolResult

_NO_DATA = msgspec.Raw(b"null")


class _Envelope(msgspec.Struct):
    """A result as ``core/tool_result.py`` writes it.

    The data keeps its own bytes, so that no number is rounded.
    """

    ok: bool
    data: msgspec.Raw = _NO_DATA
    error: msgspec.Raw = _NO_DATA
    truncated: bool = False
    original_bytes: int = 0


class _Error(msgspec.Struct, omit_defaults=True):
    code: str
    message: str
    details: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_envelope = msgspec.json.Decoder(_Envelope)
_error = msgspec.json.Decoder(_Error)


def write_answer(result: ToolResult) -> bytes:
    """Return the ``CallToolResult`` of a call, as JSON."""
    envelope = _envelope.decode(result.content)
    content: list[dict[str, str]] = []
    answer: dict[str, Any] = {"content": content}

    if envelope.ok:
        data = bytes(envelope.data)
        if data != b"null":
            content.append(_text(_as_text(data)))
        if data[:1] == b"{":
            answer["structuredContent"] = envelope.data
        content += [
            {"type": "image", "data": image.data, "mimeType": image.media_type}
            for image in result.images
        ]
    else:
        error = msgspec.json.encode(_error.decode(envelope.error))
        content.append(_text(error.decode()))
        answer["isError"] = True

    if envelope.truncated:
        note = f"[cut: this is the beginning of a result of {envelope.original_bytes} bytes]"
        content.append(_text(note))
    return msgspec.json.encode(answer)


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def _as_text(data: bytes) -> str:
    """Return data as text: a JSON string without its quotes, anything else as JSON."""
    return str(msgspec.json.decode(data)) if data[:1] == b'"' else data.decode()
