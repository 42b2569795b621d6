"""One line of the log for each call (docs/spec/tools-host.md "Audit").

Rules. A call that runs has its line always; the principal's limits bound how many there are in a
minute. Calls that nobody runs (unknown tools, too many at once) cost their caller nothing, so a
minute has a fixed number of their lines, and the next one says how many were left out.
"""

import hashlib
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgspec

from claw_contract.base import JsonObject
from claw_contract.limits import LineLimit

MAX_NAME: Final = 128
_MAX_REFUSALS: Final = 60  # Lines of a principal's refused calls in a minute
_MAX_ARGUMENTS: Final = 32
_MAX_ARGUMENT_NAME: Final = 64

type WriteEvent = Callable[[str, JsonObject], None]
"""Writes a line of the log: its type, and its members besides the time."""


@dataclass(slots=True)
class CallRecord:
    """A call, with what its line will say of it. ``names`` are those of its arguments."""

    principal: str
    tool: str
    arguments: bytes
    names: Iterable[str] = ()
    started: float = field(default_factory=time.monotonic)


class CallLog:
    """The lines of all calls."""

    def __init__(self, write: WriteEvent, arguments: Literal["digest", "full"] = "digest") -> None:
        """Write each line with ``write``.

        ``digest``: names and a digest of the arguments; ``full``: all of them, too.
        """
        self._write = write
        self._is_full = arguments == "full"
        self._refusals = LineLimit(_MAX_REFUSALS)

    def refuse_call(self, call: CallRecord, outcome: str, size: int = 0) -> None:
        """Write the line of a call that nobody ran, or leave it out if there are too many."""
        left_out = self._refusals.take(call.principal)
        if left_out is not None:
            self.close_call(call, outcome, size, left_out=left_out)

    def close_call(
        self,
        call: CallRecord,
        outcome: str,
        size: int = 0,
        *,
        truncated: bool = False,
        left_out: int = 0,
    ) -> None:
        """Write the line of a call that has ended. ``size``: bytes of its result."""
        names = sorted(name[:_MAX_ARGUMENT_NAME] for name in call.names)
        members: dict[str, Any] = {
            "principal": call.principal,
            "tool": call.tool[:MAX_NAME],
            "argument_names": names[:_MAX_ARGUMENTS],
            "arguments_digest": hashlib.sha256(call.arguments).hexdigest(),
            "outcome": outcome,
            "latency_ms": round((time.monotonic() - call.started) * 1000),
            "bytes": size,
            "truncated": truncated,
        }

        if left_out:
            members["left_out"] = left_out
        if self._is_full:
            members["arguments"] = _as_data(call.arguments)

        self._write("tool_host_call", members)


def _as_data(arguments: bytes) -> Any:
    """Return the arguments as data; as text if they are no JSON."""
    try:
        return msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        return arguments.decode(errors="replace")
