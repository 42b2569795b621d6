"""Conversations that go on: hidden rounds are kept behind a turn, and woven in again before one (spec section 7).

A store that fails costs the memory of earlier turns, never the turn: one event says so.
"""

from __future__ import annotations

from claw_mediate.continuity import Anchor, bounded, chosen
from claw_mediate.dialects.base import RunnerRequest
from claw_mediate.io.log import EventLog
from claw_mediate.io.store import Store, StoreError


class Continuing:
    """The hidden part of every conversation."""

    def __init__(self, store: Store, log: EventLog) -> None:
        self._store = store
        self._log = log

    async def woven(self, agent_id: str, view: RunnerRequest, session: str) -> dict[int, bytes]:
        """Hidden messages by the index of the message that they go before; the same bytes every time."""
        if not view.evidence.anchors:
            return {}
        try:
            kept = await self._store.candidates(agent_id, {anchor.key for anchor in view.evidence.anchors.values()})
            found = chosen(view.evidence.anchors, kept, session)
            hidden = {index: one.messages for index, one in found.items() if one.messages}
            woven = bounded(hidden)
            await self._store.used([found[index] for index in woven])
        except StoreError as error:
            self._log.event("error", agent_id, error="continuity_not_read", reason=str(error))
            return {}
        if hidden:
            self._log.event(
                "continuity",
                agent_id,
                model=view.model,
                turns=len(woven),
                bytes=sum(map(len, woven.values())),
                left_out=len(hidden) - len(woven),
            )
        return woven

    async def remember(self, agent_id: str, anchor: Anchor, session: str, hidden: tuple[bytes, ...]) -> None:
        """Keep what led to an answer or a handoff."""
        try:
            await self._store.keep(agent_id, anchor, session, b",".join(hidden))
        except StoreError as error:
            self._log.event("error", agent_id, error="continuity_not_written", reason=str(error))
