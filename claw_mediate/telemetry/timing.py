"""A turn's own time: its duration without the time that it waited for providers and services.

Calls run concurrently, so waiting is the time with at least one under way, not their sum. Parsing,
deciding, writing and the journal count as the turn's own, as does finding out whether its request
is a retry.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from claw_contract.log import ModelCallRecord
from claw_mediate.core.model_policy import Candidate
from claw_mediate.telemetry.event_log import now_rfc3339


class Timings(NamedTuple):
    """A turn's model calls, and its own time; None if that is unknown."""

    model_calls: Sequence[ModelCallRecord]
    own_ms: float | None = None


class Stopwatch:
    """Measures one turn, from construction on."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._started = clock()
        self._waited = 0.0
        self._waits = 0  # Number of waits under way
        self._wait_started = 0.0
        self.model_calls: list[ModelCallRecord] = []

    def waiting(self) -> "Stopwatch":
        """Return the context in which time counts as waiting."""
        return self

    def __enter__(self) -> None:
        if self._waits == 0:
            self._wait_started = self._clock()
        self._waits += 1

    def __exit__(self, *_: object) -> None:
        self._waits -= 1
        if self._waits == 0:
            self._waited += self._clock() - self._wait_started

    @contextmanager
    def model_call(self, candidate: Candidate) -> Iterator[Callable[[int], None]]:
        """Record a request to a provider, and count it as waiting.

        Yield a function that takes the response's status.
        """
        statuses: list[int] = []
        started = self._clock()
        started_at = now_rfc3339()
        try:
            with self.waiting():
                yield statuses.append
        finally:
            record = ModelCallRecord(
                provider=candidate.provider.name,
                model=candidate.model,
                status_code=statuses[-1] if statuses else None,
                started=started_at,
                latency_ms=round((self._clock() - started) * 1000),
            )
            self.model_calls.append(record)

    def elapsed(self) -> float:
        """Return the seconds since the construction."""
        return self._clock() - self._started

    @property
    def timings(self) -> Timings:
        own_seconds = self.elapsed() - self._waited
        return Timings(self.model_calls, round(own_seconds * 1000, 3))
