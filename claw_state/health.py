"""Whether a state can be used, as it was last found. One event when it can't, one when it is written to again: a state that can
only be read (a full disk, a replica) is not one that can be used.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from claw_state.url import StoreError

_REST_SECONDS = 1.0

type OnHealthChange = Callable[[str | None], None]
"""Told why it can't be used; and None: it can be, again."""


class StateUnavailableError(StoreError):
    """The state can't be used now, as its own event tells: it is not told of each turn as well."""


class Health:
    """Of one state."""

    def __init__(self, tell: OnHealthChange = lambda _: None) -> None:
        self._tell = tell
        self._gone = False
        self._over: str | None = None
        self._rests_until = 0.0

    def check(self) -> None:
        """Raises ``StateUnavailableError`` where it is over."""
        if self._over is not None:
            raise StateUnavailableError(self._over)

    def rest(self) -> None:
        """What was waited for in vain is not asked for by everybody."""
        self._rests_until = time.monotonic() + _REST_SECONDS

    @property
    def resting(self) -> bool:
        return time.monotonic() < self._rests_until

    def over(self, why: str) -> StateUnavailableError:
        """It can't be used any more, by nobody of this process: what to raise."""
        self._over = why
        return self.failed(why)

    def failed(self, why: str) -> StateUnavailableError:
        """What to raise."""
        if not self._gone:
            self._gone = True
            self._tell(why)
        return StateUnavailableError(why)

    def written(self) -> None:
        """Something was."""
        self._rests_until = 0.0
        if self._gone and self._over is None:
            self._gone = False
            self._tell(None)
