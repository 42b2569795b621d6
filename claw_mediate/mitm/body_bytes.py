"""Bytes of request bodies in flight, with a limit for each agent and one for the process.

A body that is held whole counts from its head, by the length that it declares, until its request is
answered. One without a declared length counts as it comes in, and one that is unpacked counts both
packed and unpacked. What streams through is not held (docs/spec/mediation.md section 2).
"""

from collections import Counter
from dataclasses import dataclass
from typing import Literal

type Limit = Literal["one", "agent", "process"]
"""The limit that a body exceeds.

"one": the body alone is larger than all bodies of an agent may be together. "agent": the bodies of
its agent are too large together. "process": the bodies of all agents are.
"""


@dataclass(slots=True, eq=False)
class HeldBody:
    """The bytes that are counted for one request."""

    owner: "BodyBytes"
    agent_id: str
    client_id: str
    size: int = 0

    def grow_to(self, size: int) -> Limit | None:
        """Count ``size`` bytes from now on, unless more are counted already.

        Return the limit that they exceed, or None.
        """
        return self.owner.grow(self, size) if size > self.size else None

    def release(self) -> None:
        self.owner.release(self)


class BodyBytes:
    """The bodies that this process holds. The limits are infinite until settings are applied."""

    def __init__(self) -> None:
        self.max_agent = float("inf")
        self.max_all = float("inf")
        self.all = 0
        self._agents: Counter[str] = Counter()
        self._held: dict[str, set[HeldBody]] = {}
        """The bodies of each connection, which are released when it ends."""

    def hold(self, agent_id: str, client_id: str) -> HeldBody:
        """Return the count of a new body, which is empty."""
        body = HeldBody(self, agent_id, client_id)
        self._held.setdefault(client_id, set()).add(body)
        return body

    def grow(self, body: HeldBody, size: int) -> Limit | None:
        """Count ``size`` bytes for a body, and return None.

        If they exceed a limit, change nothing and return that limit.
        """
        more = size - body.size
        if size > min(self.max_agent, self.max_all):
            return "one"
        if self._agents[body.agent_id] + more > self.max_agent:
            return "agent"
        if self.all + more > self.max_all:
            return "process"

        if body in self._held.get(body.client_id, ()):  # else it has been released
            body.size = size
            self.all += more
            self._agents[body.agent_id] += more
        return None

    def release(self, body: HeldBody) -> None:
        """Stop counting a body. A second call does nothing."""
        bodies = self._held.get(body.client_id)
        if bodies is None or body not in bodies:
            return

        bodies.discard(body)
        if not bodies:
            del self._held[body.client_id]
        self.all -= body.size
        self._agents[body.agent_id] -= body.size
        if not self._agents[body.agent_id]:
            del self._agents[body.agent_id]

    def release_all_of(self, client_id: str) -> None:
        """Stop counting the bodies that came on a connection, which has ended."""
        for body in [*self._held.get(client_id, ())]:
            self.release(body)
