"""Whether a state can be used, as it was last found. One event when it can't, one when it is written to again: a state that can
only be read (a full disk, a replica) is not one that can be used.
"""

from __future__ import annotations

from collections.abc import Callable

from claw_state.place import StoreError

type Tell = Callable[[str | None], None]
"""Told why it can't be used; and None: it can be, again."""


class GoneError(StoreError):
    """The state can't be used now, as its own event tells: it is not told of each turn as well."""


class Health:
    """Of one state."""

    def __init__(self, tell: Tell = lambda _: None) -> None:
        self._tell = tell
        self._gone = False

    def failed(self, why: str) -> GoneError:
        """What to raise."""
        if not self._gone:
            self._gone = True
            self._tell(why)
        return GoneError(why)

    def written(self) -> None:
        """Something was."""
        if self._gone:
            self._gone = False
            self._tell(None)
