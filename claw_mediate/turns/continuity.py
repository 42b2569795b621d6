"""The hidden rounds of a conversation: stored after a turn, found again before the next one.

A store that fails costs the memory of earlier turns, never the turn (docs/spec/mediation.md section
7). One event reports it; where the whole state is gone, the state's own event does.
"""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from itertools import batched
from typing import NamedTuple

from msgspec.structs import replace

from claw_mediate.core.continuity import Evidence
from claw_mediate.core.reinjection import Reinjection, plan_reinjection
from claw_mediate.core.shown import LiveRecord, hides_key, live_name
from claw_mediate.core.split import leave_out_unexplained, summarize_record, weave_rounds
from claw_mediate.core.weave import Weaves
from claw_mediate.dialects.base import Dialect
from claw_mediate.dialects.bodies import transcript_messages
from claw_mediate.http.large_bodies import compute
from claw_mediate.telemetry.event_log import EventLog
from claw_mediate.turns.context import DialectRequest, TurnContext
from claw_mediate.turns.kept.records import marks_of
from claw_state.continuity import (
    MAX_NAMES,
    Anchor,
    ContinuityStore,
    StoredRounds,
    join_by_id,
)
from claw_state.health import StateUnavailableError
from claw_state.url import StoreError

_BATCH = 512  # Anchors that a store is asked for at once


class FoundRounds(NamedTuple):
    """The hidden rounds of earlier turns, as they go into a request."""

    weaves: Weaves
    """Hidden messages by the index of the runner's message that they go to."""
    explained: Callable[[], Weaves] | None = None
    """Returns the weaves without reasoning of the runner's that no stored turn explains.

    For a second try, after a provider has refused reasoning. None if there is no such reasoning.
    """


class Continuity:
    """The hidden part of every conversation."""

    def __init__(self, store: ContinuityStore, log: EventLog) -> None:
        self._store = store
        self._log = log

    async def find_hidden_rounds(
        self, incoming: DialectRequest, session: str, turn_id: str | None
    ) -> FoundRounds:
        """Return the hidden messages of earlier turns. They are the same bytes every time."""
        agent, size = incoming.agent, len(incoming.view.body)

        # The evidence is every word of the conversation: it is read once, and cached by the view.
        evidence = await compute(size, partial(_own_evidence, incoming))
        keys = await compute(size, partial(_keys_of, incoming, evidence))
        if not keys:
            return FoundRounds({})

        try:
            stored = await self._candidates(agent.id, keys)
            plan = partial(_plan, incoming, evidence, stored, _digest(session))
            recall, found = await compute(size, plan)
            await self._store.mark_used(agent.id, recall.rounds)
        except StateUnavailableError:
            return await compute(size, partial(_find_nothing, incoming, evidence))
        except StoreError as error:
            self._log.event(
                "error", agent, turn_id=turn_id, error="continuity_not_read", reason=str(error)
            )
            return await compute(size, partial(_find_nothing, incoming, evidence))

        if recall.event.anchors:
            self._log.event(
                "continuity",
                agent,
                turn_id=turn_id,
                model=incoming.view.model,
                **recall.event.model_dump(),
            )
        return found

    async def _candidates(self, agent_id: str, keys: Sequence[str]) -> list[StoredRounds]:
        """Ask the store for a few keys at a time.

        So a conversation of 100,000 messages keeps no other one waiting.
        """
        stored: list[StoredRounds] = []
        for number, batch in enumerate(batched(keys, _BATCH)):
            if number > 0:
                await asyncio.sleep(0)
            stored += await self._store.find(agent_id, batch)

        return join_by_id(stored)

    async def remember(
        self, context: TurnContext, anchor: Anchor, hidden: tuple[bytes, ...]
    ) -> None:
        """Store the hidden messages that led to an answer or a handoff."""
        await self._save(context, _prefixed(context.dialect.name, anchor), b",".join(hidden))

    async def remember_live(self, context: TurnContext, anchor: Anchor, record: LiveRecord) -> None:
        """Store the record of a turn that streamed live.

        Which reasoning belongs to its hidden rounds is found even when the messages were evicted.
        """
        hides = [*map(hides_key, sorted(record.signed))]
        names = (*anchor.names[: MAX_NAMES // 2], *hides)
        named = replace(anchor, names=names[:MAX_NAMES])
        own_anchor = _prefixed(live_name(context.dialect.name), named)
        await self._save(context, own_anchor, record.write() if record.hidden else b"")

    async def _save(self, context: TurnContext, anchor: Anchor, messages: bytes) -> None:
        session = _digest(context.session)
        try:
            await self._store.save(context.agent.id, anchor, session, messages)
        except StateUnavailableError:
            return
        except StoreError as error:
            self._log.event(
                "error", context.agent, error="continuity_not_written", reason=str(error)
            )


def _uncovered(incoming: DialectRequest) -> Evidence:
    """Return the evidence without the answers that the provider has with their hidden rounds.

    With those, the rounds would be in the request twice.
    """
    evidence, covered = incoming.view.evidence, incoming.covered
    if incoming.view.keeps_rounds:
        # The provider's conversation also holds the rounds of turns that gave no answer.
        evidence = replace(evidence, gaps={})
    if not covered:
        return evidence

    anchors = {
        index: anchor
        for index, anchor in evidence.anchors.items()
        if covered.isdisjoint(marks_of([anchor]))
    }
    return replace(evidence, anchors=anchors)


def _plan(
    incoming: DialectRequest, evidence: Evidence, stored: Sequence[StoredRounds], session: str
) -> tuple[Reinjection, FoundRounds]:
    """Return the plan of a request's hidden rounds, and where they go in its messages."""
    dialect = incoming.dialect
    rules = dialect.split_rules
    load_messages = partial(transcript_messages, incoming.view.body, dialect.transcript)

    summarize = partial(summarize_record, summarize=dialect.summarize, rules=rules)
    plan = plan_reinjection(evidence, stored, session, summarize)
    weaves = weave_rounds(plan, evidence, load_messages, rules)
    if not evidence.signed:
        return plan, FoundRounds(weaves)

    explain = partial(leave_out_unexplained, weaves, plan, evidence, load_messages, rules)
    return plan, FoundRounds(weaves, explain)


def _find_nothing(incoming: DialectRequest, evidence: Evidence) -> FoundRounds:
    """Return what is known of a request without a store: nothing, which explains no reasoning."""
    return _plan(incoming, evidence, (), "")[1]


def _keys_of(incoming: DialectRequest, evidence: Evidence) -> Sequence[str]:
    """Return each key by which rounds may be found, in order."""
    anchors = (*evidence.anchors.values(), *evidence.gaps.values())
    keys = {key for anchor in anchors for key in anchor.keys}

    live = live_name(incoming.dialect.name)
    digests = (digest for digests in evidence.signed.values() for digest in digests)
    return sorted(keys.union(f"{live}:{hides_key(digest)}" for digest in digests))


def _own_evidence(incoming: DialectRequest) -> Evidence:
    """Return the evidence of a request as its dialect names it."""
    dialect, evidence = incoming.dialect, _uncovered(incoming)
    anchors = {index: _own(dialect, anchor) for index, anchor in evidence.anchors.items()}
    gaps = {index: _own(dialect, anchor) for index, anchor in evidence.gaps.items()}
    return replace(evidence, anchors=anchors, gaps=gaps)


def _own(dialect: Dialect, anchor: Anchor) -> Anchor:
    """Return the anchor of a message in a request, under the names of turns of both kinds."""
    own, live = f"{dialect.name}:", f"{live_name(dialect.name)}:"
    alternatives, names = anchor.alternatives, anchor.names
    return Anchor(
        own + anchor.key,
        anchor.before,
        (*[own + key for key in alternatives], *[live + key for key in alternatives]),
        (*[own + key for key in names], live + anchor.key, *[live + key for key in names]),
    )


def _prefixed(name: str, anchor: Anchor) -> Anchor:
    """Return the anchor with the name of its dialect in its keys.

    A conversation that goes on in another dialect must not find it.
    """
    prefix = f"{name}:"
    alternatives = tuple([prefix + key for key in anchor.alternatives])
    names = tuple([prefix + key for key in anchor.names])
    return Anchor(prefix + anchor.key, anchor.before, alternatives, names)


def _digest(session: str) -> str:
    """Return a digest of a session's name.

    The name is only compared, and a runner may put anything there.
    """
    return hashlib.sha256(session.encode()).hexdigest() if session else ""
