"""The state of a flow: one ``FlowState`` for all parts of the addon.

It is an attribute of the flow object. It can't be kept by the flow's id: a flow that is loaded from
a file may have the id of one under way. It is not in ``flow.metadata``, which is copied and saved
with the flow. And it is not in an addon: a script may be reloaded between two hooks of one request,
and this module outlives it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol
from weakref import WeakSet, WeakValueDictionary

from mitmproxy import http

from claw_contract.redaction.redactor import Redactor
from claw_mediate.agents.authenticate import Identity
from claw_mediate.core.cost import ReceivedAnswer
from claw_mediate.core.http import KeepaliveChunk
from claw_mediate.mediator import Mediator
from claw_mediate.mitm.body_bytes import HeldBody
from claw_mediate.turns.passthrough import PassthroughHandle

type HeaderField = tuple[bytes, bytes]
type HeaderFields = tuple[HeaderField, ...]

_MAX_COLLECTED = 65_536
"""Bytes that are collected, if they are ready, before they are sent."""

_closing: set[asyncio.Future[Any]] = set()
"""Generators that are being closed: asyncio itself keeps no reference to a task."""


async def _take_at_once() -> None: ...


class ChunkSource:
    """The chunks of one response, as the door pulls them."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self.chunks = chunks
        self.ready = b""
        self.has_ended = False
        self.error: BaseException | None = None
        self._next: asyncio.Future[bytes | None] | None = None

    async def pull(self, drain: Callable[[], Awaitable[None]] = _take_at_once) -> None:
        """Wait for a chunk, once ``drain`` has returned: the runner takes more.

        Take the following chunks that are ready, too. Never raise: set ``has_ended``, and ``error``
        after a failure.
        """
        collected: list[bytes] = []
        try:
            await drain()
            self._drop_keepalive()
            await self._collect(collected)
        except BaseException as error:  # whatever failed, the stream is cut, and never left hanging
            self.error = error
            self.has_ended = True
            self._next = None
            if _is_being_cancelled():
                raise
        finally:
            self.ready = b"".join(collected)

    async def _collect(self, collected: list[bytes]) -> None:
        size = 0
        while size < _MAX_COLLECTED and not self.has_ended:
            if self._next is None:
                self._next = asyncio.ensure_future(_next_of(self.chunks))
            if collected and not self._next.done():
                return  # it is the first chunk of the next pull

            chunk = await self._next
            self._next = None
            if chunk is None:
                self.has_ended = True
            else:
                collected.append(chunk)
                size += len(chunk)

    def _drop_keepalive(self) -> None:
        """Drop the next chunk if it is a keepalive that has been made already.

        The generator is one step ahead. What it made while the runner took nothing is late.
        """
        step = self._next
        if step is None or not step.done() or step.cancelled() or step.exception() is not None:
            return

        if isinstance(step.result(), KeepaliveChunk):
            self._next = None

    def cancel(self) -> None:
        """Stop, because the runner has left or the stream is over.

        The generator is closed even if it was never started.
        """
        if self._next is not None:
            self._next.cancel()

        if not self.has_ended:
            closing = asyncio.ensure_future(self._close(self._next))
            _closing.add(closing)
            closing.add_done_callback(_closing.discard)
            self.has_ended = True

    async def _close(self, pulling: asyncio.Future[bytes | None] | None) -> None:
        if pulling is not None:
            await asyncio.wait([pulling])
        if (close := getattr(self.chunks, "aclose", None)) is not None:
            await close()


class ResponseTap(Protocol):
    """A stream callable that reads a copy of a response: bytes in, the same bytes out."""

    body: bytearray

    def received(self, status: int) -> ReceivedAnswer: ...
    def __call__(self, data: bytes) -> bytes: ...


class ForwardedRequest(NamedTuple):
    """A request that mitmproxy sends on."""

    mediator: Mediator
    handle: PassthroughHandle
    tap: ResponseTap | None = None
    """None until the head of the response is there."""


class TurnAnswer:
    """The answer of one turn on its way to all runners that ask for it.

    It is delivered when the last of them has it, or has left. Several runners may have joined
    one turn: if it were done when the first has its answer, another one that got only a part,
    and asks anew, would begin a new turn.
    """

    def __init__(self, on_delivered: Callable[[], Awaitable[None]]) -> None:
        self._on_delivered = on_delivered
        self._runners = 0
        self._has_reached_one = False

    @classmethod
    def of(cls, turn_id: str, on_delivered: Callable[[], Awaitable[None]]) -> "TurnAnswer":
        """Return the answer of this turn for one more runner."""
        answer = _answers.get(turn_id)
        if answer is None:
            answer = _answers[turn_id] = cls(on_delivered)
        answer._runners += 1
        return answer

    def note_end(self, *, is_delivered: bool) -> Awaitable[None] | None:
        """Note that a runner has the answer, or never will.

        If it was the last one, and any of them has it, return what marks it as delivered.
        """
        self._runners -= 1
        self._has_reached_one |= is_delivered
        return self._on_delivered() if self._has_reached_one and not self._runners else None


_answers: WeakValueDictionary[str, TurnAnswer] = WeakValueDictionary()
"""The answers by the ids of their turns."""
_marking: set[asyncio.Future[None]] = set()


@dataclass(slots=True)
class PendingRequest:
    """A governed request, until the last byte of its response went to the connection.

    It may also never go there. The answer of a turn must have left the process
    (``response_stream/delivery.py``).
    """

    client_id: str  # The id of the connection that it came on
    body: HeldBody | None = None  # The bytes that are counted for its body
    admitted: Identity | None = None  # The agent, while the body is still to come
    answer: TurnAnswer | None = None  # What the response is, if it is a turn's
    is_being_delivered: bool = False
    """True if the response is whole, and may wait in the connection's buffers."""
    has_ended: bool = False  # mitmproxy has reported the response, or the error
    done: asyncio.Future[None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    def note_turn(self, turn_id: str, on_delivered: Callable[[], Awaitable[None]]) -> None:
        """Note whose answer the response is."""
        self.answer = TurnAnswer.of(turn_id, on_delivered)


@dataclass(slots=True)
class Originals:
    """The parts of one message that are not shown.

    Each pair is (shown, original); ``fields`` maps a shown header to its original.
    """

    fields: dict[HeaderField, HeaderField] = field(default_factory=dict)
    """No two headers are shown alike.

    So each leads back to its own original, wherever it is moved to.
    """
    head: tuple[HeaderFields, HeaderFields] | None = None
    """All headers; they hold as long as nobody has edited one."""
    line: tuple[bytes, bytes] | None = None
    """A request's target, or a response's reason phrase."""
    body: tuple[bytes, bytes] | None = None
    """The shown body is this very object: any other one is an edit."""
    head_searched: bool = False  # Known secrets were searched for
    body_searched: bool = False

    def own_body(self, message: http.Message) -> bytes | None:
        """Return the body to send: the original, unless somebody has edited the body."""
        content = message.data.content
        return self.body[1] if self.body is not None and content is self.body[0] else content


@dataclass(slots=True)
class FlowRedaction:
    """The originals of one flow, and the secrets to search for in it."""

    heads: Redactor | None = None
    """All known secrets and the request's own credentials; None while nobody observes flows."""
    bodies: Redactor | None = None
    """The agent's secrets only.

    To search each body for hundreds of values would cost more than the request.
    """
    request: Originals = field(default_factory=Originals)
    response: Originals = field(default_factory=Originals)


@dataclass(slots=True)
class FlowState:
    """All that is known of one flow while it is under way."""

    is_recorded: bool = False
    """True if it was loaded from a file, to be looked at.

    Nobody waits for its response, and nothing is decided about it.
    """
    verdict: Literal["forward", "answered"] | None = None
    """The decision. Without one the guard lets nothing governed out."""
    runner_left: bool = False  # The runner left before its response was whole
    pending: PendingRequest | None = None
    decision: asyncio.Task[Any] | None = None  # The task of the hook that is still deciding
    source: ChunkSource | None = None
    fallback: Callable[[], http.Response] | None = None
    """Makes the response of a forwarded request whose provider gives none."""
    held_tap: ResponseTap | None = None
    """Set while the response is held back until it is whole.

    One that is too long for that streams through this tap.
    """
    forwarded: ForwardedRequest | None = None
    redaction: FlowRedaction | None = None
    """None as soon as nothing more of the flow is sent."""
    awaited_turn: str | None = None  # The id of the turn that the runner of this flow waits for
    entry_written: asyncio.Event | None = None
    """Set when the turn's line of history is in the metadata of a flow whose runner left."""


_ATTRIBUTE = "_claw_state"
"""The attribute of the flow object itself: mitmproxy neither copies nor saves it."""
_flows: WeakSet[http.HTTPFlow] = WeakSet()
"""The flows that have a state."""


def state_of(flow: http.HTTPFlow) -> FlowState:
    """Return the state of this flow; a flow that has none gets a new one."""
    state: FlowState | None = flow.__dict__.get(_ATTRIBUTE)
    return state if state is not None else _new_state(flow)


def _new_state(flow: http.HTTPFlow) -> FlowState:
    state = flow.__dict__[_ATTRIBUTE] = FlowState()
    _flows.add(flow)
    return state


def begin(flow: http.HTTPFlow) -> None:
    """Note at its first hook whether a flow was loaded from a file.

    A flow that is replayed is decided about anew.
    """
    if not flow.live:
        state_of(flow).is_recorded = True
    elif flow.is_replay:
        _new_state(flow)


def release(flow: http.HTTPFlow, state: FlowState) -> None:
    """Drop the state of a flow for which nothing is left to do."""
    is_at_work = state.pending or state.decision or state.source or state.forwarded
    is_shown = state.redaction or state.entry_written or state.awaited_turn or state.is_recorded
    if is_at_work or is_shown:
        return

    flow.__dict__.pop(_ATTRIBUTE, None)
    _flows.discard(flow)


def is_recorded(flow: http.HTTPFlow) -> bool:
    """Return whether the flow was loaded from a file: nothing is decided about it."""
    return state_of(flow).is_recorded


def all_states() -> list[FlowState]:
    """Return the states of all flows under way, and of those that were loaded from a file."""
    return [state_of(flow) for flow in [*_flows]]


def flows_awaiting(turn_id: str) -> list[http.HTTPFlow]:
    """Return the flows of runners that wait for this turn."""
    return [flow for flow in [*_flows] if state_of(flow).awaited_turn == turn_id]


def pending_requests() -> list[PendingRequest]:
    return [state.pending for state in all_states() if state.pending is not None]


def end_pending(flow: http.HTTPFlow, state: FlowState) -> None:
    """End the request of a flow whose stream has nothing left to do.

    Wait for it until mitmproxy has reported its end.
    """
    pending = state.pending
    if pending is not None and pending.has_ended and not pending.is_being_delivered:
        finish(flow, pending)


def finish(flow: http.HTTPFlow, pending: PendingRequest) -> None:
    """End a request. A second call does nothing."""
    if pending.done.done():
        return
    _end(pending)
    state = state_of(flow)
    if state.pending is pending:
        state.pending = None
        release(flow, state)


def end_requests_of(client_id: str) -> None:
    """End all requests of a connection that is closed.

    Answers that its transport still sends are left alone.
    """
    for state in all_states():
        pending = state.pending
        if pending is None or pending.client_id != client_id or pending.is_being_delivered:
            continue

        state.pending = None
        _end(pending)


def _end(pending: PendingRequest) -> None:
    pending.done.set_result(None)
    if pending.body is not None:
        pending.body.release()

    answer, pending.answer = pending.answer, None
    mark = answer.note_end(is_delivered=False) if answer is not None else None
    if mark is not None:
        marking = asyncio.ensure_future(mark)
        _marking.add(marking)
        marking.add_done_callback(_marking.discard)


async def wait_until_done(requests: Collection[PendingRequest], seconds: float) -> None:
    """Wait until these requests are over, for at most so many seconds."""
    if requests:
        await asyncio.wait([each.done for each in requests], timeout=seconds)


def _is_being_cancelled() -> bool:
    """Return whether the present task itself is to end, and not only what it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _next_of(chunks: AsyncIterator[bytes]) -> bytes | None:
    """Return the next chunk, or None at the end.

    It does not raise StopAsyncIteration: the traceback of what an eager task raises leads to the
    task itself, so that each stream would be left to the garbage collector (decision 0037).
    """
    try:
        return await anext(chunks)
    except StopAsyncIteration:
        return None
