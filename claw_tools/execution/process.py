"""One command from its start to its end, and its output.

Rules. Both streams are read from the start; of each the beginning and the end are kept, and all of
it is counted. The command is ended when its time is over, when it has printed too much, and when
the caller has gone; the call ends when nothing of it is left.
"""

import asyncio
import os
import signal
import socket
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from claw_contract.base import JsonObject
from claw_tools.errors import ErrorCode, ToolError
from claw_tools.execution.containment import Containment, frame

MAX_OUTPUT: Final = 16 << 20
"""Bytes of both streams together, after which a command is ended."""
KEPT_BYTES: Final = 32 << 10
"""Bytes that are kept of the beginning of a stream, and as many of its end."""
_END_SECONDS: Final = 10.0
_READ: Final = 4_096
_SIGNALED: Final = 128
"""The exit code of a command that a signal ended, less the signal's number, as in a shell."""


class KeptOutput(asyncio.Protocol):
    """One stream of a command."""

    def __init__(self, notice: Callable[[int], None]) -> None:
        """Tell ``notice`` how many bytes have come, each time."""
        self._notice = notice
        self._head = bytearray()
        self._tail = bytearray()
        self.size = 0
        self.ended = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self.size += len(data)
        room = KEPT_BYTES - len(self._head)
        self._head += data[:room]
        self._tail += data[max(room, 0) :][-KEPT_BYTES:]
        del self._tail[:-KEPT_BYTES]
        self._notice(len(data))

    def connection_lost(self, _error: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    def show(self, room: int) -> tuple[str, bool]:
        """Return what was kept, in so many bytes of JSON.

        The second value is true if something is left out between beginning and end.
        """
        kept = bytes(self._head + self._tail)
        if self.size == len(kept):
            whole = kept.decode(errors="replace")
            if json_size(whole) <= room:
                return whole, False

        def size_at(length: int) -> int:
            return json_size(self._ends(kept, length))

        lengths = range(len(kept) // 2 + 1)
        longest = bisect_right(lengths, room, key=size_at) - 1
        return self._ends(kept, max(longest, 0)), True

    def _ends(self, kept: bytes, length: int) -> str:
        beginning = kept[:length].decode(errors="replace")
        end = kept[len(kept) - length :].decode(errors="replace")
        return f"{beginning}\n[... {self.size - 2 * length} bytes left out ...]\n{end}"


def json_size(text: str) -> int:
    """Return how many bytes a text takes in a result."""
    return len(msgspec.json.encode(text))


class ContainedProcess:
    """A command that runs in a workspace."""

    def __init__(
        self, containment: Containment, root: Path, seconds: float, max_shown: int
    ) -> None:
        """Run in ``root`` for so many seconds at most.

        Show ``max_shown`` bytes of JSON of both streams together.
        """
        self._containment = containment
        self._root = root
        self._seconds = seconds
        self._max_shown = max_shown
        self._socket: socket.socket | None = None
        self._size = 0

    async def run(self, arguments: Sequence[str]) -> JsonObject:
        """Return {exit_code, signal?, stdout, stderr, duration_ms, truncated, …}.

        Nothing of the command is left, and no descriptor, whether this returns, raises or is
        cancelled.

        Raise ``ToolError``.
        """
        started = time.monotonic()
        with ExitStack() as closing:
            output, errors = await self._start(closing)
            lines = await self._finish([output, errors], arguments, closing)
            result = _result(lines, output, errors, self._max_shown)
            result["duration_ms"] = round((time.monotonic() - started) * 1000)
            return result

    async def _start(self, closing: ExitStack) -> list[KeptOutput]:
        """Start the call; return what will be kept of its output and of its errors.

        Raise ``ToolError``.
        """
        try:
            # The call gets copies of the writing ends. Ours are closed here, so that a stream ends
            # when the call closes its own.
            with ExitStack() as writers:
                output, output_writer = await self._open_pipe(closing, writers)
                errors, errors_writer = await self._open_pipe(closing, writers)
                self._socket = self._containment.start_call(
                    self._root, output_writer, errors_writer
                )
        except OSError as error:
            raise ToolError(
                ErrorCode.EXECUTION_FAILED, f"no command can be started: {error.strerror}"
            ) from None

        closing.callback(self._socket.close)
        return [output, errors]

    async def _finish(
        self, streams: Sequence[KeptOutput], arguments: Sequence[str], closing: ExitStack
    ) -> list[str]:
        """Wait for the end, or bring it about; return the lines of the keeper.

        Raise ``ToolError`` with TIMEOUT.
        """
        assert self._socket is not None
        self._socket.setblocking(False)
        talking = asyncio.create_task(self._talk(self._socket, arguments))
        closing.callback(talking.cancel)

        is_late = True
        try:
            await asyncio.wait({talking}, timeout=self._seconds)
            is_late = not talking.done()
        finally:
            # Also if the caller has gone: nothing of the command may be left
            self._end()
            ended: list[asyncio.Future[Any]] = [talking, *(stream.ended for stream in streams)]
            await asyncio.wait(ended, timeout=_END_SECONDS)

        if is_late:
            raise ToolError(
                ErrorCode.TIMEOUT,
                f"the command took longer than {self._seconds:g} s, and was ended.",
            )
        return talking.result()

    async def _talk(self, own: socket.socket, arguments: Sequence[str]) -> list[str]:
        """Say what to run; return the keeper's lines when nothing of the call is left."""
        loop = asyncio.get_running_loop()
        request = {
            "argv": list(arguments),
            "environment": self._containment.environment(self._root),
        }

        received = bytearray()
        try:
            await loop.sock_sendall(own, frame(request))
            while part := await loop.sock_recv(own, _READ):
                received += part
        except OSError:
            pass  # The keeper has been killed
        return received.decode(errors="replace").splitlines()

    async def _open_pipe(self, closing: ExitStack, writers: ExitStack) -> tuple[KeptOutput, int]:
        reader, writer = os.pipe()
        writers.callback(os.close, writer)
        stream = KeptOutput(self._count)
        file = os.fdopen(reader, "rb", buffering=0)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: stream, file)
        closing.callback(transport.close)
        return stream, writer

    def _count(self, size: int) -> None:
        self._size += size
        if self._size > MAX_OUTPUT:
            self._end()

    def _end(self) -> None:
        """Have the keeper end the command: it sees the end of the stream."""
        if self._socket is not None:
            with suppress(OSError):  # The keeper has ended
                self._socket.shutdown(socket.SHUT_WR)


def _result(
    lines: Sequence[str], output: KeptOutput, errors: KeptOutput, max_shown: int
) -> JsonObject:
    """Return the result that the keeper's lines tell. Raise ``ToolError`` if nothing has run."""
    status: int | None = None
    for line in lines:
        kind, _, rest = line.partition(" ")
        if kind == "failed":
            raise ToolError(ErrorCode.EXECUTION_FAILED, f"the command can't be started: {rest}")
        if kind == "status" and status is None:
            status = int(rest)
    if status is None:  # The keeper was killed, and its command with it
        status = signal.SIGKILL

    code = os.waitstatus_to_exitcode(status)
    result: JsonObject = {"exit_code": code if code >= 0 else _SIGNALED - code}
    if code < 0:
        result["signal"] = _signal_name(-code)

    if "memory" in lines:
        result["ended_for"] = "it took too much memory"
    elif output.size + errors.size > MAX_OUTPUT:
        result["ended_for"] = f"it printed more than {MAX_OUTPUT >> 20} MiB"

    is_cut = _show(result, {"stdout": output, "stderr": errors}, max_shown)
    return result | {"stdout_bytes": output.size, "stderr_bytes": errors.size, "truncated": is_cut}


def _signal_name(number: int) -> str:
    is_known = number in set(signal.Signals)
    return signal.Signals(number).name if is_known else f"SIG{number}"


def _show(result: JsonObject, streams: Mapping[str, KeptOutput], room: int) -> bool:
    """Add both streams to a result; return whether one is cut.

    The longer one has the room that the other one leaves.
    """
    is_any_cut = False
    by_size = sorted(streams, key=lambda name: streams[name].size)
    for shown, name in enumerate(by_size):
        text, is_cut = streams[name].show(room // (len(streams) - shown))
        result[name] = text
        room -= json_size(text)
        is_any_cut |= is_cut
    return is_any_cut
