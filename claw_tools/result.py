"""Results of calls, as MCP carries them (docs/spec/tools-host.md "Results").

Rules. A result that is too long is still valid JSON: its largest member is cut to its beginning,
and it says ``truncated`` and ``original_bytes``. The limit counts the bytes of the text block,
which is what leaves the host. That block and ``structuredContent`` are the same JSON. The time is
linear in the size, whatever the result is.
"""

from bisect import bisect_right
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, NamedTuple

import msgspec

from claw_tools.errors import ErrorCode, ToolError

MAX_MESSAGE: Final = 2_048  # Bytes of an error's message
_encode = msgspec.json.Encoder(decimal_format="number", enc_hook=Decimal).encode
"""The hook is for subclasses of ``Decimal``."""
_reader = msgspec.json.Decoder(msgspec.Raw)
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])


class FittedResult(NamedTuple):
    """A result as JSON, and its size before it was cut."""

    content: bytes
    original_bytes: int

    @property
    def is_truncated(self) -> bool:
        return len(self.content) < self.original_bytes


def fit(data: Any, limit: int) -> FittedResult:
    """Return JSON data as an object within ``limit`` bytes, which is 1 KiB or more.

    What is no object becomes the member ``result``.

    Raise ``ToolError`` for what is no JSON data.
    """
    try:
        # What was written is read again: a ``Raw`` may hold anything, and a ``Decimal`` may be NaN.
        content = bytes(_reader.decode(_encode(data)))
        if content[:1] != b"{":
            content = _encode({"result": msgspec.Raw(content)})

        fitted = content if len(content) <= limit else _cut(content, limit)
        return FittedResult(fitted, len(content))
    except (TypeError, ValueError, ArithmeticError, RecursionError):
        raise ToolError(
            ErrorCode.EXECUTION_FAILED, "the tool failed: its result is no JSON."
        ) from None


def write_success(content: bytes) -> bytes:
    """Return the result of ``tools/call`` for a JSON object."""
    return _write(content, is_error=False)


def write_failure(error: ToolError) -> bytes:
    """Return the result of ``tools/call`` for a call that failed."""
    message = error.message.encode(errors="replace")[:MAX_MESSAGE].decode(errors="ignore")
    content = _encode({"error": {"code": error.code, "message": message}})
    return _write(content, is_error=True)


def _write(content: bytes, *, is_error: bool) -> bytes:
    block = {"type": "text", "text": content.decode()}
    return _encode(
        {"content": [block], "structuredContent": msgspec.Raw(content), "isError": is_error}
    )


def _cut(content: bytes, limit: int) -> bytes:
    """Return an object that is too long within ``limit`` bytes: its longest member is cut.

    If that is no text or list, or too short, the beginning of the whole object is shown as text.
    """
    marks = {"truncated": True, "original_bytes": len(content)}
    rest: dict[str, Any] = {**_members.decode(content), **marks}
    own_names = [name for name in rest if name not in marks]
    longest_name = max(own_names, key=lambda name: len(bytes(rest[name])), default="")
    longest = bytes(rest.pop(longest_name, b""))

    is_divisible = longest[:1] in {b'"', b"["}
    leaves_room = is_divisible and len(_encode({**rest, longest_name: ""})) <= limit
    if leaves_room:
        part = msgspec.json.decode(longest, type=str | list[msgspec.Raw])
        size_of = _size_in_message if isinstance(part, list) else len
        return _fit_beginning(
            part, limit, lambda beginning: _encode({**rest, longest_name: beginning}), size_of
        )

    text = content[:limit].decode(errors="ignore")
    return _fit_beginning(text, limit, lambda beginning: _encode({**marks, "beginning": beginning}))


def _fit_beginning(
    value: Any, limit: int, write: Callable[[Any], bytes], size_of: Callable[[bytes], int] = len
) -> bytes:
    """Return ``write(beginning of value)`` with the longest beginning that fits."""
    value = value[:limit]  # Each character, and each item, takes at least one byte

    def size_at(length: int) -> int:
        return size_of(write(value[:length]))

    longest = bisect_right(range(len(value) + 1), limit, key=size_at) - 1
    return write(value[: max(longest, 0)])


def _size_in_message(content: bytes) -> int:
    """Return the bytes of a list's text in the message, where it is a JSON string.

    There each of its many quotes takes two bytes. Clients that write the list anew, with spaces,
    stay within the limit too.
    """
    return len(_encode(content.decode())) - len('""')
