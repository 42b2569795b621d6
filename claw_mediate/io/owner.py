"""Which process is at a turn: its machine, its number there, and when it began (numbers are used again, 1 above all)."""

from __future__ import annotations

import os
import socket
import uuid
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Owner:
    """Of a process, as others see it in a store that they share."""

    node: str
    pid: int
    life: str

    @classmethod
    def this(cls) -> Owner:
        return cls(socket.gethostname(), os.getpid(), uuid.uuid4().hex)

    @property
    def name(self) -> str:
        return f"{self.node}/{self.pid}/{self.life}"

    def may_live(self, name: str) -> bool:
        """Whether another process may be at its turns. What this process began in this life it knows itself."""
        node, pid, life = name.rsplit("/", 2)
        if life == self.life or node != self.node:
            return life != self.life
        return int(pid) != self.pid and _runs(int(pid))


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
