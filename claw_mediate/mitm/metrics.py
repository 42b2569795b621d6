"""``/metrics`` on a listener of its own.

It outlives the script: a reload loses no count, and a broken script shows. Of several workers each
listens, and whichever is asked adds up the counts of all.
"""

import asyncio
import os
from typing import Any
from weakref import WeakSet

from claw_contract.secret import Secret
from claw_mediate.mediator import Mediator
from claw_mediate.mitm.addon_state import AddonState
from claw_mediate.settings import ListenAddress
from claw_mediate.telemetry.metrics import HealthSnapshot, Metrics, write_text
from claw_mediate.telemetry.metrics_server import MetricsServer, Page, Sharing
from claw_mediate.telemetry.metrics_sum import SummedMetrics, add_up, decode, encode, snapshot
from claw_mediate.telemetry.nonblocking_writer import LineWriter
from claw_mediate.telemetry.tracing import Tracing, tracing_from_environment
from claw_mediate.workers import worker as workers

TOKEN = "CLAW_METRICS_TOKEN"  # noqa: S105 - the name of a variable
"""Not a setting, because settings are options of mitmproxy, which are shown."""
_SECONDS = 2.0  # How long to wait for the mediator's own state


class MetricsAddon:
    """The addon: the counts, and the listener that serves them."""

    name = "claw-metrics"

    def __init__(self, addon_state: AddonState) -> None:
        self.metrics = Metrics()
        self._addon_state = addon_state
        self._events = addon_state.events
        self._is_counting = False
        self._mediator: Mediator | None = None
        self._mediators: WeakSet[Mediator] = WeakSet()
        """The present mediator and earlier ones, whose turns may not have ended."""
        self._tracing: Tracing | None = None
        self._listener: ListenAddress | None = None
        self._scrape: MetricsServer | None = None
        self._serving: asyncio.Future[None] | None = None

        worker = workers.current()
        if worker is not None:
            worker.when_orphaned(self._stop_listening)

    def observe(self, mediator: Mediator, listener: ListenAddress | None) -> None:
        """Report this mediator from now on, at this listener.

        Raise ``ValueError`` with one line.
        """
        self._listen(listener)

        if self._mediator is None:  # the first one
            tracing = tracing_from_environment(self._events.redact)
            if tracing is not None:
                self._tracing = tracing
                self._events.add_listener(tracing.handle_event)

        self._mediator = mediator
        self._mediators.add(mediator)
        worker = workers.current()
        if worker is not None:
            worker.reply("metrics", self._reply_snapshot)

    def _listen(self, listener: ListenAddress | None) -> None:
        """Listen at this address from now on, or nowhere.

        Raise ``ValueError`` with one line; then the old listener is still there.
        """
        if listener == self._listener:
            return
        if listener is not None and not listener.is_loopback and not _token():
            raise ValueError(
                f"cllama_metrics: runners can reach {listener.shown}: set {TOKEN}, or "
                "listen on 127.0.0.1"
            )

        if listener is not None and not self._is_counting:
            self._is_counting = True
            self._events.add_listener(self.metrics.count)

        old = self._listener
        if listener is not None and old is not None and listener.port == old.port:
            self._close()  # the old address may be a part of the new one
        try:
            self._serve(listener)
        except ValueError:
            if self._listener is None:  # the old one was closed above
                self._serve(old)
            raise

    def _serve(self, listener: ListenAddress | None) -> None:
        """Serve at this listener and no other.

        Raise ``ValueError`` with one line, and then nothing has changed.
        """
        scrape: MetricsServer | None = None
        if listener is not None:
            scrape = MetricsServer(listener, _token(), self._write, _sharing())

        self._close()
        self._listener = listener
        self._scrape = scrape
        if scrape is not None:
            self._serving = asyncio.ensure_future(scrape.serve())

    def done(self) -> Any:
        """Close the listener.

        No coroutine function, because mitmproxy calls it from sync code too.
        """
        try:
            self._close()
        finally:
            if self._tracing is not None:
                self._tracing.close()

    def _stop_listening(self) -> None:
        if self._scrape is not None:
            self._scrape.stop_listening()

    def _close(self) -> None:
        scrape = self._scrape
        self._listener = None
        self._scrape = None
        if self._serving is not None:
            self._serving.cancel()  # it may not have begun
        if scrape is not None:
            scrape.close()

    async def _write(self, accept: str) -> Page:
        """Return the page of all workers, or of this process.

        Raise ``TimeoutError`` if no worker replies.
        """
        worker = workers.current()
        if worker is None or not worker.is_up:
            await self._observe()
            return self.metrics.text(accept)

        parts = await worker.ask_all("metrics")
        if not parts:
            # The supervisor is silent. Our own counts alone are less than those of the last page,
            # and a counter never falls.
            raise TimeoutError
        return write_text(SummedMetrics(add_up(map(decode, parts.values()))), accept)

    async def _reply_snapshot(self, _question: bytes) -> bytes:
        await self._observe()
        return encode(snapshot(self.metrics.registry))

    async def _observe(self) -> None:
        """Count what is to be seen at this moment, such as the turns under way."""
        now = HealthSnapshot()
        try:
            async with asyncio.timeout(_SECONDS):
                if self._mediator is not None:
                    now = await self._mediator.readiness.observed()
        except TimeoutError:
            pass  # its state does not answer, and so it is not ready

        now = now._replace(ready=now.ready and self._addon_state.has_script)
        turns = sum(mediator.turns_under_way for mediator in self._mediators)
        self.metrics.observe(now, turns, LineWriter.of(1).dropped)


def _sharing() -> Sharing:
    worker = workers.current()
    if worker is None:
        return "none"
    return "first" if worker.place.is_alone and not worker.is_up else "others"


def _token() -> Secret | None:
    token = os.environ.get(TOKEN, "").strip()
    return Secret(token) if token else None
