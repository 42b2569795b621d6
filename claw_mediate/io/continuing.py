"""Conversations that go on: hidden rounds are kept behind a turn, and woven in again before one (spec section 7).

A store that fails costs the memory of earlier turns, never the turn: one event says so, the state's own where it is gone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from claw_mediate.continuity import Anchor, bounded, chosen
from claw_mediate.dialects.base import Dialect, RunnerRequest
from claw_mediate.io.log import EventLog
from claw_mediate.io.store import Store
from claw_state.health import GoneError
from claw_state.place import StoreError

if TYPE_CHECKING:
    from claw_mediate.io.mediated import Job


class Continuing:
    """The hidden part of every conversation."""

    def __init__(self, store: Store, log: EventLog) -> None:
        self._store = store
        self._log = log

    async def woven(self, agent_id: str, view: RunnerRequest, session: str, dialect: Dialect) -> dict[int, bytes]:
        """Hidden messages by the index of the message that they go before; the same bytes every time."""
        if not view.evidence.anchors:
            return {}
        anchors = {index: _of(dialect, anchor) for index, anchor in view.evidence.anchors.items()}
        try:
            kept = await self._store.candidates(agent_id, {anchor.key for anchor in anchors.values()})
            found = chosen(anchors, kept, session)
            hidden = {index: one.messages for index, one in found.items() if one.messages}
            woven = bounded(hidden, dialect.shortened)
            await self._store.used(agent_id, [found[index] for index in woven])
        except GoneError:
            return {}
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
                shortened=sum(messages != hidden[index] for index, messages in woven.items()),
                left_out=len(hidden) - len(woven),
            )
        return woven

    async def remember(self, job: Job, anchor: Anchor, hidden: tuple[bytes, ...]) -> None:
        """Keep what led to an answer or a handoff."""
        try:
            await self._store.keep(job.agent.id, _of(job.dialect, anchor), job.session, b",".join(hidden))
        except GoneError:
            return
        except StoreError as error:
            self._log.event("error", job.agent.id, error="continuity_not_written", reason=str(error))


def _of(dialect: Dialect, anchor: Anchor) -> Anchor:
    """Hidden messages are a dialect's own: a conversation that goes on in another one must not find them."""
    return replace(anchor, key=f"{dialect.NAME}:{anchor.key}")
