"""Channels to one MCP server, for a client that asks one question after the other.

Rules. A child and all its descendants are ended in every way out. What a server sends is bounded,
and what is quoted of it is redacted before it is cut. No capability is declared: a server's ping is
answered, it is told that there are no roots, and all its other requests are refused.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from claw_contract.redaction.redactor import Redactor
from claw_mcp.client_protocol import AskServer, ClientProtocol, NotifyServer, ServerAnswer
from claw_mcp.protocol import RpcError, RpcMessage
from claw_mcp.reaper import CANNOT_START
from claw_mcp.stdio_child import NoAnswerError, StdioChild

MAX_BYTES = 8 * 1024 * 1024  # Of one message
_MAX_LINES = 10  # Of a child's standard error: the last ones
_MAX_QUOTE = 200  # Characters
_NEVER = 1e9  # Seconds: whoever asks limits the time of all questions together
_CANNOT_START = " can't be started: "  # In the reaper's words


@dataclass(frozen=True)
class ServerCommand:
    """A command that speaks MCP on standard input and output.

    ``name`` is its program as the pod file has it.
    """

    name: str
    command: tuple[str, ...] = field(repr=False)
    environ: Mapping[str, str] = field(repr=False)
    directory: Path = Path()


class DiscoveryError(Exception):
    """The failure of a channel, in one sentence with the remedy.

    ``output``: the last lines that a child wrote to standard error.
    """

    def __init__(self, message: str, output: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.output = output


@dataclass(frozen=True)
class Quotation:
    """Redacted, short quotations of what a server says."""

    redactor: Redactor

    def text(self, text: str) -> str:
        """Return a text on one line, in quotation marks, and cut."""
        clear = " ".join(self.redactor.text(text).split())
        if len(clear) > _MAX_QUOTE:
            return f"'{clear[:_MAX_QUOTE]}…'"
        return f"'{clear}'"

    def cut(self, text: str, limit: int) -> str:
        """Return the first ``limit`` bytes of a text, and never a part of a secret."""
        return self.redactor.cut(text.encode(errors="replace"), limit).decode(errors="ignore")

    def lines(self, lines: Iterable[bytes]) -> tuple[str, ...]:
        """Return each line, cut."""
        return tuple(
            self.redactor.data(line).decode(errors="replace")[:_MAX_QUOTE] for line in lines
        )


class Channel(ABC):
    """A way to one server, and the session in it.

    ``skipped_lines``: lines on a child's standard output that answered nothing.
    """

    def __init__(self, quotation: Quotation) -> None:
        self.quotation = quotation
        self.protocol = ClientProtocol()
        self.skipped_lines = 0

    @abstractmethod
    async def request(self, method: str, params: Mapping[str, Any]) -> bytes:
        """Return the result of a request, as JSON. Raise ``RpcError`` for an error response."""

    @abstractmethod
    async def notify(self, method: str) -> None:
        """Send a notification."""

    async def exchange(self, message: AskServer | NotifyServer) -> ServerAnswer:
        """Send a message of a conversation and return its answer.

        Raise ``RpcError``, and the channel's failure.
        """
        if isinstance(message, AskServer):
            return ServerAnswer(await self.request(message.method, message.params))

        await self.notify(message.method)
        return ServerAnswer()

    async def failure(self, message: str) -> DiscoveryError:
        """Return the error to raise for a server that can't be used."""
        return DiscoveryError(message)


class StdioChannel(Channel):
    """A channel to a child of ours, and the observer of what it writes unasked."""

    def __init__(self, name: str, quotation: Quotation) -> None:
        super().__init__(quotation)
        self.child: StdioChild
        self._name = name
        self._problem = ""  # With the first line on standard output that was skipped
        self._is_readable = True
        self._last_lines: deque[bytes] = deque(maxlen=_MAX_LINES)

    @classmethod
    @asynccontextmanager
    async def open(cls, server: ServerCommand, quotation: Quotation) -> AsyncIterator[Channel]:
        """Start the command, and end it at the end of the context. Raise ``DiscoveryError``."""
        channel = cls(server.name, quotation)
        try:
            channel.child = await StdioChild.start(
                server.command, server.environ, channel, server.directory
            )
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else None
            raise channel._start_failure(why or "it is no command") from None

        try:
            yield channel
        finally:
            await channel.child.stop()

    def notice(self, message: RpcMessage) -> None:
        """Ignore a notification."""

    def log_line(self, line: bytes) -> None:
        if line.strip():
            self._last_lines.append(line)

    def bad_output(self, problem: str, line: bytes) -> None:
        self.skipped_lines += 1
        if not line:  # It was too long, and nothing after it is read
            self._is_readable = False

        if not self._problem:
            text = line.decode(errors="replace")
            self._problem = f"{problem}: {self.quotation.text(text)}" if line else problem

    async def request(self, method: str, params: Mapping[str, Any]) -> bytes:
        try:
            return await self.child.call(method, params, _NEVER)
        except RpcError as error:
            # A write may fail because the server has ended, before we have read that it has.
            has_ended = isinstance(error, NoAnswerError) or self.child.ended.done()
            if has_ended:
                raise await self._describe_end() from None
            raise

    async def notify(self, method: str) -> None:
        self.child.notify(method)

    async def failure(self, message: str) -> DiscoveryError:
        await self.child.stop()  # so that its last words are here

        skipped = ""
        if self._problem:
            skipped = f"; what it wrote to standard output was skipped: {self._problem}"
        return DiscoveryError(message + skipped, self.quotation.lines(self._last_lines))

    async def _describe_end(self) -> DiscoveryError:
        """Return why a child that has ended did so, as far as it can be seen."""
        code = await self.child.stop()

        if code == CANNOT_START and self._last_lines:
            last_line = self._last_lines[-1].decode(errors="replace")
            _, mark, why = last_line.rpartition(_CANNOT_START)
            if mark:
                return self._start_failure(why)

        if not self._is_readable:
            return await self.failure("its answer can't be read")
        return await self.failure(
            f"it ended with exit code {code} before it had answered: run it by itself to see why"
        )

    def _start_failure(self, why: str) -> DiscoveryError:
        remedy = "install it, or correct 'mcp-stdio' in the pod file"
        return DiscoveryError(f"the command '{self._name}'{_CANNOT_START}{why}; {remedy}")
