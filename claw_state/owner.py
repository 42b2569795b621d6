"""Who is at a turn: a mediator of a process, by its machine, its number there, and its life (numbers are used again, 1 above
all). A process may have two: with new settings one begins, while the turns of the one before go on.
"""

from __future__ import annotations

import os
import socket
import uuid
from dataclasses import dataclass
from itertools import count

LEASE_SECONDS = 10.0
"""How long a process is believed to be at a turn that it said nothing more of."""
_LIFE = uuid.uuid4().hex
"""Of this process."""
_mediators = count()


@dataclass(frozen=True, slots=True)
class Owner:
    """Of a mediator, as others see it in a store that they share."""

    node: str
    pid: int
    life: str
    number: int = 0

    @classmethod
    def this(cls) -> Owner:
        return cls(socket.gethostname(), os.getpid(), _LIFE, next(_mediators))

    @property
    def name(self) -> str:
        return f"{self.node}/{self.pid}/{self.life}/{self.number}"

    def may_be_at(self, name: str, silent: float) -> bool:
        """Whether somebody else may be at a turn that runs, and of which nothing was heard for so many seconds. What this
        mediator has begun it knows itself.
        """
        return silent < LEASE_SECONDS and self._may_live(name)

    def _may_live(self, name: str) -> bool:
        try:
            node, pid, life, number = name.rsplit("/", 3)
        except ValueError:  # no name of ours: its lease decides
            return True
        if node != self.node:
            return True
        if life == self.life:
            return number != str(self.number)
        return pid != str(self.pid) and _runs(pid)


def _runs(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, ValueError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
