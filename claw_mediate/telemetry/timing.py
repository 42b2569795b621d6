"""A turn's own time: what is left of it without the times at which it waited for providers and services.

Calls run side by side, so that what counts is the time at which at least one was under way, and not their sum. Reading,
judging, writing down and the journal are the turn's own; so is what it takes to find out whether its request is a retry.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from claw_contract.log.turns import ModelCallRecord
from claw_mediate.core.model_policy import Candidate
from claw_mediate.telemetry.event_log import now_rfc3339


class Timings(NamedTuple):
    """What a request waited for, and what else it took; None: that is not known."""

    model_calls: Sequence[ModelCallRecord]
    own_ms: float | None = None


class Stopwatch:
    """Of one turn, from now on."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._started = clock()
        self._away = 0.0
        self._out = 0
        self._since = 0.0
        self.model_calls: list[ModelCallRecord] = []

    @contextmanager
    def away(self) -> Iterator[None]:
        """While others are waited for."""
        if self._out == 0:
            self._since = self._clock()
        self._out += 1
        try:
            yield
        finally:
            self._out -= 1
            if self._out == 0:
                self._away += self._clock() - self._since

    @contextmanager
    def asking(self, candidate: Candidate) -> Iterator[Callable[[int], None]]:
        """While a provider is asked; it is told the status of the response, where there is one."""
        statuses: list[int] = []
        started, at = self._clock(), now_rfc3339()
        try:
            with self.away():
                yield statuses.append
        finally:
            self.model_calls.append(
                ModelCallRecord(
                    provider=candidate.provider.name,
                    model=candidate.model,
                    status_code=statuses[-1] if statuses else None,
                    started=at,
                    latency_ms=round((self._clock() - started) * 1000),
                )
            )

    @property
    def times(self) -> Timings:
        """So far."""
        return Timings(self.model_calls, round((self._clock() - self._started - self._away) * 1000, 3))
