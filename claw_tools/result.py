"""Results of calls, as MCP carries them (docs/spec/tools-host.md "Results").

Rules. A result that is too long is still valid JSON: its largest member is cut to its beginning,
and it says ``truncated`` and ``original_bytes``. The limit counts the bytes of the text block,
which is what leaves the host. That block and ``structuredContent`` are the same JSON. It takes
linear time, whatever the result is.
"""

from bisect import bisect_right
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, NamedTuple

import msgspec

from claw_tools.errors import ErrorCode, ToolError

MAX_MESSAGE: Final = 2_048  # Bytes of an error's message
_encode = msgspec.json.Encoder(
    decimal_format="number", enc_hook=Decimal
).encode  # The hook is for subclasses of it
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
    """Return JSON data as an object within ``limit`` bytes, 1 KiB at least; what is
    no object stands in ``result``.

    Raise ``ToolError`` for what is no JSON data.
    """
    try:
        # It is read again, since a ``Raw`` may be anything, and a ``Decimal`` be no number.
        content = bytes(_reader.decode(_encode(data)))
        if content[:1] != b"{":
            content = _encode({"result": msgspec.Raw(content)})
        return FittedResult(
            content if len(content) <= limit else _cut(content, limit), len(content)
        )
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
    return _write(_encode({"error": {"code": error.code, "message": message}}), is_error=True)


def _write(content: bytes, *, is_error: bool) -> bytes:
    block = {"type": "text", "text": content.decode()}
    return _encode(
        {"content": [block], "structuredContent": msgspec.Raw(content), "isError": is_error}
    )


def _cut(content: bytes, limit: int) -> bytes:
    """Return an object that is too long within ``limit`` bytes."""
    mark = {"truncated": True, "original_bytes": len(content)}
    rest: dict[str, Any] = {**_members.decode(content), **mark}
    name = max(
        (each for each in rest if each not in mark),
        key=lambda each: len(bytes(rest[each])),
        default="",
    )
    value = bytes(rest.pop(name, b""))
    if value[:1] in {b'"', b"["} and len(_encode({**rest, name: ""})) <= limit:
        part = msgspec.json.decode(value, type=str | list[msgspec.Raw])
        size_of = _size_in_message if isinstance(part, list) else len
        return _longest(part, limit, lambda beginning: _encode({**rest, name: beginning}), size_of)
    text = content[:limit].decode(errors="ignore")
    return _longest(text, limit, lambda beginning: _encode({**mark, "beginning": beginning}))


def _longest(
    value: Any, limit: int, write: Callable[[Any], bytes], size_of: Callable[[bytes], int] = len
) -> bytes:
    """Return ``write(beginning of value)`` with the longest beginning that fits."""
    value = value[:limit]  # Every character and every item is a byte at least
    lengths = range(len(value) + 1)
    count = bisect_right(lengths, limit, key=lambda length: size_of(write(value[:length]))) - 1
    return write(value[: max(count, 0)])


def _size_in_message(content: bytes) -> int:
    """Return the bytes of a list's text as it stands in the message, as a JSON string.

    There each of its many quotes takes two bytes. Clients that write the list anew, with spaces,
    stay within the limit too.
    """
    return len(_encode(content.decode())) - len('""')
