"""Conversations that go on: hidden rounds are kept behind a turn, and woven in again before one (spec section 7).

A store that fails costs the memory of earlier turns, never the turn: one event says so, the state's own where it is gone.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import batched
from typing import TYPE_CHECKING

from claw_mediate.agents.directory import Agent
from claw_mediate.core.continuity import Evidence
from claw_mediate.core.recall import recalled
from claw_mediate.dialects.base import Dialect, RunnerRequest
from claw_mediate.telemetry.event_log import EventLog
from claw_state.continuity import Anchor, ContinuityStore, StoredRounds
from claw_state.health import StateUnavailableError
from claw_state.url import StoreError

if TYPE_CHECKING:
    from claw_mediate.turns.run import TurnContext

_AT_A_TIME = 512
"""Anchors that a store is asked for at once."""


class Continuing:
    """The hidden part of every conversation."""

    def __init__(self, store: ContinuityStore, log: EventLog) -> None:
        self._store = store
        self._log = log

    async def woven(
        self, agent: Agent, view: RunnerRequest, dialect: Dialect, *, session: str, turn_id: str | None
    ) -> Mapping[int, bytes]:
        """Hidden messages by the index of the message that they go before; the same bytes every time."""
        evidence = _evidence_of(dialect, view.evidence)
        anchors = [*evidence.anchors.values(), *evidence.gaps.values()]
        if not anchors:
            return {}
        try:
            kept = await self._candidates(agent.id, {key for anchor in anchors for key in anchor.keys})
            recall = recalled(evidence, kept, _digest(session), dialect.shortened)
            await self._store.mark_used(agent.id, recall.used)
        except StateUnavailableError:
            return {}
        except StoreError as error:
            self._log.event("error", agent, turn_id=turn_id, error="continuity_not_read", reason=str(error))
            return {}
        if recall.told.anchors:
            told = recall.told.model_dump()
            self._log.event("continuity", agent, turn_id=turn_id, model=view.model, **told)
        return recall.woven

    async def _candidates(self, agent_id: str, keys: Collection[str]) -> list[StoredRounds]:
        """A few at a time: a conversation of 100,000 messages keeps no other one waiting."""
        kept: list[StoredRounds] = []
        for some in batched(sorted(keys), _AT_A_TIME):
            kept += await self._store.find(agent_id, some)
            await asyncio.sleep(0)
        return kept

    async def remember(self, job: TurnContext, anchor: Anchor, hidden: tuple[bytes, ...]) -> None:
        """Keep what led to an answer or a handoff."""
        try:
            await self._store.save(job.agent.id, _of(job.dialect, anchor), _digest(job.session), b",".join(hidden))
        except StateUnavailableError:
            return
        except StoreError as error:
            self._log.event("error", job.agent, error="continuity_not_written", reason=str(error))


def _evidence_of(dialect: Dialect, evidence: Evidence) -> Evidence:
    anchors = {index: _of(dialect, anchor) for index, anchor in evidence.anchors.items()}
    gaps = {index: _of(dialect, anchor) for index, anchor in evidence.gaps.items()}
    return replace(evidence, anchors=anchors, gaps=gaps)


def _of(dialect: Dialect, anchor: Anchor) -> Anchor:
    """Hidden messages are a dialect's own: a conversation that goes on in another one must not find them."""
    key, *alternatives = (f"{dialect.NAME}:{key}" for key in anchor.keys)
    return replace(anchor, key=key, alternatives=tuple(alternatives))


def _digest(session: str) -> str:
    """A session's name is only compared, and a runner may put anything there."""
    return hashlib.sha256(session.encode()).hexdigest() if session else ""
