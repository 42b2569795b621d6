"""The log of a process that serves MCP: one JSON object a line, on standard output, redacted."""

import json
import logging
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from claw_contract.limits import LineLimit
from claw_contract.redaction.redactor import Redactor
from claw_contract.secret import Secret
from claw_contract.unseen import escape_unseen

_MAX_REASON = 1_000
_MAX_FAULTS = 20  # In a second: anybody who reaches the port can cause some


class JsonLog:
    """The log. ``kind`` is the type of the lines about the process itself."""

    def __init__(self, kind: str, secrets: Iterable[Secret]) -> None:
        """Redact the secrets in every line."""
        self._kind = kind
        self._redactor = Redactor(secrets)

    def event(self, kind: str, **members: Any) -> None:
        """Write a line of this kind."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        document = {"ts": now, "type": kind, **members}
        line = json.dumps(document, ensure_ascii=False, separators=(",", ":"))

        clear = self._redactor.document(line.encode(errors="replace"))
        sys.stdout.buffer.write(escape_unseen(clear) + b"\n")
        sys.stdout.buffer.flush()

    def cut(self, text: str, limit: int) -> str:
        """Return the first ``limit`` bytes of a text, and never a part of a secret.

        A part would not be recognized, and so not redacted.
        """
        return self._redactor.cut(text.encode(errors="replace"), limit).decode(errors="ignore")

    def state(self, state: str, **members: Any) -> None:
        """Write a line about the process itself."""
        self.event(self._kind, state=state, **members)


class FaultHandler(logging.Handler):
    """Writes the records of Python's ``logging`` as our lines, at most 20 a second."""

    def __init__(self, log: JsonLog) -> None:
        """Write warnings and errors to ``log``."""
        super().__init__(logging.WARNING)
        self._log = log
        self._limit = LineLimit(_MAX_FAULTS, seconds=1)

    def emit(self, record: logging.LogRecord) -> None:
        left_out = self._limit.take("")
        if left_out is None:
            return

        if left_out:
            self._log.state("fault", reason=f"{left_out} faults before this one are not in the log")

        error = f": {record.exc_info[1]!r}" if record.exc_info else ""
        self._log.state("fault", reason=self._log.cut(f"{record.getMessage()}{error}", _MAX_REASON))
