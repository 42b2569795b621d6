"""Who is at a turn: a mediator of a process, by its machine, its number there, and its life (numbers are used again, 1 above
all). A process may have two: with new settings one begins, while the turns of the one before go on.
"""

from __future__ import annotations

import os
import socket
import uuid
from dataclasses import dataclass
from itertools import count

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

    def may_live(self, name: str) -> bool:
        """Whether somebody else may be at its turns. What this mediator has begun it knows itself."""
        node, pid, life, number = name.rsplit("/", 3)
        if node != self.node:
            return True
        if life == self.life:
            return int(number) != self.number
        return int(pid) != self.pid and _runs(int(pid))


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
