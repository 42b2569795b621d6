"""Who is at a turn: a mediator, by a life that nobody else has. Its machine and process are for people to read. A process may
have two: with new settings one begins, while the turns of the one before go on.
"""

from __future__ import annotations

import os
import socket
import uuid
from dataclasses import dataclass, replace

from claw_state.lease import holder_lives

LEASE_SECONDS = 10.0
"""How long a process is believed to be at a turn that it said nothing more of."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Of a mediator, as others see it in a store that they share."""

    node: str
    pid: int
    life: str
    file: str = ""
    """Of SQLite, beside which a mediator proves that it lives (``life``). Of a state on a server the lease alone says it."""

    @classmethod
    def current(cls) -> Owner:
        return cls(socket.gethostname(), os.getpid(), uuid.uuid4().hex)

    def with_file(self, file: str) -> Owner:
        return replace(self, file=file)

    @property
    def name(self) -> str:
        return f"{self.node}/{self.pid}/{self.life}"

    def may_be_at(self, name: str, silent: float) -> bool:
        """Whether somebody else may be at a turn that runs, and of which nothing was heard for so many seconds. What this
        mediator has begun it knows itself.
        """
        return name != self.name and self.believes(name, silent)

    def believes(self, name: str, silent: float) -> bool:
        """Whether a mediator, this one or another, may still be at a turn."""
        if silent >= LEASE_SECONDS:
            return False
        return name == self.name or not self.file or holder_lives(self.file, name.rpartition("/")[-1])
