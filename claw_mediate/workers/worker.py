"""A process as one of several workers.

It has a place, and it asks the others through the supervisor.

Rules. A process without a supervisor has no ``current()``, and nothing here concerns it. The end of
the supervisor, however it comes, ends its workers as SIGTERM does: they drain. They stop listening
at once, since a new proxy waits for their addresses.
"""

import asyncio
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from claw_contract.names import worker_directory
from claw_mediate.workers.frames import FrameReader, Message, Topic, write_frame

ASK_SECONDS: Final = 2.0  # The longest wait for the others
SUPERVISOR: Final = 0  # The number of the supervisor among those who reply
_READ_BYTES = 1 << 16

type Reply = Callable[[bytes], Awaitable[bytes]]
"""Returns the reply to a question's body."""


@dataclass(frozen=True)
class Place:
    """A worker's place, as the supervisor gives it."""

    number: int  # From 1 on
    count: int  # Of all workers
    channel: socket.socket  # To the supervisor
    inner: socket.socket
    """The worker's listener on loopback, at which the others reach it."""
    ports: Mapping[int, int] = field(default_factory=dict)
    """The ports of all workers' ``inner``, by number.

    The supervisor holds all of them open, so that none can ever lead to another program.
    """
    is_alone: bool = False
    """True if no other worker has a listener, so that an address in use is somebody else's."""


class Worker:
    """A process among its siblings."""

    def __init__(self, place: Place) -> None:
        """Take a place; nothing is sent before ``begin``."""
        self.place = place
        self._replies: dict[Topic, Reply] = {"alive": _reply_alive}
        self._last_steps: list[Callable[[], None]] = []
        self._asked: dict[int, asyncio.Future[Mapping[int, bytes]]] = {}
        self._last_number = 0
        self._drain_ms = 0
        self._writer: asyncio.StreamWriter | None = None
        self._tasks: set[asyncio.Future[None]] = set()
        self.inner_server: asyncio.Server | None = None

    @property
    def number(self) -> int:
        return self.place.number

    @property
    def is_up(self) -> bool:
        return self._writer is not None

    @property
    def is_orphan(self) -> bool:
        """Return whether the supervisor has ended.

        Ask before ``begin``: afterwards the end is noticed by itself.
        """
        try:
            return not self.place.channel.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def when_orphaned(self, step: Callable[[], None]) -> None:
        """Do a step as soon as the supervisor is gone, before the drain."""
        self._last_steps.append(step)

    async def begin(self) -> None:
        """Report that the listeners are open, and answer the supervisor from now on."""
        if self._writer is None:
            reader, self._writer = await asyncio.open_unix_connection(sock=self.place.channel)
            self._keep(self._serve(reader))
        self._send(Message("up", self._drain_ms))

    def set_drain(self, seconds: float) -> None:
        """Tell the supervisor how long this process may take to end after a signal to stop."""
        self._drain_ms = round(seconds * 1000)
        self._send(Message("up", self._drain_ms))  # only if it is up

    def reply(self, topic: Topic, reply: Reply) -> None:
        """Answer questions about a topic by ``reply`` from now on."""
        self._replies[topic] = reply

    async def ask_all(self, topic: Topic, body: bytes = b"") -> Mapping[int, bytes]:
        """Return the replies of all workers, this one too, by their numbers.

        Those who are not up, or silent, are missing.
        """
        if self._writer is None:
            return {}

        self._last_number += 1
        number = self._last_number
        answer: asyncio.Future[Mapping[int, bytes]] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        self._send(Message("ask", number, topic, body=body))
        try:
            async with asyncio.timeout(ASK_SECONDS):
                return await answer
        except TimeoutError:
            return {}
        finally:
            del self._asked[number]

    async def find_problem(self) -> str | None:
        """Return in one line which worker is not ready, and why; None if all are."""
        problems = await self.ask_all("ready")
        for number in range(1, self.place.count + 1):
            problem = problems.get(number)
            if problem is None:
                return f"worker {number} is not up"
            if problem:
                return f"worker {number}: {problem.decode()}"
        return None

    async def _serve(self, reader: asyncio.StreamReader) -> None:
        frames = FrameReader()
        try:
            while data := await reader.read(_READ_BYTES):
                for message in frames.read(data):
                    self._handle(message)
        except OSError:
            pass

        # The supervisor is gone.
        for step in self._last_steps:
            step()
        os.kill(os.getpid(), signal.SIGTERM)

    def _handle(self, message: Message) -> None:
        if message.kind == "question":
            self._keep(self._reply(message))
        elif message.kind == "answer":
            waiting = self._asked.get(message.number)
            if waiting is not None and not waiting.done():
                waiting.set_result(message.parts)

    async def _reply(self, question: Message) -> None:
        reply = self._replies.get(question.topic)
        if reply is None:
            return

        parts = {self.number: await reply(question.body)}
        self._send(Message("reply", question.number, question.topic, parts))

    def _send(self, message: Message) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(write_frame(message))

    def _keep(self, step: Awaitable[None]) -> None:
        task = asyncio.ensure_future(step)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _reply_alive(_body: bytes) -> bytes:
    return b""


_current: list[Worker] = []


def current() -> Worker | None:
    """Return this process as a worker; None where it is the whole proxy."""
    return _current[0] if _current else None


def become(place: Place) -> Worker:
    """Make this process the worker of that place."""
    _current[:] = [Worker(place)]
    return _current[0]


def own_history(directory: Path) -> Path:
    """Return the directory of this process's own history.

    Each worker has one, because two writers would break the chain of a file.
    """
    worker = current()
    if worker is None:
        return directory
    return directory / worker_directory(worker.number)
