"""All lines of the log of ``claw tools serve``, one JSON object each.

Specification: docs/spec/tools-host.md "Audit".
"""

from typing import Any, Literal

from claw_contract.base import Contract


class ToolHostCallEvent(Contract):
    """A call of a tool: one that ran, was refused, or named an unknown tool."""

    type: Literal["tool_host_call"]
    ts: str
    principal: str
    tool: str  # As the caller named it, cut after 128 characters
    argument_names: list[str]  # Sorted; the first 32, each cut after 64 characters
    arguments_digest: str  # sha256 of the arguments as they were sent, in hex
    arguments: Any = None  # With ``audit_arguments: full`` only
    outcome: str  # "ok", or the code of the error; "cancelled" where the caller left
    latency_ms: int
    bytes: int  # Of the result, as it was sent
    truncated: bool = False
    left_out: int = 0  # How many refused calls of this principal since its last line have none


class ToolHostEvent(Contract):
    """The host listens, has a fault, or stops."""

    type: Literal["tool_host"]
    ts: str
    state: Literal["listening", "fault", "stopped"]
    address: str | None = None
    reason: str | None = None


class ToolHostServerEvent(Contract):
    """An MCP server of the host was started, answers, ended or failed, or wrote something.

    ``restarts``: it is started again after ``wait_ms``.
    """

    type: Literal["tool_host_server"]
    ts: str
    server: str
    state: Literal[
        "started",
        "ready",
        "ended",
        "failed",
        "restarts",
        "changed",
        "stderr",
        "bad_output",
        "lines_dropped",
    ]
    pid: int | None = None
    exit_code: int | None = None
    wait_ms: int | None = None
    reason: str | None = None
    tools: int | None = None  # How many it lists
    # A line of its standard error, or the beginning of a line that is no message.
    line: str | None = None
    lines: int | None = None  # How many are not in the log, because there were too many at once


type ToolHostLogEvent = ToolHostCallEvent | ToolHostEvent | ToolHostServerEvent
