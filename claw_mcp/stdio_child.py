"""One run of a stdio server: its process, its lines, and the calls that wait for its answers.

Rules. A line that is no JSON-RPC message is reported and skipped; one that is too long ends the
run, since nobody can know which call it answers. A message with a method is never an answer,
whatever its id. Of the server's own requests only ``ping`` and ``roots/list`` are answered: one
process serves many clients, so that there is nobody to ask. Calls that wait when it ends get an
error.
"""

import asyncio
import itertools
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, Self

import msgspec

from claw_mcp.client_protocol import answer_request
from claw_mcp.protocol import (
    SERVER_ERROR,
    MessageError,
    RpcError,
    RpcMessage,
    read_answers,
    write_notification,
    write_request,
)
from claw_mcp.stateless import members

MAX_LINE: Final = 8 << 20
# More than the log shows of a line, so that a secret at its cut is recognized
_MAX_STDERR_LINE = 16 << 10
_MAX_UNREAD = 16 << 20  # Bytes that the server has not read yet
_MAX_CALLS = 1_024  # Calls that wait at once
_MAX_ID_DIGITS = 20
_LINES_AT_ONCE = 32  # Lines that are read before others have their turn
_STOP_SECONDS = 2.0  # Until the server has noticed the end of its input
_KILL_SECONDS = 5.0  # Until the reaper has ended everything
_LAST_LINES_SECONDS = 1.0  # Until all that it wrote is read
_REAPER: Final = Path(__file__).with_name("reaper.py")

type Params = Mapping[str, Any]
type OnProgress = Callable[[dict[str, msgspec.Raw]], None]


class NoAnswerError(RpcError):
    """A request that the server did not answer. ``was_sent``: it may have taken effect."""

    def __init__(self, message: str, *, was_sent: bool) -> None:
        super().__init__(SERVER_ERROR, message)
        self.was_sent = was_sent


class ChildObserver(Protocol):
    """The receiver of what a server sends unasked."""

    def notice(self, message: RpcMessage) -> None:
        """Take a notification other than progress."""

    def log_line(self, line: bytes) -> None:
        """Take a line of standard error, without its end."""

    def bad_output(self, problem: str, line: bytes) -> None:
        """Take a line that answers nothing; ``line`` is empty if it was too long to be read."""


class _Call(NamedTuple):
    answer: asyncio.Future[bytes]
    on_progress: OnProgress | None


class StdioChild:
    """A running server. ``ended`` is done when it sends no more."""

    def __init__(
        self, process: asyncio.subprocess.Process, lifeline: int, observer: ChildObserver
    ) -> None:
        """Read from ``process``, a reaper, which ends when ``lifeline`` is closed."""
        self._process = process
        self._lifeline = lifeline
        self._observer = observer
        self._last_id = 0
        self._calls: dict[bytes, _Call] = {}
        self.ended = asyncio.create_task(self._read())
        self._stderr = asyncio.create_task(self._read_stderr())

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        environment: Mapping[str, str],
        observer: ChildObserver,
        directory: Path | None = None,
    ) -> Self:
        """Start the server, in this process's directory or another.

        A command that can't be started ends at once, and says why on standard error.
        """
        reading, lifeline = os.pipe()
        pipe = asyncio.subprocess.PIPE
        arguments = ["-I", "-S", str(_REAPER), str(reading), *command]

        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *arguments,
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                cwd=directory,
                env=environment,
                pass_fds=(reading,),
                start_new_session=True,
                limit=MAX_LINE,
            )
        except BaseException:  # Cancelled, too: the reaper waits for the end of this pipe.
            os.close(lifeline)
            raise
        finally:
            os.close(reading)

        return cls(process, lifeline, observer)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def call(
        self, method: str, params: Params, seconds: float, on_progress: OnProgress | None = None
    ) -> bytes:
        """Return the result of a request as JSON.

        Raise ``RpcError``: the server's, or ``NoAnswerError``.
        """
        if self.ended.done():
            raise _gone(was_sent=False)
        if len(self._calls) >= _MAX_CALLS:
            raise NoAnswerError("too many calls wait for the server", was_sent=False)

        self._last_id += 1
        number = self._last_id
        if on_progress is not None:
            params = {**params, "_meta": {**params.get("_meta", {}), "progressToken": number}}

        key = str(number).encode()
        call = _Call(asyncio.get_running_loop().create_future(), on_progress)
        self._calls[key] = call
        try:
            self._write(write_request(key, method, _encode(params)))
            async with asyncio.timeout(seconds):
                return await call.answer
        except TimeoutError:
            self._cancel(number, "timed out")
            raise NoAnswerError(
                f"the server did not answer within {seconds:g} s", was_sent=True
            ) from None
        except asyncio.CancelledError:
            self._cancel(number, "cancelled by the client")
            raise
        finally:
            del self._calls[key]

    def notify(self, method: str, params: Params | None = None) -> None:
        """Send a notification; drop it if the server does not read."""
        with suppress(RpcError):
            self._write(write_notification(method, _encode(params)))

    async def stop(self) -> int:
        """End the server and all its descendants: by the end of its input, then by signals.

        Return its exit code.
        """
        assert self._process.stdin is not None
        self._process.stdin.close()
        if not await self._exits(_STOP_SECONDS):
            self._close_lifeline()
            await self._exits(_KILL_SECONDS)

        # The process is the reaper, which ends the server's descendants before itself. If it hangs,
        # or a signal ended it, it has left some: they are killed by its process group.
        code = self._process.returncode
        has_failed = code is None or code < 0
        if has_failed:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            await self._exits(_KILL_SECONDS)
        self._close_lifeline()

        await asyncio.wait((self.ended, self._stderr), timeout=_LAST_LINES_SECONDS)
        for task in (self.ended, self._stderr):
            task.cancel()
        await asyncio.gather(self.ended, self._stderr, return_exceptions=True)
        await self._drain()

        code = self._process.returncode
        return -1 if code is None else code

    async def _drain(self) -> None:
        """Read and drop what follows a line that is too long, so that the pipe is closed."""
        assert self._process.stdout is not None
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_LINES_SECONDS):
                while await self._process.stdout.read(1 << 16):
                    pass

    async def _exits(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._process.wait()
        return self._process.returncode is not None

    def _close_lifeline(self) -> None:
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1

    def _cancel(self, number: int, reason: str) -> None:
        self.notify("notifications/cancelled", {"requestId": number, "reason": reason})

    def _write(self, message: bytes) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        if stdin.is_closing():
            raise _gone(was_sent=False)
        if stdin.transport.get_write_buffer_size() > _MAX_UNREAD:
            raise NoAnswerError("the server does not read its input", was_sent=False)

        # Line breaks are white space between tokens: strings have none.
        stdin.write(message.replace(b"\n", b" ").replace(b"\r", b" ") + b"\n")

    async def _read(self) -> None:
        """Read the server's messages to their end, then fail the calls that wait."""
        stdout = self._process.stdout
        assert stdout is not None
        try:
            for count in itertools.count(1):
                line = await stdout.readline()
                if not line:
                    break

                if line.strip():
                    self._receive(line)
                if count % _LINES_AT_ONCE == 0:
                    await asyncio.sleep(0)
        except ValueError:
            self._observer.bad_output(f"a line is longer than {MAX_LINE} bytes", b"")
            self._close_lifeline()
        finally:
            for call in self._calls.values():
                if not call.answer.done():
                    call.answer.set_exception(_gone(was_sent=True))

    def _receive(self, line: bytes) -> None:
        try:
            messages = read_answers(line)
        except MessageError as error:
            self._observer.bad_output(str(error), line)
            return

        for message in messages:
            if message.is_request:
                self._answer(message)
            elif message.method == "notifications/progress":
                self._forward_progress(message)
            elif message.is_notification:
                self._observer.notice(message)
            elif not self._settle(message):
                self._observer.bad_output("an answer that nobody waits for", line)

    def _settle(self, message: RpcMessage) -> bool:
        """Give a call its answer; drop an answer that comes after its call was given up.

        Return False if the message is no answer to anything that was asked.
        """
        if not message.is_response:
            return False

        key = bytes(message.id)
        call = self._calls.get(key)
        if call is None:
            # Our ids count from 1, so one up to the last is of a call that was given up.
            is_number = key.isdigit() and len(key) < _MAX_ID_DIGITS
            return is_number and int(key) <= self._last_id
        if call.answer.done():
            return True

        error = message.rpc_error()
        if error is None:
            call.answer.set_result(bytes(message.result))
        else:
            call.answer.set_exception(error)
        return True

    def _forward_progress(self, message: RpcMessage) -> None:
        params = members(message.params)
        call = self._calls.get(bytes(params.get("progressToken", b"")))
        if call is not None and call.on_progress is not None:
            call.on_progress(params)

    def _answer(self, request: RpcMessage) -> None:
        """Answer a request of the server; drop the answer if it does not read."""
        with suppress(RpcError):
            self._write(answer_request(request, "there is no client to ask: this server has many"))

    async def _read_stderr(self) -> None:
        stderr = self._process.stderr
        assert stderr is not None
        rest = b""
        while chunk := await stderr.read(1 << 16):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._observer.log_line(line[:_MAX_STDERR_LINE])
            rest = rest[:_MAX_STDERR_LINE]
        if rest:
            self._observer.log_line(rest)


def _encode(params: Params | None) -> bytes:
    """Return params as JSON; b"" if there are none, so that the message has no such member."""
    return msgspec.json.encode(params) if params else b""


def _gone(*, was_sent: bool) -> NoAnswerError:
    return NoAnswerError("the server ended before it answered", was_sent=was_sent)
