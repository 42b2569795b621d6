"""The health of one state, as its last use showed it.

It is reported once when the state fails, and once when a write succeeds again. A state that can
only be read (a full disk, a replica) counts as unusable.
"""

import time
from collections.abc import Callable

from claw_state.url import StoreError

_BACK_OFF_SECONDS = 1.0

type OnHealthChange = Callable[[str | None], None]
"""Called with the reason when the state becomes unusable, and with None when it is usable again."""


class StateUnavailableError(StoreError):
    """The state is unusable.

    ``Health`` has reported it, so callers do not log it again for each turn.
    """


class Health:
    """The health of one state."""

    def __init__(self, on_change: OnHealthChange = lambda _: None) -> None:
        self._on_change = on_change
        self._is_unusable = False
        self._permanent: str | None = None
        self._backs_off_until = 0.0

    def check(self) -> None:
        """Raise ``StateUnavailableError`` if this process can never use the state again."""
        if self._permanent is not None:
            raise StateUnavailableError(self._permanent)

    def back_off(self) -> None:
        """Let callers fail at once for a second, because one of them has just waited in vain.

        ``is_backing_off`` is true meanwhile.
        """
        self._backs_off_until = time.monotonic() + _BACK_OFF_SECONDS

    @property
    def is_backing_off(self) -> bool:
        return time.monotonic() < self._backs_off_until

    def fail_permanently(self, reason: str) -> StateUnavailableError:
        """Record that this process can't use the state any more, and return the error to raise."""
        self._permanent = reason
        return self.fail(reason)

    def fail(self, reason: str) -> StateUnavailableError:
        """Record a failure, and return the error to raise."""
        if not self._is_unusable:
            self._is_unusable = True
            self._on_change(reason)
        return StateUnavailableError(reason)

    def record_write(self) -> None:
        """Record that a write succeeded."""
        self._backs_off_until = 0.0
        if self._is_unusable and self._permanent is None:
            self._is_unusable = False
            self._on_change(None)
