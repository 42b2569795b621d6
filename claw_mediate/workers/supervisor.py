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
_COPY_PAUSE_SECONDS = 0.005
"""The pause after lines were copied: those that come meanwhile are copied together."""
LATE_SECONDS: Final = 4.0
"""Less than the time between the drain and the end of a container (``grace_seconds``)."""
ALIVE_SECONDS: Final = 5.0
MAX_SILENT: Final = 6
"""Questions are counted, and not seconds.

While the whole proxy was stopped, or the machine slept, nobody was asked.
"""
_LAST_MILLISECONDS = 1000  # The time for the last lines, when all workers have ended
_SIGNALED = 128
"""A shell's exit code of a process that a signal ended is this and the signal's number."""
_MAX_UNSENT_BYTES = 1 << 20  # Of messages to a worker that does not read
_READ_BYTES = 1 << 16
_STREAMS = (1, 2)
_STOPPING = {signal.SIGTERM, signal.SIGINT}
_HANDLED = (*_STOPPING, signal.SIGHUP, signal.SIGCHLD)


@dataclass
class _Slot:
    """The place of one worker, and the process that has it."""

    number: int
    inner: socket.socket  # The place's listener on loopback, which outlives the process
    state: Literal["waiting", "starting", "up", "ended"] = "waiting"
    pid: int = 0  # 0 if no process has the place
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
    ``alive_seconds``: time between two questions whether a worker's loop runs.
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
        """Supervise until all workers have ended, and return None.

        It returns in each worker, too, and there it returns the worker's place.
        """
        gc.collect()
        gc.freeze()  # pages stay shared with the workers
        signaled = self._begin_signals()

        while True:
            for slot in self._slots.values():
                if not self._is_due(slot):
                    continue
                place = self._start(slot, signaled)
                if place is not None:
                    return place

            if all(slot.state == "ended" for slot in self._slots.values()):
                self._end()
                return None
            self._wait()

    def _begin_signals(self) -> tuple[int, int]:
        """Take signals as events of the selector; return both ends of their pipe."""
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

        for sign in _HANDLED:
            # At a terminal, SIGHUP ends this process, and so all.
            if sign == signal.SIGHUP and os.isatty(0):
                continue
            signal.signal(sign, lambda *_: None)  # the pipe tells of it

        self._selector.register(reader, selectors.EVENT_READ, partial(self._take_signals, reader))
        return reader, writer

    def _is_due(self, slot: _Slot) -> bool:
        may_start = slot.number == 1 or self._slots[1].has_been_up
        return slot.state == "waiting" and may_start and time.monotonic() >= slot.due

    def _start(self, slot: _Slot, signaled: tuple[int, int]) -> Place | None:
        """Fork a worker. Return None in the supervisor, and the worker's place in the new process.

        ``signaled``: the ends of the supervisor's pipe of signals, which the worker closes.
        """
        ours, theirs = socket.socketpair()
        relays = {stream: Relay(output) for stream, output in self._outputs.items()}
        ports = {each.number: each.inner.getsockname()[1] for each in self._slots.values()}
        is_alone = not any(each.pid for each in self._slots.values())

        # Blocked until the new process has handlers of its own.
        signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
        try:
            pid = os.fork()
            if pid == 0:
                self._leave(slot, signaled, relays)
                ours.close()
                return Place(
                    slot.number, len(self._slots), theirs, slot.inner, ports, is_alone=is_alone
                )
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)

        theirs.close()
        ours.setblocking(False)
        slot.state = "starting"
        slot.pid = pid
        slot.channel = ours
        slot.frames = FrameReader()
        slot.unsent = bytearray()
        slot.drain = 0.0
        slot.silent = 0
        slot.is_killed = False
        self._selector.register(ours, selectors.EVENT_READ, partial(self._serve, slot))

        for relay in relays.values():
            relay.close_end()
            self._relays.add(relay)
        return None

    def _leave(self, own: _Slot, signaled: tuple[int, int], relays: dict[int, Relay]) -> None:
        """Give up, in a new worker, all that is the supervisor's."""
        signal.set_wakeup_fd(-1)
        for sign in _HANDLED:
            handler = signal.default_int_handler if sign == signal.SIGINT else signal.SIG_DFL
            signal.signal(sign, handler)

        for stream, relay in relays.items():
            os.dup2(relay.end, stream)
            relay.close_end()
        for descriptor in signaled:
            os.close(descriptor)
        for relay in (*self._relays, *relays.values()):
            relay.close()

        for slot in self._slots.values():
            if slot.channel is not None:
                slot.channel.close()
            if slot is not own:
                slot.inner.close()

    def _wait(self) -> None:
        """Wait for the next event or time, and do what it asks for."""
        self._watch_outputs()
        times = self._next_times()
        timeout = max(0.0, min(times) - time.monotonic()) if times else None
        for key, _ in self._selector.select(timeout):
            key.data()

        self._questions.expire()
        self._kill_late()
        self._ask_whether_alive()
        if self._has_copied:
            self._has_copied = False
            time.sleep(_COPY_PAUSE_SECONDS)

    def _next_times(self) -> list[float]:
        """Return the monotonic times at which something is to be done."""
        times: list[float] = []
        for slot in self._slots.values():
            if slot.state == "waiting" and self._slots[1].has_been_up:
                times.append(slot.due)
            last_moment = self._last_moment(slot)
            if last_moment is not None:
                times.append(last_moment)

        if self._stopped_at is None:
            times.append(self._next_question)
        first_answer = self._questions.next_answer_at()
        if first_answer is not None:
            times.append(first_answer)
        return times

    def _take_signals(self, reader: int) -> None:
        """Do what the signals that have come ask for, each once."""
        numbers = os.read(reader, 1 << 10)  # One byte for each signal (``signal.set_wakeup_fd``)
        for number in dict.fromkeys(numbers):
            sign = signal.Signals(number)
            if sign == signal.SIGCHLD:
                self._reap()
                continue

            is_stopping = sign in _STOPPING
            if is_stopping:
                self._stop(sign)

            # All others get it, too. A worker that is not up yet has no handler for SIGHUP, which
            # would end it.
            for slot in self._slots.values():
                if slot.pid and (is_stopping or slot.state == "up"):
                    os.kill(slot.pid, sign)

    def _stop(self, sign: signal.Signals) -> None:
        """Start no more workers; those that run are sent ``sign`` by the caller."""
        if self._stopped_at is None:
            self._stopped_at = time.monotonic()
            if not any(slot.has_been_up for slot in self._slots.values()):
                self.exit_code = _SIGNALED + sign  # as one proxy that has not begun

        for slot in self._slots.values():
            if slot.state == "waiting":
                slot.state = "ended"

    def _last_moment(self, slot: _Slot) -> float | None:
        """Return when to kill a process that has been asked to end.

        None if there is none, or it is killed already.
        """
        if self._stopped_at is None or not slot.pid or slot.is_killed:
            return None
        return self._stopped_at + slot.drain + LATE_SECONDS

    def _kill_late(self) -> None:
        """Kill the workers that hang, or that somebody has stopped: nobody would end them."""
        for slot in self._slots.values():
            until = self._last_moment(slot)
            if until is None or time.monotonic() < until:
                continue

            slot.is_killed = True
            os.kill(slot.pid, signal.SIGKILL)
            seconds = slot.drain + LATE_SECONDS
            reason = (
                f"worker {slot.number} (process {slot.pid}) did not end in {seconds:g} s; "
                "it is killed"
            )
            self._events.event("error", error="worker_died", reason=reason)

    def _ask_whether_alive(self) -> None:
        """Ask each worker for a word of its loop.

        Kill those that have not replied for long: they hang, or somebody has stopped them.
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
        """Note the end of each process that has ended."""
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                for slot in self._slots.values():
                    if slot.pid == pid:
                        self._note_end(slot, os.waitstatus_to_exitcode(status))

    def _note_end(self, slot: _Slot, code: int) -> None:
        """Note that a slot's process has ended, and decide whether another takes its place.

        ``code``: its exit code, or the negative number of the signal that ended it.
        """
        if slot.channel is not None:
            self._serve(slot)  # what it sent last
            self._drop_channel(slot)
        pid = slot.pid
        slot.pid = 0
        was_up = slot.state == "up"
        self._questions.forget(slot.number)

        exit_code = code if code >= 0 else _SIGNALED - code
        if self._stopped_at is not None:  # it was asked to end
            slot.state = "ended"
            if was_up:
                self.exit_code = max(self.exit_code, exit_code)
            return

        slot.failed_starts = 0 if was_up else slot.failed_starts + 1
        if slot.has_been_up and slot.failed_starts < MAX_FAILED_STARTS:
            self._replace(slot, pid, code)
            return

        # It can't be started: all end, with its exit code.
        slot.state = "ended"
        self._stop(signal.SIGTERM)
        self.exit_code = exit_code
        for each in self._slots.values():
            if each.pid:
                os.kill(each.pid, signal.SIGTERM)

    def _replace(self, slot: _Slot, pid: int, code: int) -> None:
        """Let another process take a slot: at once, or after a wait that doubles each time."""
        now = time.monotonic()
        if slot.state == "up" and now - slot.since >= _SOUND_SECONDS:
            slot.failures = 0

        wait = 0.0
        if slot.failures:
            wait = min(_LONGEST_WAIT, self._first_wait * 2 ** (slot.failures - 1))
        slot.state = "waiting"
        slot.due = now + wait
        slot.failures += 1
        self._questions.deaths += 1

        if code < 0:
            how = f"was ended by {signal.Signals(-code).name}"
        else:
            how = f"ended with exit code {code}"
        when = f"in {wait:g} s" if wait else "at once"
        reason = f"worker {slot.number} (process {pid}) {how}; it is replaced {when}"
        self._events.event("error", error="worker_died", reason=reason)

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
                    slot.state = "up"
                    slot.since = time.monotonic()
                    slot.has_been_up = True
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
                sent = slot.channel.send(slot.unsent)
                del slot.unsent[:sent]

        events = selectors.EVENT_READ
        if slot.unsent:
            events |= selectors.EVENT_WRITE
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
            is_watched = output.descriptor in watched
            if output.is_behind and not is_watched:
                self._selector.register(output.descriptor, selectors.EVENT_WRITE, output.go_on)
            elif is_watched and not output.is_behind:
                self._selector.unregister(output.descriptor)

        for relay in self._relays:
            is_watched = relay.source in watched
            if relay.output.is_behind and is_watched:
                self._selector.unregister(relay.source)
            elif not relay.output.is_behind and not is_watched:
                copy = partial(self._copy, relay)
                self._selector.register(relay.source, selectors.EVENT_READ, copy)

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
    """Return the outputs that are relayed, by stream.

    Both streams have the same ``Output`` if they are one file.
    """
    outputs: dict[tuple[int, int], Output] = {}
    relayed: dict[int, Output] = {}
    for stream in _STREAMS:
        if is_file(stream):
            continue
        status = os.fstat(stream)
        relayed[stream] = outputs.setdefault((status.st_dev, status.st_ino), Output(stream))
    return relayed
