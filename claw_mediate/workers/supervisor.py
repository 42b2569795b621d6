"""The supervisor of a proxy with workers: ``claw proxy --workers N`` (decision 0035).

    the start             the first worker alone: it makes what all use (mitmproxy's CA, the state's
                          tables), and notices an address that somebody else listens on. When its
                          listeners are open, the others follow
    a worker dies         another takes its place at once; one that dies again within a minute
                          waits, each time twice as long
    a worker hangs        its loop is asked every ``ALIVE_SECONDS``; after ``MAX_SILENT`` questions
                          without any word of it, it is killed, and replaced
    one does not start    the first time: all end, with its exit code. Later only after
                          ``MAX_FAILED_STARTS``, with the same waits
    SIGTERM, SIGINT       all workers get it, and drain; the exit code is the greatest of those that
                          had opened their listeners. One that has not ended ``LATE_SECONDS`` after
                          its time for that is killed
    SIGHUP                all workers get it
    the supervisor dies   its workers notice, stop to listen at once, and drain

Workers are forks of this process, which has imported what they need and done nothing else: it has
one thread and no event loop.
"""

import gc
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Literal, NoReturn

from claw_mediate.telemetry.event_log import EventLog
from claw_mediate.workers import worker
from claw_mediate.workers.frames import FrameReader, Message, write_frame
from claw_mediate.workers.output import Output, Relay, is_file
from claw_mediate.workers.questions import Questions
from claw_mediate.workers.worker import Place

MAX_FAILED_STARTS: Final = 5
_SOUND_SECONDS = 60.0  # A worker that lived longer is replaced at once
FIRST_WAIT: Final = 0.5
_LONGEST_WAIT = 30.0
_COPY_PAUSE_SECONDS = (
    0.005  # After lines were copied: those that come meanwhile are copied together
)
LATE_SECONDS: Final = (
    4.0  # Less than the time between the drain and the end of a container (``grace_seconds``)
)
ALIVE_SECONDS: Final = 5.0
MAX_SILENT: Final = 6
"""Questions are counted, and not seconds: where the whole proxy was stopped, or the
machine slept, nobody was asked.
"""
_LAST_MILLISECONDS = 1000  # The time for the last lines, when all workers have ended
_SIGNALED = (
    128  # A shell's exit code of a process that a signal ended is this and the signal's number
)
_MAX_UNSENT_BYTES = 1 << 20  # Of messages to a worker that does not read
_READ_BYTES = 1 << 16
_STREAMS = (1, 2)
_STOPPING = {signal.SIGTERM, signal.SIGINT}
_HANDLED = (*_STOPPING, signal.SIGHUP, signal.SIGCHLD)


@dataclass
class _Slot:
    """The place of one worker, and the process that has it. ``pid`` 0: none has."""

    number: int
    inner: socket.socket
    state: Literal["waiting", "starting", "up", "ended"] = "waiting"
    pid: int = 0
    channel: socket.socket | None = None
    frames: FrameReader = field(default_factory=FrameReader)
    unsent: bytearray = field(default_factory=bytearray)
    due: float = 0.0  # When to start a process
    since: float = 0.0  # When the process opened its listeners
    failures: int = 0  # Deaths, each soon after the one before
    failed_starts: int = 0
    has_been_up: bool = False
    drain: float = 0.0  # The seconds that the process may take to end
    silent: int = 0  # Questions since its last word
    is_killed: bool = False


def supervise(
    count: int,
    serve: Callable[[], object],
    first_wait: float = FIRST_WAIT,
    alive_seconds: float = ALIVE_SECONDS,
) -> NoReturn:
    """Run ``serve`` in ``count`` processes until they are to end, and exit with their code.

    ``first_wait``: seconds before a worker is replaced that died soon after its predecessor.
    ``alive_seconds``: from one question whether a worker's loop runs to the next.
    """
    supervisor = Supervisor(count, first_wait, alive_seconds)
    place = supervisor.run()
    if place is None:
        sys.exit(supervisor.exit_code)
    worker.become(place)
    sys.exit(serve())  # type: ignore[arg-type] # whatever it returns is what its own program exits with


class Supervisor:
    """The processes of one proxy."""

    def __init__(
        self, count: int, first_wait: float = FIRST_WAIT, alive_seconds: float = ALIVE_SECONDS
    ) -> None:
        """Open what outlives a worker: its listener on loopback, and the outputs."""
        self.exit_code = 0
        self._first_wait = first_wait
        self._alive_seconds = alive_seconds
        self._next_question = time.monotonic() + alive_seconds
        self._slots = {
            number: _Slot(number, socket.create_server(("127.0.0.1", 0)))
            for number in range(1, count + 1)
        }
        self._outputs = _outputs()
        self._events = EventLog(self._outputs[1].write if 1 in self._outputs else None)
        self._questions = Questions(count, self._send)
        self._selector = selectors.PollSelector()  # poll takes any file, epoll does not
        self._relays: set[Relay] = set()
        self._stopped_at: float | None = None  # When the end began
        self._has_copied = False

    def run(self) -> Place | None:
        """Supervise until all workers have ended, and return None; in each worker,
        return its place.
        """
        gc.collect()
        gc.freeze()  # pages stay shared with the workers
        signaled = self._begin_signals()
        while True:
            for slot in self._slots.values():
                if self._is_due(slot) and (place := self._start(slot, signaled)) is not None:
                    return place
            if all(slot.state == "ended" for slot in self._slots.values()):
                self._end()
                return None
            self._wait()

    def _begin_signals(self) -> tuple[int, int]:
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for sign in _HANDLED:
            if sign != signal.SIGHUP or not os.isatty(
                0
            ):  # at a terminal it ends this process, and so all
                signal.signal(sign, lambda *_: None)
        self._selector.register(reader, selectors.EVENT_READ, partial(self._take_signals, reader))
        return reader, writer

    def _is_due(self, slot: _Slot) -> bool:
        may_start = slot.number == 1 or self._slots[1].has_been_up
        return slot.state == "waiting" and may_start and time.monotonic() >= slot.due

    def _start(self, slot: _Slot, signaled: tuple[int, int]) -> Place | None:
        """Start a process; return its place in it."""
        ours, theirs = socket.socketpair()
        relays = {stream: Relay(output) for stream, output in self._outputs.items()}
        ports = {each.number: each.inner.getsockname()[1] for each in self._slots.values()}
        is_alone = not any(each.pid for each in self._slots.values())
        signal.pthread_sigmask(
            signal.SIG_BLOCK, _HANDLED
        )  # until the new process has handlers of its own
        try:
            if not (pid := os.fork()):
                self._leave(slot, signaled, relays)
                ours.close()
                return Place(
                    slot.number, len(self._slots), theirs, slot.inner, ports, is_alone=is_alone
                )
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)
        theirs.close()
        ours.setblocking(False)
        slot.state, slot.pid, slot.channel = "starting", pid, ours
        slot.frames, slot.unsent, slot.drain = FrameReader(), bytearray(), 0.0
        slot.silent, slot.is_killed = 0, False
        self._selector.register(ours, selectors.EVENT_READ, partial(self._serve, slot))
        for relay in relays.values():
            relay.close_end()
            self._relays.add(relay)
        return None

    def _leave(self, own: _Slot, signaled: tuple[int, int], relays: dict[int, Relay]) -> None:
        """Give up, in a new worker, all that is the supervisor's."""
        signal.set_wakeup_fd(-1)
        for sign in _HANDLED:
            signal.signal(
                sign, signal.default_int_handler if sign == signal.SIGINT else signal.SIG_DFL
            )
        for stream, relay in relays.items():
            os.dup2(relay.end, stream)
            relay.close_end()
        for descriptor in (
            *signaled,
            *(relay.source for relay in (*self._relays, *relays.values())),
        ):
            os.close(descriptor)
        for slot in self._slots.values():
            if slot.channel is not None:
                slot.channel.close()
            if slot is not own:
                slot.inner.close()

    def _wait(self) -> None:
        self._watch_outputs()
        times = [
            slot.due
            for slot in self._slots.values()
            if slot.state == "waiting" and self._slots[1].has_been_up
        ]
        times += [
            until for slot in self._slots.values() if (until := self._last_moment(slot)) is not None
        ]
        if self._stopped_at is None:
            times.append(self._next_question)
        if (until := self._questions.seconds_left()) is not None:
            times.append(until)
        timeout = max(0.0, min(times) - time.monotonic()) if times else None
        for key, _ in self._selector.select(timeout):
            key.data()
        self._questions.expire()
        self._kill_late()
        self._ask_whether_alive()
        if self._has_copied:
            self._has_copied = False
            time.sleep(_COPY_PAUSE_SECONDS)

    def _take_signals(self, reader: int) -> None:
        for number in dict.fromkeys(os.read(reader, 1 << 10)):
            sign = signal.Signals(number)
            if sign == signal.SIGCHLD:
                self._reap()
                continue
            if sign in _STOPPING:
                self._stop(sign)
            for slot in self._slots.values():
                # Before it is up, SIGHUP would end it.
                if slot.pid and (sign in _STOPPING or slot.state == "up"):
                    os.kill(slot.pid, sign)

    def _stop(self, sign: signal.Signals) -> None:
        if self._stopped_at is None:
            self._stopped_at = time.monotonic()
            if not any(slot.has_been_up for slot in self._slots.values()):
                self.exit_code = _SIGNALED + sign  # as one proxy that has not begun
        for slot in self._slots.values():
            if slot.state == "waiting":
                slot.state = "ended"

    def _last_moment(self, slot: _Slot) -> float | None:
        """Return when to kill a process that has been asked to end; None if there
        is none, or it is killed already.
        """
        if self._stopped_at is None or not slot.pid or slot.is_killed:
            return None
        return self._stopped_at + slot.drain + LATE_SECONDS

    def _kill_late(self) -> None:
        """Kill the workers that hang, or that somebody has stopped: nobody would end them."""
        for slot in self._slots.values():
            if (until := self._last_moment(slot)) is not None and time.monotonic() >= until:
                slot.is_killed = True
                os.kill(slot.pid, signal.SIGKILL)
                seconds = slot.drain + LATE_SECONDS
                reason = (
                    f"worker {slot.number} (process {slot.pid}) did not end in {seconds:g} s; "
                    "it is killed"
                )
                self._events.event("error", error="worker_died", reason=reason)

    def _ask_whether_alive(self) -> None:
        """Ask each worker for a word of its loop, and kill those that hang, or that
        somebody has stopped.
        """
        now = time.monotonic()
        if self._stopped_at is not None or now < self._next_question:
            return

        self._next_question = now + self._alive_seconds
        for slot in self._slots.values():
            if slot.state != "up" or slot.is_killed:
                continue
            if slot.silent >= MAX_SILENT:
                self._kill_silent(slot)
                continue
            slot.silent += 1
            self._send(slot.number, Message("question", topic="alive"))

    def _kill_silent(self, slot: _Slot) -> None:
        slot.is_killed = True
        os.kill(slot.pid, signal.SIGKILL)
        seconds = MAX_SILENT * self._alive_seconds
        reason = (
            f"worker {slot.number} (process {slot.pid}) hangs: it has not replied for "
            f"{seconds:g} s; it is killed"
        )
        self._events.event("error", error="worker_died", reason=reason)

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                for slot in self._slots.values():
                    if slot.pid == ended[0]:
                        self._note_end(slot, os.waitstatus_to_exitcode(ended[1]))

    def _note_end(self, slot: _Slot, code: int) -> None:
        if slot.channel is not None:
            self._serve(slot)  # what it sent last
            self._drop_channel(slot)
        was_up, pid, slot.pid = slot.state == "up", slot.pid, 0
        self._questions.forget(slot.number)
        exit_code = code if code >= 0 else _SIGNALED - code
        if self._stopped_at is not None:
            slot.state = "ended"
            self.exit_code = max(self.exit_code, exit_code if was_up else 0)
            return
        slot.failed_starts = 0 if was_up else slot.failed_starts + 1
        if not slot.has_been_up or slot.failed_starts >= MAX_FAILED_STARTS:
            slot.state = "ended"
            self._stop(signal.SIGTERM)
            self.exit_code = exit_code
            for each in self._slots.values():
                if each.pid:
                    os.kill(each.pid, signal.SIGTERM)
            return
        self._replace(slot, pid, code)

    def _replace(self, slot: _Slot, pid: int, code: int) -> None:
        now = time.monotonic()
        if slot.state == "up" and now - slot.since >= _SOUND_SECONDS:
            slot.failures = 0
        wait = (
            min(_LONGEST_WAIT, self._first_wait * 2 ** (slot.failures - 1))
            if slot.failures
            else 0.0
        )
        slot.state, slot.due, slot.failures = "waiting", now + wait, slot.failures + 1
        self._questions.deaths += 1
        how = (
            f"was ended by {signal.Signals(-code).name}"
            if code < 0
            else f"ended with exit code {code}"
        )
        when = f"in {wait:g} s" if wait else "at once"
        self._events.event(
            "error",
            error="worker_died",
            reason=f"worker {slot.number} (process {pid}) {how}; it is replaced {when}",
        )

    def _serve(self, slot: _Slot) -> None:
        """Read and send what can be read and sent."""
        if slot.channel is None:
            return  # its process ended, as an event before this one said
        try:
            while data := slot.channel.recv(_READ_BYTES):
                for message in slot.frames.read(data):
                    self._handle(slot, message)
        except BlockingIOError:
            self._flush(slot)
            return
        except OSError:
            pass
        self._drop_channel(slot)  # it has ended, or is about to

    def _handle(self, slot: _Slot, message: Message) -> None:
        slot.silent = 0
        match message.kind:
            case "up":
                slot.drain = message.number / 1000
                if slot.state == "starting":
                    slot.state, slot.since, slot.has_been_up = "up", time.monotonic(), True
            case "ask":
                up = [
                    each.number
                    for each in self._slots.values()
                    if each.state == "up" and each.channel is not None
                ]
                self._questions.ask(slot.number, message, up)
            case _:
                self._questions.take_reply(message)

    def _send(self, number: int, message: Message) -> None:
        slot = self._slots[number]
        if slot.channel is not None and len(slot.unsent) < _MAX_UNSENT_BYTES:
            slot.unsent += write_frame(message)
            self._flush(slot)

    def _flush(self, slot: _Slot) -> None:
        if slot.channel is None:
            return
        with suppress(OSError):  # full, or the worker has ended
            while slot.unsent:
                del slot.unsent[: slot.channel.send(slot.unsent)]
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if slot.unsent else 0)
        self._selector.modify(slot.channel, events, partial(self._serve, slot))

    def _drop_channel(self, slot: _Slot) -> None:
        if slot.channel is not None:
            self._selector.unregister(slot.channel)
            slot.channel.close()
            slot.channel = None

    def _watch_outputs(self) -> None:
        """Read from workers whose lines have room, and watch for room where they have none."""
        watched = self._selector.get_map()
        for output in set(self._outputs.values()):
            if output.is_behind != (output.descriptor in watched):
                if output.is_behind:
                    self._selector.register(output.descriptor, selectors.EVENT_WRITE, output.go_on)
                else:
                    self._selector.unregister(output.descriptor)
        for relay in self._relays:
            if relay.output.is_behind == (relay.source in watched):
                if relay.output.is_behind:
                    self._selector.unregister(relay.source)
                else:
                    self._selector.register(
                        relay.source, selectors.EVENT_READ, partial(self._copy, relay)
                    )

    def _copy(self, relay: Relay) -> None:
        self._has_copied = True
        if not relay.copy():
            self._selector.unregister(relay.source)
            self._relays.discard(relay)
            relay.close()

    def _end(self) -> None:
        """Copy the last lines."""
        for output in self._outputs.values():
            output.go_on(_LAST_MILLISECONDS)
        for relay in self._relays:
            while not relay.output.is_behind and relay.has_input() and relay.copy():
                relay.output.go_on(_LAST_MILLISECONDS)


def _outputs() -> dict[int, Output]:
    """Return the outputs that are relayed, by stream; both streams may have one."""
    outputs: dict[tuple[int, int], Output] = {}
    relayed: dict[int, Output] = {}
    for stream in _STREAMS:
        if not is_file(stream):
            status = os.fstat(stream)
            relayed[stream] = outputs.setdefault((status.st_dev, status.st_ino), Output(stream))
    return relayed
