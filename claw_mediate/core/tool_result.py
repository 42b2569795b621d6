"""Result envelopes: what the model receives for a call (docs/spec/mediation.md section 4).

    {"ok": true, "status_code": 200, "data": …}
    {"ok": false, "error": {"code": "…", "message": "…", "details": …}, "status_code": 404}

``data``, ``details`` and the ``status_code`` of a failure may be absent. Messages never hold a URL,
an address, a header or a stack trace. This module is the registry of the codes: a function is named
by the code of its result.
"""

import codecs
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import msgspec

from claw_mediate.core.types import ToolCall, ToolResult, UnreadableArguments

INVALID_ARGUMENTS = "invalid_arguments"
SCHEMA_VALIDATION = "schema_validation"
UNKNOWN_TOOL = "unknown_tool"
DUPLICATE_TOOL_CALL = "duplicate_tool_call"
MANAGED_TOOLS_FIRST = "managed_tools_first"
TOOL_BUDGET_EXHAUSTED = "tool_budget_exhausted"
TERMINAL_ON_SUCCESS_ORDER = "terminal_on_success_order"
TOO_MANY_CALLS = "too_many_calls"
TIMEOUT = "timeout"
OUTCOME_UNKNOWN = "outcome_unknown"
REQUEST_FAILED = "request_failed"
REDIRECT_REFUSED = "redirect_refused"
RESPONSE_TOO_LARGE = "response_too_large"
CANCELED = "canceled"
TOOL_ERROR = "tool_error"  # An MCP tool reported an error
MCP_ERROR = "mcp_error"  # An MCP server refused a call

NOT_REINJECTED = frozenset(
    {
        MANAGED_TOOLS_FIRST,
        TERMINAL_ON_SUCCESS_ORDER,
        TOO_MANY_CALLS,
        TOOL_BUDGET_EXHAUSTED,
        DUPLICATE_TOOL_CALL,
    }
)
"""Codes of advice that only helps in its own turn.

Results with them are left out of later turns (docs/spec/mediation.md section 7).
"""


def failure(call: ToolCall, code: str, message: str, **more: Any) -> ToolResult:
    """Return the result of a failed call.

    ``more``: ``details``, ``status_code``, ``ran``, ``first_round``, ``repeats``.
    """
    error: dict[str, Any] = {"code": code, "message": message}
    details = more.pop("details", None)
    if details is not None:
        error["details"] = details

    envelope: dict[str, Any] = {"ok": False, "error": error}
    status = more.get("status_code")
    if status is not None:
        envelope["status_code"] = status

    return ToolResult(call, msgspec.json.encode(envelope), ok=False, code=code, **more)


def tool_budget_exhausted(call: ToolCall) -> ToolResult:
    return failure(
        call,
        TOOL_BUDGET_EXHAUSTED,
        "No tool can be called any more in this turn; this call was not run. "
        "Answer now with what you have, and say what is missing.",
    )


def managed_tools_first(call: ToolCall, *, others_ran: bool = False) -> ToolResult:
    """Return the result of a call in a response that mixed both kinds.

    ``others_ran``: the service tools before it ran.
    """
    what_ran = "Nothing was run."
    if others_ran:
        what_ran = "This call was not run; the service tools before it were."

    return failure(
        call,
        MANAGED_TOOLS_FIRST,
        f"{what_ran} Service tools and local tools can't be mixed in this order: "
        "call the service tools first, and the local ones in a later response.",
        details={"owner": call.owner, "tools_executed": others_ran},
    )


def terminal_on_success_order(call: ToolCall) -> ToolResult:
    return failure(
        call,
        TERMINAL_ON_SUCCESS_ORDER,
        "Nothing was run. A tool that ends the turn must be the last call of its response.",
        details={"tools_executed": False},
    )


def too_many_calls(call: ToolCall, limit: int) -> ToolResult:
    return failure(
        call,
        TOO_MANY_CALLS,
        f"Nothing was run. One response may hold {limit} calls at most; make fewer.",
        details={"most": limit, "tools_executed": False},
    )


def too_many_at_once(call: ToolCall, limit: int) -> ToolResult:
    """Return the result of a native call for which its agent has too many others running."""
    return failure(
        call,
        TOO_MANY_CALLS,
        f"Nothing was run. At most {limit} calls of this agent run at once, and too many wait; "
        "try again later.",
        details={"most": limit, "tools_executed": False},
    )


def unknown_tool(call: ToolCall) -> ToolResult:
    return failure(
        call,
        UNKNOWN_TOOL,
        f"There is no tool named {call.name[:128]!r}. Use only the tools that are offered.",
    )


def invalid_arguments(call: ToolCall, reason: str) -> ToolResult:
    return failure(call, INVALID_ARGUMENTS, f"The call was not run: {reason}")


def schema_validation(call: ToolCall, violations: Sequence[dict[str, str]]) -> ToolResult:
    return failure(
        call,
        SCHEMA_VALIDATION,
        "The call was not run: its arguments do not fit the tool's schema.",
        details={"violations": list(violations)},
    )


def duplicate_tool_call(call: ToolCall, first_round: int, repeats: int) -> ToolResult:
    return failure(
        call,
        DUPLICATE_TOOL_CALL,
        f"This call was made before in this turn (round {first_round}) and was not run again. "
        "Use its earlier result.",
        details={"tool": call.canonical, "first_round": first_round, "count": repeats},
        first_round=first_round,
        repeats=repeats,
    )


def timeout(call: ToolCall, seconds: float) -> ToolResult:
    """Return the result of a call that ran out of time.

    If it may write, its outcome is unknown, and the model is told so.
    """
    message = f"The service did not answer within {seconds:g} s."
    if call.tool is None or call.tool.effect != "read":
        message += " Its outcome is unknown: it may have taken effect. Check before trying again."
    return failure(call, TIMEOUT, message, ran=True)


def canceled(call: ToolCall) -> ToolResult:
    return failure(call, CANCELED, "The runner left before the service answered.", ran=True)


def turn_ended(call: ToolCall) -> ToolResult:
    """Return the result of a call that was not run, because its turn ended first."""
    return failure(call, CANCELED, "The turn ended before this call was run.")


def outcome_unknown(call: ToolCall) -> ToolResult:
    """Return the result of a call that an earlier attempt at this turn sent.

    That attempt recorded no result.
    """
    message = (
        "An earlier attempt at this turn made this call, and what came of it is not known: "
        "it may have taken effect. It was not made again. Check before trying again."
    )
    return failure(call, OUTCOME_UNKNOWN, message, ran=True)


def not_journaled(call: ToolCall) -> ToolResult:
    """Return the result of a write that is not made, because the journal can't record it.

    Without the record, a retry could make it twice.
    """
    return failure(
        call,
        REQUEST_FAILED,
        "The call was not made: the proxy can't keep its journal now. Try again later.",
    )


def request_failed(call: ToolCall, message: str, *, sent: bool) -> ToolResult:
    """Return the result of a call whose service could not be reached, or broke off.

    ``sent``: the request had left, so it may have taken effect.
    """
    if sent and (call.tool is None or call.tool.effect != "read"):
        return failure(
            call,
            OUTCOME_UNKNOWN,
            f"{message} Its outcome is unknown: it may have taken effect.",
            ran=True,
        )

    return failure(call, REQUEST_FAILED, message, ran=sent)


def redirect_refused(call: ToolCall, status: int, *, ran: bool) -> ToolResult:
    message = "The service answered with a redirect, which is not followed."
    return failure(call, REDIRECT_REFUSED, message, status_code=status, ran=ran)


def read_http_response(
    call: ToolCall, status: int, body: bytes, size: int, limit: int
) -> ToolResult:
    """Return the result of a service's HTTP response.

    ``size`` is the length of the body. ``body`` is its beginning: at least ``limit`` bytes of it,
    or all.
    """
    if _is_redirect(status):
        return redirect_refused(call, status, ran=True)

    data, is_truncated = read_body(body, size, limit)
    truncation = {"truncated": True, "original_bytes": size} if is_truncated else {}

    envelope: dict[str, Any]
    if _is_success(status):
        envelope = {"ok": True, "status_code": status}
        if data is not None:
            envelope["data"] = data
        content = msgspec.json.encode(envelope | truncation)
        return ToolResult(call, content, ok=True, status_code=status, ran=True)

    code = f"http_{status}"
    error: dict[str, Any] = {
        "code": code,
        "message": f"The service answered with status {status}.",
    }
    if data is not None:
        error["details"] = data
    envelope = {"ok": False, "error": error, "status_code": status}
    content = msgspec.json.encode(envelope | truncation)
    return ToolResult(call, content, ok=False, code=code, status_code=status, ran=True)


def _is_success(status: int) -> bool:
    return HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES


def _is_redirect(status: int) -> bool:
    return HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST


def read_body(body: bytes, size: int, limit: int) -> tuple[Any, bool]:
    """Return the body as JSON (its exact bytes) or as text, and True if it had to be cut.

    A blank body is None.
    """
    if size > limit:
        return utf8_prefix(body, limit), True

    if not body.strip():
        return None, False

    try:
        msgspec.json.decode(body)
        body.decode()
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return body.decode(errors="replace"), False

    return msgspec.Raw(body.strip()), False


def utf8_prefix(body: bytes, limit: int) -> str:
    """Return at most ``limit`` bytes of the text, never half a character.

    >>> utf8_prefix("aé".encode(), 2)
    'a'
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    # Not the final call: so the decoder holds back the bytes of half a character.
    return decoder.decode(body[:limit])


def record_arguments(call: ToolCall) -> Any:
    """Return the arguments for history, each in its exact JSON text.

    Unreadable arguments are the text that the model wrote.
    """
    if isinstance(call.arguments, UnreadableArguments):
        return call.arguments.text
    return {name: join_lines(raw) for name, raw in call.arguments.raw.items()}


def join_lines(document: bytes) -> msgspec.Raw:
    """Return JSON on one line, for history.

    A line break in JSON can only be white space between tokens.
    """
    return msgspec.Raw(document.replace(b"\n", b" ").replace(b"\r", b" "))
