"""The answers of an MCP server: the list of its tools, and the result of a call. No I/O.

Specification: docs/spec/tools-host.md "Servers".

Rules. Nothing of a server is trusted: a tool that can't be used is left out, and costs no other
one; of tools of the same name the first one counts. Arguments keep their exact numbers. What a
server says is redacted before it is cut.

| the server's answer | the result |
|---|---|
| ``structuredContent`` | that JSON, in its own bytes |
| ``content`` only | ``{"output": text}``; parts that are no text are named, with type and size |
| ``isError`` | ``ToolError`` with the text |
| ``resultType: input_required`` | ``ToolError``: nobody can be asked |
| a JSON-RPC error | ``ToolError`` with its message |
"""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Final

import msgspec

from claw_contract.base import JsonObject
from claw_contract.redaction.redactor import Redactor
from claw_mcp.call_result import COMPLETE, CallResult, describe, read_result
from claw_mcp.protocol import RpcError
from claw_tools.errors import ErrorCode, ToolError
from claw_tools.provider import ToolDefinition

_MAX_NAME: Final = 128
_MAX_DESCRIPTION: Final = 16 << 10  # Characters
_HINTS: Final = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
_MAX_QUOTE: Final = 2_000  # Bytes of what a server says of a failure
_NO_DATA: Final = frozenset({b"", b"null"})
_exact: Final = msgspec.json.Encoder(decimal_format="number", enc_hook=Decimal)
"""Writes a ``Decimal`` as a number; the hook makes one of a subclass."""


def read_definitions(entries: Iterable[Any]) -> dict[str, ToolDefinition]:
    """Return the tools of ``tools/list`` by name, in the server's order."""
    tools: dict[str, ToolDefinition] = {}
    for entry in entries:
        tool = _read_definition(entry) if isinstance(entry, dict) else None
        if tool is not None:
            tools.setdefault(tool.name, tool)
    return tools


def write_arguments(args: JsonObject) -> msgspec.Raw:
    """Return arguments as JSON, with exact numbers. Raise ``ToolError``."""
    try:
        content = _exact.encode(args)
        # A number with too many digits is written as "sNaN", which is no JSON
        msgspec.json.decode(content, type=msgspec.Raw)
    except (ValueError, RecursionError):
        raise ToolError(
            ErrorCode.INVALID_ARGS,
            "the arguments hold what can't be sent: half a surrogate pair, or a number with "
            "too many digits.",
        ) from None
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
    has_data = structured not in _NO_DATA
    if result.is_error:
        is_text = bool(result.content) or not has_data
        raise _failure(_quote(_text(result) if is_text else structured, redactor))

    if has_data:
        return msgspec.Raw(redactor.document(structured))
    return {"output": redactor.data(_text(result)).decode(errors="replace")}


def read_refusal(error: RpcError, redactor: Redactor) -> ToolError:
    """Return the error of a call that the server refused."""
    message = _quote(error.message.encode(errors="replace"), redactor)
    return _failure(f"the server refused the call: {message}")


def _read_definition(entry: JsonObject) -> ToolDefinition | None:
    name = entry.get("name")
    schema = entry.get("inputSchema")
    description = entry.get("description", "")
    if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME:
        return None
    if not isinstance(schema, dict):
        return None

    text = description[:_MAX_DESCRIPTION] if isinstance(description, str) else ""
    tool = ToolDefinition(name, text, schema, _read_annotations(entry.get("annotations")))
    return tool if _is_writable(tool) else None


def _read_annotations(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        return {}
    return {name: value[name] for name in _HINTS if isinstance(value.get(name), bool)}


def _is_writable(tool: ToolDefinition) -> bool:
    """Return whether a tool can be sent on as JSON.

    Half a surrogate pair can't, nor can a schema that is nested too deeply.
    """
    try:
        msgspec.json.encode([tool.name, tool.description, tool.parameters])
    except (ValueError, RecursionError):  # UnicodeEncodeError is a ValueError
        return False
    return True


def _text(result: CallResult) -> bytes:
    return describe(result).encode(errors="replace")


def _quote(text: bytes, redactor: Redactor) -> str:
    redacted = redactor.data(text)
    return redacted[:_MAX_QUOTE].decode(errors="ignore").strip() or "it says no more."


def _failure(message: str) -> ToolError:
    return ToolError(ErrorCode.EXECUTION_FAILED, message)
