"""Channels to one MCP server, for a client that asks one question after the other,
and the one to a child of ours.

Rules. A child and all its descendants are ended in every way out. What a server sends is bounded,
and what is quoted of it is redacted before it is cut. No capability is declared: of its requests a
ping is answered, there are no roots, and all others are refused.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from claw_contract.redaction.redactor import Redactor
from claw_mcp.protocol import Message, RpcError
from claw_mcp.reaper import CANNOT_START
from claw_mcp.stdio_child import NoAnswerError, StdioChild

MAX_BYTES = 8 * 1024 * 1024  # Of one message
_MAX_LINES = 10  # Of a child's standard error: the last ones
_MAX_QUOTE = 200
_NEVER = 1e9  # Seconds: all questions together have a time
_CANNOT_START = " can't be started: "  # In the reaper's words


@dataclass(frozen=True)
class StdioServer:
    """A command that speaks MCP on standard input and output.

    ``name`` is its program as the pod file has it.
    """

    name: str
    command: tuple[str, ...] = field(repr=False)
    environ: Mapping[str, str] = field(repr=False)
    directory: Path = Path()


class DiscoveryError(Exception):
    """One sentence with the remedy.

    ``output`` are the last lines that a child wrote to standard error.
    """

    def __init__(self, message: str, output: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.output = output


@dataclass(frozen=True)
class Quotation:
    """Redacted, short quotations of what a server says."""

    redactor: Redactor

    def text(self, text: str) -> str:
        clear = " ".join(self.redactor.text(text).split())
        return f"'{clear[:_MAX_QUOTE]}…'" if len(clear) > _MAX_QUOTE else f"'{clear}'"

    def cut(self, text: str, limit: int) -> str:
        """Return the first ``limit`` bytes of a text, and never a part of a secret."""
        return self.redactor.cut(text.encode(errors="replace"), limit).decode(errors="ignore")

    def lines(self, lines: Iterable[bytes]) -> tuple[str, ...]:
        return tuple(
            self.redactor.data(line).decode(errors="replace")[:_MAX_QUOTE] for line in lines
        )


class Channel(ABC):
    """A way to one server. ``version`` and ``is_stateless`` are set when they are known."""

    def __init__(self, quotation: Quotation) -> None:
        self.quotation = quotation
        self.version = ""
        self.is_stateless = False
        self.skipped_lines = 0

    @abstractmethod
    async def request(self, method: str, params: Mapping[str, Any]) -> bytes:
        """Return the result of a request, as JSON. Raise ``RpcError`` for an error response."""

    @abstractmethod
    async def notify(self, method: str) -> None:
        """Send a notification."""

    async def failure(self, message: str) -> DiscoveryError:
        return DiscoveryError(message)


class StdioChannel(Channel):
    """A child of ours, and what it writes unasked."""

    def __init__(self, name: str, quotation: Quotation) -> None:
        super().__init__(quotation)
        self.child: StdioChild
        self._name = name
        self._problem = ""  # With the first line on standard output that was skipped
        self._is_readable = True
        self._last_lines: deque[bytes] = deque(maxlen=_MAX_LINES)

    @classmethod
    @asynccontextmanager
    async def open(cls, server: StdioServer, quotation: Quotation) -> AsyncIterator[Channel]:
        channel = cls(server.name, quotation)
        try:
            channel.child = await StdioChild.start(
                server.command, server.environ, channel, server.directory
            )
        except (OSError, ValueError) as error:
            raise channel.start_failure(
                (isinstance(error, OSError) and error.strerror) or "it is no command"
            ) from None
        try:
            yield channel
        finally:
            await channel.child.stop()

    def notice(self, message: Message) -> None:
        """Pass over what nobody asked for."""

    def log_line(self, line: bytes) -> None:
        if line.strip():
            self._last_lines.append(line)

    def bad_output(self, problem: str, line: bytes) -> None:
        self.skipped_lines += 1
        self._is_readable = self._is_readable and line != b""
        if not self._problem:
            quotation = f": {self.quotation.text(line.decode(errors='replace'))}" if line else ""
            self._problem = f"{problem}{quotation}"

    async def request(self, method: str, params: Mapping[str, Any]) -> bytes:
        try:
            return await self.child.call(method, params, _NEVER)
        except RpcError as error:
            # A write may find that the server has gone before its end was read.
            if isinstance(error, NoAnswerError) or self.child.ended.done():
                raise await self._end() from None
            raise

    async def notify(self, method: str) -> None:
        self.child.notify(method)

    async def _end(self) -> DiscoveryError:
        code = await self.child.stop()
        _, mark, why = (
            self._last_lines[-1].decode(errors="replace").rpartition(_CANNOT_START)
            if self._last_lines
            else ("",) * 3
        )
        if code == CANNOT_START and mark:
            return self.start_failure(why)
        if not self._is_readable:
            return await self.failure("its answer can't be read")
        return await self.failure(
            f"it ended with exit code {code} before it had answered: run it by itself to see why"
        )

    def start_failure(self, why: str) -> DiscoveryError:
        remedy = "install it, or correct 'mcp-stdio' in the pod file"
        return DiscoveryError(f"the command '{self._name}'{_CANNOT_START}{why}; {remedy}")

    async def failure(self, message: str) -> DiscoveryError:
        await self.child.stop()  # so that its last words are here
        skipped = (
            f"; what it wrote to standard output was skipped: {self._problem}"
            if self._problem
            else ""
        )
        return DiscoveryError(message + skipped, self.quotation.lines(self._last_lines))
