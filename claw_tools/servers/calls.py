"""A call of a server's tool, and its answer (docs/spec/tools-host.md "Servers"). No I/O.

the server's answer               the result
────────────────────────────────
──────────────────────────────────────────────────────────────────── ``structuredContent``
that JSON, in its own bytes ``content`` only                  ``{"output": text}``; parts that are
no text are named, with type and size ``isError``                       ``ToolError`` with the text
``resultType: input_required``    ``ToolError``: nobody can be asked a JSON-RPC error
``ToolError`` with its message

Rules. Arguments keep their exact numbers. What a server says is redacted before it is cut.
"""

from decimal import Decimal
from typing import Any, Final

import msgspec

from claw_contract.base import JsonObject
from claw_contract.redaction.redactor import Redactor
from claw_mcp.call_result import COMPLETE, CallResult, describe, read_result
from claw_mcp.protocol import RpcError
from claw_tools.errors import ErrorCode, ToolError

_MAX_QUOTE = 2_000  # Bytes of what a server says of a failure
_NULL = b"null"
_exact: Final = msgspec.json.Encoder(decimal_format="number", enc_hook=Decimal)
"""Writes a ``Decimal`` as a number; the hook makes one of a subclass."""


def write_arguments(args: JsonObject) -> msgspec.Raw:
    """Return arguments as JSON, with exact numbers. Raise ``ToolError``."""
    try:
        content = _exact.encode(args)
        msgspec.json.decode(
            content, type=msgspec.Raw
        )  # A number beyond all computing is written as "sNaN"
    except (ValueError, RecursionError):
        message = (
            "the arguments hold what can't be sent: half a surrogate pair, or a number with "
            "too many digits."
        )
        raise ToolError(ErrorCode.INVALID_ARGS, message) from None
    return msgspec.Raw(content)


def read_answer(answer: bytes, redactor: Redactor) -> Any:
    """Return the result of a call as JSON data. Raise ``ToolError``."""
    result = read_result(answer)
    if result is None:
        raise _failure("the server's answer is no result of a tool.")
    if result.result_type != COMPLETE:
        raise _failure(
            "the tool asks for more input before it goes on, and nobody can be asked here."
        )
    structured = bytes(result.structured_content)
    has_data = structured not in {b"", _NULL}
    if result.is_error:
        raise _failure(
            _quote(structured if has_data and not result.content else _text(result), redactor)
        )
    if has_data:
        return msgspec.Raw(redactor.document(structured))
    return {"output": redactor.data(_text(result)).decode(errors="replace")}


def read_refusal(error: RpcError, redactor: Redactor) -> ToolError:
    """Return the error of a call that the server refused."""
    return _failure(
        f"the server refused the call: {_quote(error.message.encode(errors='replace'), redactor)}"
    )


def _text(result: CallResult) -> bytes:
    return describe(result).encode(errors="replace")


def _quote(text: bytes, redactor: Redactor) -> str:
    clear = redactor.data(text)
    return clear[:_MAX_QUOTE].decode(errors="ignore").strip() or "it says no more."


def _failure(message: str) -> ToolError:
    return ToolError(ErrorCode.EXECUTION_FAILED, message)
