"""Limits of a process that listens: its descriptors, and the log lines that anybody can cause."""

import resource
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

MAX_LINES: Final = 10  # Lines of one kind in a period
PERIOD_SECONDS: Final = 60.0
_MAX_KINDS: Final = 1000
"""Kinds that are counted apart: strangers may name as many hosts as they like."""
_OTHERS: Final = ""
"""The kind that stands for all further ones."""


def raise_descriptor_limit(wanted: int = sys.maxsize) -> int:
    """Raise the soft limit of descriptors to the hard one, or ``wanted`` if that is less.

    Return how many the process may have, ``wanted`` at most.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
    if soft != resource.RLIM_INFINITY and soft < target:
        # The kernel has a limit of its own, which may be below the hard one.
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)

    if soft == resource.RLIM_INFINITY:
        return wanted
    return min(soft, wanted)


class _Period:
    """The lines of one kind since a moment, and how many were left out since the last line."""

    __slots__ = ("begun", "left_out", "lines")

    def __init__(self, begun: float, left_out: int) -> None:
        self.begun = begun
        self.lines = 0
        self.left_out = left_out


class LineLimit:
    """Lets ``max_lines`` lines of each kind pass in a period, and counts those that are left out.

    A period is a minute, unless ``seconds`` says otherwise.
    """

    def __init__(
        self,
        max_lines: int = MAX_LINES,
        seconds: float = PERIOD_SECONDS,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._max_lines = max_lines
        self._seconds = seconds
        self._clock = clock or time.monotonic
        self._periods: dict[str, _Period] = {}

    def take(self, kind: str) -> int | None:
        """Return how many lines of this kind were left out since the last one.

        None: this one is to be left out, too.
        """
        now = self._clock()
        period = self._find(kind, now)
        if now - period.begun >= self._seconds:
            period.begun = now
            period.lines = 0

        if period.lines >= self._max_lines:
            period.left_out += 1
            return None

        period.lines += 1
        left_out = period.left_out
        period.left_out = 0
        return left_out

    def _find(self, kind: str, now: float) -> _Period:
        if kind in self._periods:
            return self._periods[kind]

        if len(self._periods) >= _MAX_KINDS:
            self._forget_old(now)
        known = kind if len(self._periods) < _MAX_KINDS else _OTHERS
        return self._periods.setdefault(known, _Period(now, 0))

    def _forget_old(self, now: float) -> None:
        """Forget the kinds of which nothing came for a period.

        Their lines that were left out count for ``_OTHERS`` from now on.
        """
        others = self._periods.setdefault(_OTHERS, _Period(now, 0))
        kept = {_OTHERS: others}
        for kind, period in self._periods.items():
            if kind == _OTHERS or now - period.begun < self._seconds:
                kept[kind] = period
            else:
                others.left_out += period.left_out
        self._periods = kept
