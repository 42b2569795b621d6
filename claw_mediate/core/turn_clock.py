"""The clock of one turn. It stands still while a reply flows to the runner.

Without the proxy, nothing would limit a reply that flows (docs/spec/live.md section 8).
"""

from collections.abc import Callable


class TurnClock:
    """Shows the seconds of ``now``, without those in which it was stopped."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._stopped_at: float | None = None  # None while it runs
        self._stopped_seconds = 0.0

    def now(self) -> float:
        """Return the time of the turn."""
        if self._stopped_at is not None:
            return self._stopped_at - self._stopped_seconds
        return self._now() - self._stopped_seconds

    def stop(self) -> None:
        if self._stopped_at is None:
            self._stopped_at = self._now()

    def start(self) -> None:
        if self._stopped_at is not None:
            self._stopped_seconds += self._now() - self._stopped_at
            self._stopped_at = None
