"""All lines of the log of ``claw mcp-stdio``, one JSON object each, on stdout.

Specification: docs/spec/mcp.md "The stdio wrapper".
"""

from typing import Literal

from claw_contract.base import Contract


class _Line(Contract):
    ts: str


class ServerStateEvent(_Line):
    """The wrapped server was started, answers, ended or failed.

    ``restarts``: it is started again after ``wait_ms``.
    """

    type: Literal["mcp_server"]
    state: Literal["started", "ready", "ended", "failed", "restarts"]
    pid: int | None = None
    exit_code: int | None = None
    wait_ms: int | None = None  # Time until the restart
    reason: str | None = None


class ServerStderrEvent(_Line):
    """A line that the server wrote to standard error."""

    type: Literal["mcp_stderr"]
    line: str


class ServerOutputEvent(_Line):
    """Output of the server that is skipped: no JSON-RPC message, or none that anybody waits for."""

    type: Literal["mcp_bad_output"]
    reason: str
    line: str  # Its beginning


class LinesDroppedEvent(_Line):
    """Lines of the server that are not in the log, because there were too many at once."""

    type: Literal["mcp_lines_dropped"]
    lines: int


class WrapperEvent(_Line):
    """The wrapper listens, has a fault, or stops."""

    type: Literal["mcp_wrapper"]
    state: Literal["listening", "fault", "stopped"]
    address: str | None = None
    reason: str | None = None


type WrapperLogEvent = (
    ServerStateEvent | ServerStderrEvent | ServerOutputEvent | LinesDroppedEvent | WrapperEvent
)
