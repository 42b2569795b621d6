"""What outlives the script: the mediator, the end of every request that was begun, and the end of the proxy (decision 0029).

a script that is loaded anew   goes on with the mediator that there is: state, budgets, turns and all
new settings                   get a mediator of their own, with what the one before knows (the state); that one ends when its
                               requests have. A proxy that ends takes no new ones up
how a request ends             is heard here, for the script may be broken or gone by then
SIGTERM, SIGINT                nothing more is begun (503, try again), and what was has ``cllama_drain_ms`` to end; then it
                               is cut off: who waits is told so, and the journal knows where the turn goes on
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Collection, Coroutine
from typing import Any

from mitmproxy import connection, ctx, http

from claw_mediate.agents.authenticate import Admitted
from claw_mediate.core.http import Forward, RunnerResponse, refuse_stopping
from claw_mediate.mediator import Mediator
from claw_mediate.mitm import metrics
from claw_mediate.mitm.flow_state import Passing, all_over, deciding, gone, passing
from claw_mediate.mitm.gate import guard
from claw_mediate.mitm.passthrough import forward
from claw_mediate.mitm.response_stream import door
from claw_mediate.mitm.view import hidden_flows
from claw_mediate.settings import Settings
from claw_mediate.telemetry.event_log import EventLog

TURN_SECONDS = 900.0
"""How long turns may take whose proxy goes on without them, with new settings."""
_LAST_SECONDS = 0.5
"""For each of the last steps: who was cut off is told so, connections of ours are closed, the last bytes go out."""


class Life:
    """The addon. Added to the master itself, before all others: what it does at the end, their ends may rely on."""

    name = "claw-life"

    def __init__(self, events: EventLog) -> None:
        self.events = events
        self._settings: Settings | None = None
        self._mediator: Mediator | None = None
        self._before: dict[Mediator, asyncio.Task[None]] = {}
        """Mediators of earlier settings, until their requests are over."""

    @property
    def current(self) -> Mediator | None:
        """The mediator that decides now."""
        return self._mediator

    def mediator(self, settings: Settings) -> Mediator:
        """The mediator of these settings. Raises ``ValueError`` with one line where there can be none."""
        old = self._mediator
        if old is not None and (settings == self._settings or _stopping()):
            return old
        mediator = Mediator(settings, self.events, before=old.state if old is not None else None)
        if (problem := mediator.missing() or _not_observed(mediator, settings)) is not None:
            self._retires(mediator, [])
            raise ValueError(problem)
        self._mediator, self._settings = mediator, settings
        if old is not None:
            self._retires(old, list(passing.values()))
        return mediator

    def begins(self, flow: http.HTTPFlow) -> None:
        """A governed request is there."""
        passing[flow.id] = Passing(flow.client_conn.id)

    def admitted(self, flow: http.HTTPFlow, by: Admitted) -> None:
        """Its body is to come."""
        passing[flow.id].admitted = by

    def whose(self, flow: http.HTTPFlow) -> Admitted | None:
        """Who asks, now that the body is there."""
        found = passing.get(flow.id)
        if found is None:
            return None
        by, found.admitted = found.admitted, None
        return by

    async def decided(
        self, flow: http.HTTPFlow, decision: Coroutine[Any, Any, RunnerResponse | Forward]
    ) -> RunnerResponse | Forward:
        """What was decided; cut off by the end of the proxy, what it tells who waits."""
        try:
            return await door.while_connected(flow, decision)
        except asyncio.CancelledError:
            if not _stopping():
                raise
            return refuse_stopping(flow.request.path)

    async def answer(self, flow: http.HTTPFlow, exchange: RunnerResponse) -> None:
        """Answer this flow with the exchange."""
        if flow.id in passing:
            passing[flow.id].handed = exchange.on_delivered
        if exchange.streaming:
            door.answer(flow, exchange)
        else:
            await door.whole(flow, exchange)
        if flow.request.method == "HEAD" and flow.response is not None:
            flow.response.data.content = b""
        guard.metadata(flow, "answered")
        _last_on_its_connection(flow)

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        """Before anybody else."""
        guard.begins(flow)

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        """A forwarded response: every byte at once, none of them kept."""
        if guard.is_recorded(flow):
            return
        if flow.metadata.get(guard.VERDICT) == "forward" and flow.response is not None:
            forward.responding(flow)
            _last_on_its_connection(flow)

    async def response(self, flow: http.HTTPFlow) -> None:
        """A stream has been sent by now, and a whole answer is sent next, with nothing between."""
        if guard.is_recorded(flow):
            return
        hidden_flows.over(flow)
        found = passing.get(flow.id)
        if found is not None and found.handed is not None:
            await found.handed()
        forward.responded(flow)
        if found is not None:
            found.told = True

    def error(self, flow: http.HTTPFlow) -> None:
        if guard.is_recorded(flow):
            return
        hidden_flows.over(flow)
        forward.over(flow, whole=False)
        if flow.id in passing:
            passing[flow.id].told = True

    def client_disconnected(self, client: connection.Client) -> None:
        if _stopping():
            gone(client.id)

    async def done(self) -> None:
        """The end of the proxy; mitmproxy goes on to serve until this returns."""
        if self._mediator is not None and self._settings is not None:
            await self._drain([self._mediator, *self._before], self._settings.drain)
        _let_go()
        _ignore_signals()

    async def _drain(self, mediators: Collection[Mediator], seconds: float) -> None:
        for task in self._before.values():
            task.cancel()
        for mediator in mediators:
            mediator.stop()
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        clients = {each.client.id for each in _connections().values()}
        here = [each for each in passing.values() if each.client in clients and each.admitted is None]
        await all_over(here, seconds)
        await asyncio.gather(*(mediator.finish(until - loop.time()) for mediator in mediators))
        await _cut(here)
        await _for(_LAST_SECONDS, *(mediator.close(0) for mediator in mediators))
        await _for(_LAST_SECONDS, *(_sent(each) for each in _connections().values()))

    def _retires(self, mediator: Mediator, requests: Collection[Passing]) -> None:
        task = self._before[mediator] = asyncio.ensure_future(_retire(mediator, requests))
        task.add_done_callback(lambda _: self._before.pop(mediator))


def _not_observed(mediator: Mediator, settings: Settings) -> str | None:
    try:
        metrics.Observe.of().observe(mediator, settings.metrics)
    except ValueError as error:
        return str(error)
    return None


async def _retire(mediator: Mediator, requests: Collection[Passing]) -> None:
    await all_over(requests, TURN_SECONDS)
    await mediator.close(TURN_SECONDS)


async def _cut(requests: Collection[Passing]) -> None:
    """Who is not in a turn yet is told so too (``hooks``), and what is forwarded is recorded as far as it got."""
    await all_over(requests, _LAST_SECONDS)  # turns that were cut off tell so
    for task in deciding.values():
        task.cancel()
    await all_over(requests, _LAST_SECONDS)
    forward.cut_off()


async def _for(seconds: float, *ends: Any) -> None:
    """All of these, for so long at most."""
    if ends:
        await asyncio.wait([asyncio.ensure_future(each) for each in ends], timeout=seconds)


async def _sent(handler: Any) -> None:
    """Whatever was written for a runner has left this process."""
    writer = handler.transports[handler.client].writer if handler.client in handler.transports else None
    if isinstance(writer, asyncio.StreamWriter) and not writer.is_closing():
        writer.transport.set_write_buffer_limits(0)
        await writer.drain()


def _let_go() -> None:
    """Lines that nobody takes, of a disk that is full or a reader that has gone, are no failure of the proxy's (exit 120)."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), stream.fileno())


def _ignore_signals() -> None:
    """More signals change nothing, to the very end: what asyncio has for them goes with its loop, before the process does."""
    for sign in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().remove_signal_handler(sign)
        signal.signal(sign, signal.SIG_IGN)


def _connections() -> dict[str, Any]:
    found: dict[str, Any] = ctx.master.addons.get("proxyserver").connections
    return found


def _stopping() -> bool:
    return bool(ctx.master.should_exit.is_set())


def _last_on_its_connection(flow: http.HTTPFlow) -> None:
    """A runner that keeps its connection would ask the next thing of a proxy that is gone."""
    if _stopping() and flow.response is not None and flow.request.http_version.startswith("HTTP/1"):
        flow.response.headers["connection"] = "close"
