"""A limit of log lines that anybody can cause: a few of each kind in a minute, and a count of those that were left out."""

import time
from collections.abc import Callable
from typing import Final

MAX_LINES: Final = 10  # Lines of one kind in a period
PERIOD_SECONDS: Final = 60.0
_MAX_KINDS: Final = 1000  # Kinds that are told apart: strangers may name as many hosts as they like
_OTHERS: Final = ""


class _Period:
    """The lines of one kind since a moment."""

    __slots__ = ("begun", "left_out", "lines")

    def __init__(self, begun: float, left_out: int) -> None:
        self.begun = begun
        self.lines = 0
        self.left_out = left_out


class LineLimit:
    """Lets ``max_lines`` lines of each kind pass in a period."""

    def __init__(self, max_lines: int = MAX_LINES, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_lines = max_lines
        self._clock = clock
        self._periods: dict[str, _Period] = {}

    def take(self, kind: str) -> int | None:
        """Return how many lines of this kind were left out before this one; None if this one is to be left out too."""
        now = self._clock()
        period = self._find(kind, now)
        if now - period.begun >= PERIOD_SECONDS:
            period.begun, period.lines = now, 0

        if period.lines >= self._max_lines:
            period.left_out += 1
            return None

        period.lines += 1
        left_out, period.left_out = period.left_out, 0
        return left_out

    def _find(self, kind: str, now: float) -> _Period:
        if kind in self._periods:
            return self._periods[kind]

        if len(self._periods) >= _MAX_KINDS:
            self._forget_old(now)
        known = kind if len(self._periods) < _MAX_KINDS else _OTHERS
        return self._periods.setdefault(known, _Period(now, 0))

    def _forget_old(self, now: float) -> None:
        """Forget the kinds of which nothing came for a period; the lines left out count for the others from now on."""
        others = self._periods.setdefault(_OTHERS, _Period(now, 0))
        kept = {_OTHERS: others}
        for kind, period in self._periods.items():
            if kind == _OTHERS or now - period.begun < PERIOD_SECONDS:
                kept[kind] = period
            else:
                others.left_out += period.left_out
        self._periods = kept
