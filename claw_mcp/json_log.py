"""The log of a process that serves MCP: one JSON object a line, on standard output, without credentials."""

import json
import logging
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from claw_contract.redaction.redactor import Redactor
from claw_contract.secret import Secret

_MAX_REASON = 1_000


class JsonLog:
    """The log. ``kind`` is the type of the lines about the process itself."""

    def __init__(self, kind: str, secrets: Iterable[Secret]) -> None:
        """Redact the secrets in every line."""
        self._kind, self._redactor = kind, Redactor(secrets)

    def event(self, kind: str, **members: Any) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = json.dumps({"ts": now, "type": kind, **members}, ensure_ascii=False, separators=(",", ":"))
        sys.stdout.buffer.write(self._redactor.document(line.encode(errors="replace")) + b"\n")
        sys.stdout.buffer.flush()

    def state(self, state: str, **members: Any) -> None:
        """Write a line about the process itself."""
        self.event(self._kind, state=state, **members)


class FaultHandler(logging.Handler):
    """Writes what Python's own log has to say as lines of ours."""

    def __init__(self, log: JsonLog) -> None:
        """Write warnings and errors to ``log``."""
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        error = f": {record.exc_info[1]!r}" if record.exc_info else ""
        self._log.state("fault", reason=f"{record.getMessage()}{error}"[:_MAX_REASON])
