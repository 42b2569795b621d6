"""Native calls: each is a turn of its own, with one call and without a model.

docs/spec/mcp.md "The broker". The rules are a turn's (``core/judge.py``): what answers a call
without running it, how long it may take, how many run at once. A call that may write is journaled
before it is sent, and not sent if that fails. Every call is one line of history.

    the client leaves    a call that reads is canceled; one that may write goes on to its end,
                         within its time
    the proxy stops      calls have the time of the drain; then a read is canceled, and of a write
                         the outcome is unknown
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from msgspec.structs import replace

from claw_contract.manifest import Tool
from claw_contract.redaction.redactor import Redactor
from claw_mediate.agents.authenticate import Identity
from claw_mediate.agents.directory import Agent
from claw_mediate.broker.answer import write_answer
from claw_mediate.core import tool_result
from claw_mediate.core.http import GONE, STOPPING, Request
from claw_mediate.core.judge import MAX_CALLS, AnswerOne, Ledger, next_step
from claw_mediate.core.observer import Subject, TurnObserver
from claw_mediate.core.tool_call import call_key, write_arguments
from claw_mediate.core.tool_catalog import ToolCatalog
from claw_mediate.core.types import ToolCall, ToolResult
from claw_mediate.providers.routing import new_turn_id
from claw_mediate.telemetry.event_log import now_rfc3339
from claw_mediate.turns.checkpoint import TurnCheckpoint
from claw_mediate.turns.context import RequestContext, TurnResult
from claw_mediate.turns.ports import Peers
from claw_mediate.turns.recorder import Recorder
from claw_state.health import StateUnavailableError
from claw_state.journal import AttemptKind, Journal, RequestFingerprint, StoredResponse
from claw_state.url import StoreError

# The one call of its turn
_ROUND = 1
_PLACE = 0

_MIN_SHARE = 0.1  # The part of its time that a call must have left when it has waited for others
_DELIVERED = StoredResponse(200, "application/json", b"")
"""The journal's note that a call is over: nobody asks for its answer."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The client of a request to the broker."""

    identity: Identity
    request: Request
    redactor: Redactor

    @property
    def agent(self) -> Agent:
        return self.identity.agent


@dataclass(slots=True)
class _Slots:
    """The room for calls of one agent that run at the same time."""

    limit: int
    free: asyncio.Semaphore
    waiting: int = 0


@dataclass(slots=True)
class _NativeCall:
    """One call on its way."""

    caller: Caller
    context: RequestContext
    catalog: ToolCatalog
    call: ToolCall
    started: float = field(default_factory=time.monotonic)
    waiting: int = 0  # Requests that wait for the answer
    has_left: bool = False  # All of them have gone
    is_made: bool = False  # The executor has the call
    is_stopping: bool = False  # The call is cancelled because the proxy ends

    @property
    def may_write(self) -> bool:
        return self.call.tool is not None and self.call.tool.effect != "read"


class NativeCalls:
    """The calls of all agents that are under way at one broker."""

    def __init__(self, peers: Peers, recorder: Recorder, journal: Journal) -> None:
        self._peers = peers
        self._recorder = recorder
        self._journal = journal
        self._running: dict[asyncio.Task[bytes], _NativeCall] = {}
        self._slots: dict[str, _Slots] = {}
        self._catalogs: dict[str, tuple[tuple[Tool, ...], ToolCatalog]] = {}
        """The catalog of each agent, with the tools that it was made of."""

    def __len__(self) -> int:
        return len(self._running)

    def catalog(self, agent: Agent) -> ToolCatalog:
        """Return the tools that the broker serves to an agent, by their aliases."""
        tools, catalog = self._catalogs.get(agent.id, (None, None))
        if catalog is None or tools is not agent.native_tools:
            catalog = ToolCatalog.build(agent.native_tools, (), len(agent.native_tools))
            self._catalogs[agent.id] = agent.native_tools, catalog
        return catalog

    def start(self, caller: Caller, name: str, arguments: str) -> asyncio.Task[bytes]:
        """Start a call, and return the task that gives its answer as JSON.

        ``arguments`` is the client's text.
        """
        catalog = self.catalog(caller.agent)
        context = RequestContext(
            turn_id=new_turn_id(),
            agent=caller.agent,
            request=caller.request,
            view=None,
            redactor=caller.redactor,
        )
        call = catalog.make_call(context.turn_id, name, arguments)
        native = _NativeCall(caller, context, catalog, call)
        self._recorder.log_request(context, len(catalog.offered))

        task = asyncio.ensure_future(self._run(native))
        self._running[task] = native
        task.add_done_callback(lambda done: self._running.pop(done, None))
        return task

    async def wait_for(self, task: asyncio.Task[bytes]) -> bytes:
        """Wait for the answer of a call.

        When nobody waits any more, a read is canceled, and what may write goes on.
        """
        native = self._running.get(task)
        if native is None:
            return await task

        native.waiting += 1
        native.has_left = False
        try:
            return await asyncio.shield(task)
        finally:
            native.waiting -= 1
            native.has_left = native.waiting == 0
            if native.has_left and not native.may_write:
                task.cancel()

    async def wait_until_idle(self) -> None:
        """Wait until no call runs."""
        while self._running:
            await asyncio.wait(list(self._running))

    async def finish(self, seconds: float, grace: float) -> None:
        """Let running calls end for ``seconds``, then cut them off.

        ``grace``: the time to record that.
        """
        if self._running:
            await asyncio.wait(list(self._running), timeout=max(seconds, 0))

        for task, native in self._running.items():
            native.is_stopping = True
            task.cancel()
        if self._running:
            await asyncio.wait(list(self._running), timeout=grace)

    async def _run(self, native: _NativeCall) -> bytes:
        try:
            result = await self._result(native)
        except asyncio.CancelledError:
            answer = self._record(native, _cut_off(native))
            if native.is_stopping:
                # Its client is still there, and gets an answer before the proxy ends.
                return answer
            raise
        except Exception as error:  # noqa: BLE001 - a fault of ours: the call is recorded, and the client gets an answer
            self._recorder.log_fault(native.context, error)
            message = "The proxy failed in this call."
            result = tool_result.request_failed(native.call, message, sent=True)

        return self._record(native, result)

    async def _result(self, native: _NativeCall) -> ToolResult:
        limits = native.caller.agent.limits
        step = next_step(Ledger.start(limits, native.started), (native.call,))
        if isinstance(step, AnswerOne):
            return self._not_made(native, step.result)

        slots = self._slots_of(native.caller.agent)
        longest_wait = limits.soft_seconds - step.seconds * _MIN_SHARE
        if slots.waiting >= MAX_CALLS or not await _take_slot(slots, longest_wait):
            return self._not_made(native, tool_result.too_many_at_once(native.call, slots.limit))

        try:
            waited = time.monotonic() - native.started
            return await self._execute(native, min(step.seconds, limits.soft_seconds - waited))
        finally:
            slots.free.release()

    async def _execute(self, native: _NativeCall, seconds: float) -> ToolResult:
        context = native.context
        made_at = now_rfc3339()
        observer = _observer_of(context)

        async def run() -> ToolResult:
            native.is_made = True
            key = call_key(context.turn_id, _ROUND, _PLACE)
            return await self._peers.services.call(
                context.agent, observer, native.call, key, seconds
            )

        if native.may_write:
            result = await self._journaled(native, run)
        else:
            result = await run()

        if not native.is_made:
            # Its intent could not be journaled, and ``result`` says so.
            return self._not_made(native, result)
        return replace(result, started=made_at)

    async def _journaled(
        self, native: _NativeCall, run: Callable[[], Awaitable[ToolResult]]
    ) -> ToolResult:
        """Make a call that may write, with its intent journaled before and its result after."""
        turn_id = native.context.turn_id
        # No other request has this fingerprint: a call is never resumed.
        known_by = RequestFingerprint(turn_id, turn_id, "", "")
        attempt: AttemptKind = "first"
        try:
            await self._journal.begin(turn_id, native.context.agent.id, known_by)
        except StoreError as error:
            attempt = "journal_unavailable"
            if not isinstance(error, StateUnavailableError):
                self._recorder.log_journal_failure(native.context, str(error))

        checkpoint = TurnCheckpoint(
            self._journal,
            turn_id,
            lambda reason: self._recorder.log_journal_failure(native.context, reason),
            attempt,
        )
        try:
            result = await checkpoint.call(_ROUND, _PLACE, native.call, run)
        except asyncio.CancelledError:
            await checkpoint.end(None)
            raise

        await checkpoint.end(_DELIVERED)
        await checkpoint.mark_delivered()
        return result

    def _not_made(self, native: _NativeCall, result: ToolResult) -> ToolResult:
        subject = Subject("tool", _ROUND, native.call.canonical)
        observer = _observer_of(native.context)
        observer.report_not_made(subject, write_arguments(native.call), result.code or "")
        return result

    def _slots_of(self, agent: Agent) -> _Slots:
        limit = agent.limits.max_parallel
        slots = self._slots.get(agent.id)
        if slots is None or slots.limit != limit:
            slots = self._slots[agent.id] = _Slots(limit, asyncio.Semaphore(limit))
        return slots

    def _record(self, native: _NativeCall, result: ToolResult) -> bytes:
        answer = native.context.redactor.document(write_answer(result))
        latency_ms = round((time.monotonic() - native.started) * 1000)

        end = TurnResult(200, ok=True, body=answer, latency_ms=latency_ms)
        if native.is_stopping:
            end = replace(end, status=503, ok=False, code=STOPPING[0])
        elif native.has_left:
            end = replace(end, status=GONE, ok=False, code="runner_left", body=b"")
        self._recorder.record_native_call(native.context, native.catalog, end, result, latency_ms)
        return answer


def _observer_of(context: RequestContext) -> TurnObserver:
    return TurnObserver(
        context.request.observer, context.turn_id, context.agent.id, context.redactor
    )


def _cut_off(native: _NativeCall) -> ToolResult:
    """Return the result of a call that is cancelled.

    Its client has left it, or the proxy is being stopped.
    """
    if native.is_made and not native.may_write:
        return tool_result.canceled(native.call)
    return tool_result.request_failed(native.call, "The call was cut off.", sent=native.is_made)


async def _take_slot(slots: _Slots, seconds: float) -> bool:
    """Wait for room, for at most so many seconds; return whether there is some now."""
    slots.waiting += 1
    try:
        async with asyncio.timeout(seconds):
            await slots.free.acquire()
    except TimeoutError:
        return False
    finally:
        slots.waiting -= 1
    return True
