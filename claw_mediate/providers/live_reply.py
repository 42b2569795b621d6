"""One streamed reply of a provider: it is shown while it comes, and put together.

Its time and its size have limits of their own (docs/spec/live.md section 8):

    from                                   to                    at most
    ─────────────────────────────────────  ────────────────────  ──────────────────────────────────
    the request                            the first event       the candidate's time
    the request                            the first piece that  the turn's time
                                             the runner has
    an event with content, or the runner   the next one          ``FlowLimits.idle``
      that takes it
    the first piece that the runner has    the reply's end       ``FlowLimits.total``, which all
                                                                   replies of a turn share

The first two are bounded by the callers, which are told of the events that end them. While a slow
runner is waited for, the last two stand still: the provider is not to blame. A runner that takes
nothing at all for ``FlowLimits.unread`` is waited for no longer.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

import httpx2

from claw_contract.sse import EventTooLongError, SseEvent, SseReader
from claw_mediate.core.reply_events import ReplyEvent
from claw_mediate.dialects.base import FailedResponseError, UnreadableResponseError
from claw_mediate.dialects.streams import Assembler, ReplySink
from claw_mediate.http.client import Response
from claw_mediate.http.large_bodies import compute

IDLE: Final = "provider_idle"
FLOW_SPENT: Final = "live_max_exceeded"
NOT_READ: Final = "runner_not_reading"
BROKE_OFF: Final = "provider_broke_off"

MAX_REPLY_BYTES: Final = 16 * 1024 * 1024  # A longer reply is a fault of the provider
MAX_HELD_BYTES: Final = 8 * 1024 * 1024  # From its first call on
_MAX_REPEATED_BYTES: Final = 4 * MAX_REPLY_BYTES
"""Bytes of the events that say again what was said: Responses tells each text four times more."""
_REPEATING: Final = frozenset({"closing", "end"})
_END_SECONDS: Final = 0.05
_MAX_END_BYTES: Final = 64 * 1024  # Of what may follow a reply that is over
_EVENT_STREAM: Final = "text/event-stream"
_MAX_BURST: Final = 32
"""Events of one stream that are read before others have a turn, though more are there."""


type RunnerHeaders = tuple[tuple[str, str], ...]
"""Headers of a provider's response that the runner may see."""


class BrokenReplyError(Exception):
    """A reply without its end. ``code`` says why it has none."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class ReplyTooLargeError(Exception):
    """A reply above the limits of its size."""


class FlowLimits(NamedTuple):
    """Seconds in which replies may flow."""

    idle: float = 120.0  # From one event with content to the next
    total: float = 1800.0  # Of all replies of a turn
    unread: float = 1800.0  # In which a runner takes nothing of what was shown


def _ignore() -> None: ...


def _ignore_headers(_headers: RunnerHeaders) -> None: ...


class LiveReply:
    """A reply that is told to ``sink`` while it comes: its limits, and what is known of it.

    ``on_head`` is called with the headers that the runner may see, once a reply begins to come;
    ``on_shown`` at once when the runner has its first piece.
    """

    def __init__(
        self,
        sink: ReplySink,
        limits: FlowLimits,
        *,
        on_head: Callable[[RunnerHeaders], None] = _ignore_headers,
        on_shown: Callable[[], None] = _ignore,
    ) -> None:
        self.sink = sink
        self.limits = limits
        self.on_head = on_head
        self.on_shown = on_shown
        self._on_event: Callable[[], None] | None = None
        self.has_shown = False
        """True once the runner has something of the reply, which can't be asked for again then."""
        self.usage: bytes | None = None
        """The usage that the last reply without an end has told, as JSON."""
        self.was_streamed = False
        """True if the last reply came as a stream, and not as one JSON body."""
        self.flow_seconds = 0.0
        """Time in which a reply has flowed: without what a slow runner took."""

    @contextmanager
    def on_first_event(self, listen: Callable[[], None]) -> Iterator[None]:
        """Call ``listen`` with the first event that comes in this context."""
        self._on_event = listen
        try:
            yield
        finally:
            self._on_event = None

    def note_event(self) -> None:
        """Note that an event has come."""
        if self._on_event is not None:
            self._on_event()
            self._on_event = None


def is_event_stream(response: Response) -> bool:
    """Return whether a response is a stream of events."""
    media_type = response.headers.get("content-type", "").partition(";")[0]
    return media_type.strip().lower() == _EVENT_STREAM


async def read_reply(response: Response, live: LiveReply) -> bytes:
    """Read a reply from its stream, and show it; return its body.

    Raise ``FailedResponseError`` for an error that the stream tells, ``UnreadableResponseError``,
    ``ReplyTooLargeError``, ``BrokenReplyError`` if it is silent for too long or ends without its
    end, and httpx2's errors if the connection breaks.
    """
    live.usage = None
    assembler = live.sink.begin()
    try:
        size = await _read_events(response, live, assembler)
        body = await compute(size, assembler.body)
    except BaseException:  # the runner's leaving, too: what is known of the cost is billed
        live.usage = assembler.usage()
        raise

    if len(body) > MAX_REPLY_BYTES:
        raise ReplyTooLargeError
    return body


async def _read_events(response: Response, live: LiveReply, assembler: Assembler) -> int:
    """Read a stream to its end; return the size of the reply, about."""
    feed = _EventFeed(live, assembler)
    timer = _FlowTimer(live.limits)
    chunks = response.aiter_bytes()
    try:
        async with asyncio.timeout(None) as timeout:
            with timer.run(timeout):
                async for chunk in chunks:
                    for events in feed.take(chunk):
                        if events:
                            await _show(live, events, timer)
                        if feed.ends_burst():
                            await asyncio.sleep(0)
                    if assembler.is_over:
                        break
    except TimeoutError:
        # A provider may say everything and leave its stream open.
        if not assembler.is_whole:
            raise BrokenReplyError(timer.code) from None
    finally:
        live.flow_seconds += timer.flow_seconds

    if not assembler.is_whole:
        raise BrokenReplyError(BROKE_OFF)
    if assembler.is_over:
        await _read_end(chunks)
    return feed.size


async def _read_end(chunks: AsyncIterator[bytes]) -> None:
    """Read what is left of a stream if it comes at once, so that its connection can be reused."""
    with suppress(TimeoutError, httpx2.HTTPError):
        async with asyncio.timeout(_END_SECONDS):
            size = 0
            async for chunk in chunks:
                size += len(chunk)
                if size > _MAX_END_BYTES:
                    return


async def _show(live: LiveReply, events: Sequence[ReplyEvent], timer: "_FlowTimer") -> None:
    """Give events to the sink, and wait for a slow runner."""
    sink = live.sink
    sink.show(events)
    if timer.is_flowing or any(event.kind != "opening" for event in events):
        timer.restart_idle()

    if sink.has_shown and not live.has_shown:
        live.has_shown = True
        live.on_shown()
        timer.begin_total()

    if sink.is_far_ahead:
        timer.pause()
        try:
            async with asyncio.timeout(live.limits.unread):
                await sink.wait_for_runner()
        except TimeoutError:
            raise BrokenReplyError(NOT_READ) from None
        timer.go_on()


class _EventFeed:
    """Gives the events of a stream to an assembler, within the limits of size."""

    def __init__(self, live: LiveReply, assembler: Assembler) -> None:
        self._live = live
        self._assembler = assembler
        self._reader = SseReader(MAX_REPLY_BYTES)
        self._has_call = False
        self._held = 0
        self._repeated = 0
        self._burst = 0  # Events since others had a turn
        self.size = 0
        """About the bytes of the reply: its texts, and the events that are no part of a text."""

    def take(self, chunk: bytes) -> Iterator[Sequence[ReplyEvent]]:
        """Yield what a chunk of the stream tells of the reply, a burst at a time.

        Raise ``FailedResponseError``, ``UnreadableResponseError`` and ``ReplyTooLargeError``, each
        behind what was told before.
        """
        told: list[ReplyEvent] = []
        try:
            for event in self._reader.feed(chunk):
                self._live.note_event()
                told += self._take_event(event)
                if self._assembler.is_over:
                    break
                if self._burst >= _MAX_BURST:
                    yield told
                    told = []
        except EventTooLongError:
            yield told
            raise ReplyTooLargeError from None
        except (FailedResponseError, UnreadableResponseError, ReplyTooLargeError):
            yield told
            raise
        yield told

    def ends_burst(self) -> bool:
        """Return whether others should have a turn before more is read.

        What a fast provider has sent lies ready for hundreds of events, so that nothing else makes
        the reader wait; even the first word would not be written before all of them are read.
        """
        if self._burst < _MAX_BURST:
            return False
        self._burst = 0
        return True

    def _take_event(self, event: SseEvent) -> Sequence[ReplyEvent]:
        self._burst += 1
        told = self._assembler.feed(event)
        error = self._assembler.error
        if error is not None:
            raise error

        if told:
            self._count(event, told)
        return told

    def _count(self, event: SseEvent, told: Sequence[ReplyEvent]) -> None:
        """Count an event by its text; one without text by its bytes."""
        size = sum(len(part.text) for part in told) or len(event.data)
        self._has_call = self._has_call or any(part.kind == "call" for part in told)
        if told[-1].kind in _REPEATING:
            self._repeated += size
        else:
            self.size += size
            if self._has_call:
                self._held += size

        if (
            self.size > MAX_REPLY_BYTES
            or self._held > MAX_HELD_BYTES
            or self._repeated > _MAX_REPEATED_BYTES
        ):
            raise ReplyTooLargeError


class _FlowTimer:
    """Ends a reply that is silent for too long, or that has flowed for too long.

    There is one timer, which looks when a limit may be over: to set it anew for each event would
    cost more than to read the event.
    """

    def __init__(self, limits: FlowLimits) -> None:
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._timeout: asyncio.Timeout | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._idle_since = math.inf
        self._total_until = math.inf  # So while the time stands still, and before it has begun
        self._total_left = limits.total
        self._has_begun_total = False
        self.is_flowing = False
        """True once content has come."""

    @contextmanager
    def run(self, timeout: asyncio.Timeout) -> Iterator[None]:
        """Make ``timeout`` end at a limit that is over, while in this context."""
        self._timeout = timeout
        try:
            yield
        finally:
            self._timeout = None
            if self._handle is not None:
                self._handle.cancel()

    @property
    def code(self) -> str:
        """Return the reason why the time was over."""
        return FLOW_SPENT if self._loop.time() >= self._total_until else IDLE

    @property
    def flow_seconds(self) -> float:
        """Return how long the reply has flowed."""
        left = min(self._total_left, self._total_until - self._loop.time())
        return self._limits.total - left

    def restart_idle(self) -> None:
        """Note that content has come, and that the provider's next is waited for."""
        self.is_flowing = True
        self._idle_since = self._loop.time()
        if self._handle is None:
            self._look_at(self._idle_since + self._limits.idle)

    def begin_total(self) -> None:
        """Note that the runner has the first piece."""
        self._has_begun_total = True
        self._total_until = self._loop.time() + self._total_left
        self._look_anew()

    def pause(self) -> None:
        """Note that the provider is not waited for now, but the runner."""
        self._idle_since = math.inf
        self._total_left = self._limits.total - self.flow_seconds
        self._total_until = math.inf

    def go_on(self) -> None:
        """Note that the runner has taken what it was behind with."""
        self.restart_idle()
        if self._has_begun_total:
            self.begin_total()

    def _look_anew(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._look()

    def _look(self) -> None:
        now = self._loop.time()
        due = min(self._idle_since + self._limits.idle, self._total_until)
        if now < due:
            # In a pause nothing is due. ``go_on`` may set no timer, so this one looks again.
            self._look_at(min(due, now + self._limits.idle))
        elif self._timeout is not None:
            self._timeout.reschedule(now)

    def _look_at(self, when: float) -> None:
        self._handle = self._loop.call_at(when, self._look)
