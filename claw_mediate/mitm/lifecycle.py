"""The lifecycle of the proxy, which outlives the script (decision 0029).

a script is reloaded
    It goes on with the mediator that exists: state, budgets, turns and all.

settings change
    A new mediator takes over the state of the old one, which is closed when its requests are over.
    A proxy that is shutting down takes up no new settings.

a request ends
    This is heard here, because the script may be broken or gone by then.

SIGTERM, SIGINT
    Nothing new is begun (503, retry later). A connection that waits for its next request is closed
    after a moment, since the request may be on its way. What was begun has ``cllama_drain_ms`` to
    end. Then it is cut off: runners that wait are told, and the journal knows where each turn goes
    on.
"""

import asyncio
import gc
import os
import signal
import sys
import time
from collections.abc import Collection, Coroutine, Iterable
from typing import Any

from mitmproxy import connection, ctx, http

from claw_mediate.agents.authenticate import Identity
from claw_mediate.core.http import Forward, RunnerResponse, refuse_stopping
from claw_mediate.mediator import Mediator
from claw_mediate.mitm import flow_state, listeners
from claw_mediate.mitm.addon_state import AddonState
from claw_mediate.mitm.flow_state import (
    PendingRequest,
    pending_requests,
    state_of,
    wait_until_done,
)
from claw_mediate.mitm.gate import guard
from claw_mediate.mitm.gate.tls_ca import TlsCaAddon
from claw_mediate.mitm.metrics import MetricsAddon
from claw_mediate.mitm.passthrough import forward
from claw_mediate.mitm.response_stream import door
from claw_mediate.mitm.view import hidden_flows
from claw_mediate.settings import Settings
from claw_mediate.workers import worker as workers

_MIN_TURN_SECONDS = 900.0
"""Seconds that turns have at least to end after new settings replaced their mediator."""
_GC_THRESHOLDS = 120_000, 0, 10
"""New objects before a young collection, and collections of one kind before one of the next.

A turn under way has 500 objects, and leaves none to the collector. So no collection comes before
240 more turns are under way than at the last one; and none looks at more than twice as many objects
(decision 0037).
"""
_GRACE_SECONDS = 0.3
"""For a request that is on its way.

On a connection that closes it would get no answer at all, not even a refusal.
"""
_FRESH_SECONDS = 1.0
"""A connection that is younger may be about to send its first request."""
_PAUSE_SECONDS = 0.02
_LOST_SECONDS = 2.0
"""Seconds after the end of a runner's connection in which its requests end, or never will."""
_LAST_SECONDS = 0.5
"""Seconds for each of the last steps of the drain.

They are refusals for what was cut off, closing our connections, and sending the last bytes.
"""


class Lifecycle:
    """The addon. It comes before all others, so that its drain comes before their ends."""

    name = "claw-lifecycle"

    def __init__(self, addon_state: AddonState, metrics: MetricsAddon, tls_ca: TlsCaAddon) -> None:
        self.addon_state = addon_state
        self._metrics = metrics
        self._tls_ca = tls_ca
        self._settings: Settings | None = None
        self._retiring: dict[Mediator, asyncio.Task[None]] = {}
        """The mediators of earlier settings, until their requests are over."""
        self._runners: set[str] = set()
        """The ids of connections that have had a governed request."""

    def apply(self, settings: Settings) -> Mediator:
        """Govern by these settings, and return their mediator.

        Raise ``ValueError`` or ``OptionsError`` if this fails.
        """
        self._tls_ca.check(settings)
        listeners.check(settings)
        mediator = self._mediator_of(settings)
        self.addon_state.apply(settings, mediator)
        return mediator

    def _mediator_of(self, settings: Settings) -> Mediator:
        """Return the mediator of these settings: the present one, or a new one in its place.

        Raise ``ValueError`` if the new one can't begin; then nothing has changed.
        """
        old = self.addon_state.mediator
        if old is not None and (settings == self._settings or _is_shutting_down()):
            return old

        state = old.state if old is not None else None
        mediator = Mediator(settings, self.addon_state.events, before=state)
        problem = mediator.readiness.missing() or self._begin_observing(mediator, settings)
        if problem is not None:
            self._retire(mediator, [])
            raise ValueError(problem)

        self._settings = settings
        worker = workers.current()
        if worker is not None:
            worker.reply("ready", mediator.readiness.reply)
            worker.reply("feed", mediator.reply_feed)
            worker.set_drain(settings.drain)

        if old is not None:
            old.retire()
            self._retire(old, pending_requests())
        return mediator

    def _begin_observing(self, mediator: Mediator, settings: Settings) -> str | None:
        """Let ``/metrics`` report this mediator from now on. Return why it can't, or None."""
        try:
            self._metrics.observe(mediator, settings.metrics)
        except ValueError as error:
            return str(error)
        return None

    async def running(self) -> None:
        """Prepare for the first requests, before the script opens the listeners."""
        if self.addon_state.mediator is not None:
            await self.addon_state.mediator.readiness.prepare()

        # What was made by now stays. Without this each full collection stops the loop for a tenth
        # of a second.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_GC_THRESHOLDS)

    def begin(self, flow: http.HTTPFlow) -> None:
        state_of(flow).pending = PendingRequest(flow.client_conn.id)
        self._runners.add(flow.client_conn.id)

    def await_body(self, flow: http.HTTPFlow, admitted: Identity) -> None:
        """Note who asks, while the body is to come."""
        pending = state_of(flow).pending
        assert pending is not None
        pending.admitted = admitted

    def hold_body(
        self, flow: http.HTTPFlow, admitted: Identity, size: int
    ) -> RunnerResponse | None:
        """Count a body from now until its request is over.

        Return the refusal if there is no room for it.
        """
        pending = state_of(flow).pending
        assert pending is not None
        if pending.body is None:
            pending.body = self.addon_state.body_bytes.hold(admitted.agent.id, pending.client_id)

        limit = pending.body.grow_to(size)
        if pending.done.done():  # its runner left while this was decided
            pending.body.release()
        if limit is None:
            return None

        reason = guard.describe_overflow(limit, admitted.agent.id)
        self.addon_state.events.limited_event("error", error="bytes_in_flight", reason=reason)
        return guard.refuse_body(flow.request.path, limit)

    def refuse_connection(self, flow: http.HTTPFlow, admitted: Identity) -> RunnerResponse:
        """Return the refusal of a request whose agent has too many connections or requests."""
        reason = (
            f"a request of agent {admitted.agent.id} was refused: it has too many connections "
            "or requests under way"
        )
        self.addon_state.events.limited_event("error", error="too_many_connections", reason=reason)
        return guard.refuse_connection(flow.request.path)

    def take_admitted(self, flow: http.HTTPFlow) -> Identity | None:
        """Return who asks, once the body is there; None if nobody waits for a decision."""
        pending = state_of(flow).pending
        if pending is None:
            return None
        admitted, pending.admitted = pending.admitted, None
        return admitted

    async def decide(
        self, flow: http.HTTPFlow, decision: Coroutine[Any, Any, RunnerResponse | Forward]
    ) -> RunnerResponse | Forward:
        """Await the decision. If the end of the proxy cuts it off, return the refusal."""
        try:
            return await door.while_connected(flow, decision)
        except asyncio.CancelledError:
            if _is_shutting_down():
                return refuse_stopping(flow.request.path)
            raise

    async def answer(self, flow: http.HTTPFlow, exchange: RunnerResponse) -> None:
        """Answer a flow, with a body or a stream."""
        state = state_of(flow)
        if state.pending is not None and exchange.on_delivered is not None:
            state.pending.note_turn(exchange.answer_of, exchange.on_delivered)
        if state.pending is not None and exchange.when_found is not None:
            exchange.when_found(state.pending.note_turn)

        if exchange.streaming:
            door.stream_response(flow, exchange)
        else:
            await door.set_response(flow, exchange)
        if flow.request.method == "HEAD" and flow.response is not None:
            flow.response.data.content = b""

        state.verdict = "answered"
        _close_connection_if_shutting_down(flow)

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        flow_state.begin(flow)

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        state = state_of(flow)
        if state.verdict == "forward" and flow.response is not None:
            forward.begin_response(flow)
            _close_connection_if_shutting_down(flow)

    async def response(self, flow: http.HTTPFlow) -> None:
        """Handle the end of a response.

        A stream has been sent by now, and a whole response is sent next.
        """
        state = state_of(flow)
        if state.is_recorded:
            return

        hidden_flows.stop_waiting(flow)
        await forward.end_response(flow)
        if state.pending is not None:
            state.pending.has_ended = True

    def error(self, flow: http.HTTPFlow) -> None:
        state = state_of(flow)
        if state.is_recorded:
            return

        hidden_flows.stop_waiting(flow)
        forward.finish(flow, is_whole=False)
        if state.pending is not None:
            state.pending.has_ended = True

    def client_disconnected(self, client: connection.Client) -> None:
        self._runners.discard(client.id)
        self.addon_state.body_bytes.release_all_of(client.id)
        if forward.has_forwarded(client.id):
            asyncio.get_running_loop().call_later(_LOST_SECONDS, forward.finish_lost, client.id)
        if _is_shutting_down():
            flow_state.end_requests_of(client.id)

    async def done(self) -> None:
        """Drain at the end of the proxy; mitmproxy goes on to serve until this returns."""
        mediator = self.addon_state.mediator
        if mediator is not None and self._settings is not None:
            await self._drain([mediator, *self._retiring], self._settings.drain)

        _flush_standard_streams()
        _ignore_signals()

    async def _drain(self, mediators: Collection[Mediator], seconds: float) -> None:
        """End what was begun, and close the mediators.

        Requests have ``seconds`` to end by themselves; then they are cut off.
        """
        for task in self._retiring.values():
            task.cancel()
        for mediator in mediators:
            mediator.stop()

        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        connections = self.addon_state.builtin.proxyserver.connections
        clients = {handler.client.id for handler in connections.values()}
        closing = asyncio.ensure_future(self._close_waiting())

        begun = [each for each in pending_requests() if _has_begun(each, clients)]
        await wait_until_done(begun, seconds)
        finishing = [mediator.finish(until - loop.time()) for mediator in mediators]
        await asyncio.gather(closing, *finishing)
        await _cut_off(begun)

        # What is sent now is marked as delivered before the journal is closed.
        delivered = [each for each in begun if each.is_being_delivered]
        sent = [_send_written(handler) for handler in connections.values()]
        await _wait_for_all(_LAST_SECONDS, *sent, wait_until_done(delivered, _LAST_SECONDS))
        await _wait_for_all(_LAST_SECONDS, *(mediator.close(0) for mediator in mediators))

    async def _close_waiting(self) -> None:
        """Close the connections that wait for a request.

        This takes a moment, in which requests that are on their way are refused.
        """
        connections = self.addon_state.builtin.proxyserver.connections
        until = time.monotonic() + _GRACE_SECONDS
        is_over = False
        while not is_over:
            await asyncio.sleep(_PAUSE_SECONDS)
            waiting = self._waiting_clients()
            some_wait = any(each.client.id in waiting for each in connections.values())
            is_over = time.monotonic() >= until or not some_wait

        _close_idle(connections.values(), self._runners & self._waiting_clients())

    def _waiting_clients(self) -> set[str]:
        """Return the clients that have sent no request yet, or wait to send the next one."""
        connections = self.addon_state.builtin.proxyserver.connections.values()
        opened = time.time() - _FRESH_SECONDS
        fresh = {
            each.client.id for each in connections if (each.client.timestamp_start or 0.0) > opened
        }
        busy = {each.client_id for each in pending_requests()}
        return (self._runners | fresh) - busy

    def _retire(self, mediator: Mediator, requests: Collection[PendingRequest]) -> None:
        task = self._retiring[mediator] = asyncio.ensure_future(_close_later(mediator, requests))
        task.add_done_callback(lambda _: self._retiring.pop(mediator))


def _has_begun(request: PendingRequest, clients: Collection[str]) -> bool:
    """Return whether a request is to end in the time of the drain.

    ``clients`` are those with a connection; an answer may outlive mitmproxy's end of it.
    """
    is_decided_about = request.client_id in clients and request.admitted is None
    return request.is_being_delivered or is_decided_about


def _close_idle(handlers: Iterable[Any], idle: Collection[str]) -> None:
    for handler in handlers:
        if handler.client.id in idle and handler.client in handler.transports:
            handler.transports[handler.client].handler.cancel("the proxy is being stopped")


async def _close_later(mediator: Mediator, requests: Collection[PendingRequest]) -> None:
    seconds = max(_MIN_TURN_SECONDS, mediator.longest_turn())
    await wait_until_done(requests, seconds)
    await mediator.close(seconds)


async def _cut_off(requests: Collection[PendingRequest]) -> None:
    # Turns that were cut off answer by themselves.
    await wait_until_done(requests, _LAST_SECONDS)

    for state in flow_state.all_states():
        if state.decision is not None:
            state.decision.cancel()
    await wait_until_done(requests, _LAST_SECONDS)
    forward.record_unfinished()


async def _wait_for_all(seconds: float, *steps: Any) -> None:
    if steps:
        await asyncio.wait([asyncio.ensure_future(each) for each in steps], timeout=seconds)


async def _send_written(handler: Any) -> None:
    """Wait until all that was written to a runner has been sent."""
    transport = handler.transports.get(handler.client)
    writer = transport.writer if transport is not None else None
    if isinstance(writer, asyncio.StreamWriter) and not writer.is_closing():
        writer.transport.set_write_buffer_limits(0)
        await writer.drain()


def _flush_standard_streams() -> None:
    """Drop lines that can't be written, because a disk is full or a reader has gone.

    Python would exit with 120 for them, which would blame the proxy.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), stream.fileno())


def _ignore_signals() -> None:
    """Ignore further signals to the very end.

    asyncio's handlers go with its loop, before the process does.
    """
    for sign in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().remove_signal_handler(sign)
        signal.signal(sign, signal.SIG_IGN)


def _is_shutting_down() -> bool:
    return bool(ctx.master.should_exit.is_set())


def _close_connection_if_shutting_down(flow: http.HTTPFlow) -> None:
    """Close the runner's connection: its next request would go to a proxy that is gone."""
    if not _is_shutting_down() or flow.response is None:
        return
    if flow.request.http_version.startswith("HTTP/1"):
        flow.response.headers["connection"] = "close"
