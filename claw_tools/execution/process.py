"""One command from its start to its end.

Rules. Both streams are read from the start. The command is ended when its time is over, when it has
printed too much, and when the caller has gone; the call ends when nothing of it is left.
"""

import asyncio
import os
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

from claw_contract.base import JsonObject
from claw_tools.errors import ErrorCode, ToolError
from claw_tools.execution.containment import Containment, frame
from claw_tools.execution.output import KeptOutput, json_size

MAX_OUTPUT: Final = 16 << 20
"""Bytes of both streams together, after which a command is ended."""
_END_SECONDS = 10.0
_SIGNALED = 128


class ContainedProcess:
    """A command that runs in a workspace."""

    def __init__(
        self, containment: Containment, root: Path, seconds: float, max_shown: int
    ) -> None:
        """Run in ``root`` for so many seconds at most; show so many bytes of JSON
        of both streams together.
        """
        self._containment, self._root, self._seconds, self._max_shown = (
            containment,
            root,
            seconds,
            max_shown,
        )
        self._socket: socket.socket | None = None
        self._size = 0

    async def run(self, arguments: Sequence[str]) -> JsonObject:
        """Return {exit_code, signal?, stdout, stderr, duration_ms, truncated, …}.

        Raise ``ToolError``.

        Nothing of the command is left, and no descriptor, whether this returns, raises or is
        cancelled.
        """
        started = time.monotonic()
        with ExitStack() as closing:
            output, errors = await self._start(closing)
            lines = await self._finish([output, errors], arguments, closing)
            return _result(lines, output, errors, self._max_shown) | {
                "duration_ms": round((time.monotonic() - started) * 1000)
            }

    async def _start(self, closing: ExitStack) -> list[KeptOutput]:
        """Start the call; return what will be kept of its output and of its errors.

        Raise ``ToolError``.
        """
        try:
            with ExitStack() as writers:
                pipes = [await self._open_pipe(closing, writers) for _ in range(2)]
                self._socket = self._containment.start_call(
                    self._root, *(writer for _, writer in pipes)
                )
        except OSError as error:
            raise ToolError(
                ErrorCode.EXECUTION_FAILED, f"no command can be started: {error.strerror}"
            ) from None
        closing.callback(self._socket.close)
        return [kept for kept, _ in pipes]

    async def _finish(
        self, kept: Sequence[KeptOutput], arguments: Sequence[str], closing: ExitStack
    ) -> list[str]:
        """Wait for the end, or bring it about; return the lines of the keeper."""
        assert self._socket is not None
        self._socket.setblocking(False)
        reading = asyncio.create_task(self._talk(self._socket, arguments))
        closing.callback(reading.cancel)
        is_late = True
        try:
            await asyncio.wait({reading}, timeout=self._seconds)
            is_late = not reading.done()
        finally:
            self._end()
            ended: list[asyncio.Future[Any]] = [reading, *(each.ended for each in kept)]
            await asyncio.wait(ended, timeout=_END_SECONDS)
        if is_late:
            raise ToolError(
                ErrorCode.TIMEOUT,
                f"the command took longer than {self._seconds:g} s, and was ended.",
            )
        return reading.result()

    async def _talk(self, own: socket.socket, arguments: Sequence[str]) -> list[str]:
        """Say what to run; return the keeper's lines when nothing of the call is left."""
        loop, said = asyncio.get_running_loop(), bytearray()
        request = {
            "argv": list(arguments),
            "environment": self._containment.environment(self._root),
        }
        try:
            await loop.sock_sendall(own, frame(request))
            while part := await loop.sock_recv(own, 4_096):
                said += part
        except OSError:
            pass  # The keeper has been killed
        return said.decode(errors="replace").splitlines()

    async def _open_pipe(self, closing: ExitStack, writers: ExitStack) -> tuple[KeptOutput, int]:
        reader, writer = os.pipe()
        writers.callback(os.close, writer)
        file, kept = os.fdopen(reader, "rb", buffering=0), KeptOutput(self._count)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: kept, file)
        closing.callback(transport.close)
        return kept, writer

    def _count(self, size: int) -> None:
        self._size += size
        if self._size > MAX_OUTPUT:
            self._end()

    def _end(self) -> None:
        """Have the keeper end the command: it sees the end of the stream."""
        if self._socket is not None:
            with suppress(OSError):  # It has ended
                self._socket.shutdown(socket.SHUT_WR)


def _result(
    lines: Sequence[str], output: KeptOutput, errors: KeptOutput, max_shown: int
) -> JsonObject:
    for line in lines:
        kind, _, rest = line.partition(" ")
        if kind == "failed":
            raise ToolError(ErrorCode.EXECUTION_FAILED, f"the command can't be started: {rest}")
    status = next(
        (int(line.removeprefix("status ")) for line in lines if line.startswith("status ")),
        signal.SIGKILL,
    )
    code = os.waitstatus_to_exitcode(status)
    result: dict[str, Any] = {"exit_code": code if code >= 0 else _SIGNALED - code}
    if code < 0:
        result["signal"] = (
            signal.Signals(-code).name if -code in set(signal.Signals) else f"SIG{-code}"
        )
    if "memory" in lines:
        result["ended_for"] = "it took too much memory"
    elif output.size + errors.size > MAX_OUTPUT:
        result["ended_for"] = f"it printed more than {MAX_OUTPUT >> 20} MiB"
    is_cut = _show(result, {"stdout": output, "stderr": errors}, max_shown)
    return result | {"stdout_bytes": output.size, "stderr_bytes": errors.size, "truncated": is_cut}


def _show(result: JsonObject, streams: Mapping[str, KeptOutput], room: int) -> bool:
    """Add both streams to a result, of which the longer one has the room that the
    other one leaves; return if any is cut.
    """
    is_cut = False
    for count, name in enumerate(sorted(streams, key=lambda each: streams[each].size)):
        result[name], is_shortened = streams[name].show(room // (len(streams) - count))
        room -= json_size(result[name])
        is_cut |= is_shortened
    return is_cut
