"""The hidden rounds of a conversation: stored after a turn, found again before the next one.

A store that fails costs the memory of earlier turns, never the turn (docs/spec/mediation.md section
7). One event reports it; where the whole state is gone, the state's own event does.

Rounds are found by the whole answer that they led to. A runner that left on the way has a part of
it, and goes on with that: then they are stored under the part, too.
"""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from itertools import batched
from typing import NamedTuple

from msgspec.structs import replace

from claw_mediate.core import json_splice
from claw_mediate.core.continuity import Evidence, text_key
from claw_mediate.core.reinjection import Reinjection, plan_reinjection
from claw_mediate.core.shown import (
    LiveRecord,
    ShownRound,
    digests_of_hides,
    failed_anchor_of_shown,
    hides_key,
    live_name,
)
from claw_mediate.core.split import (
    leave_out_hidden,
    leave_out_unexplained,
    summarize_record,
    weave_rounds,
)
from claw_mediate.core.tool_catalog import ToolCatalog
from claw_mediate.core.weave import NO_WEAVES, Weaves
from claw_mediate.dialects.base import Dialect
from claw_mediate.dialects.bodies import transcript_messages
from claw_mediate.http.large_bodies import compute
from claw_mediate.telemetry.event_log import EventLog
from claw_mediate.turns.context import BrokenAnswer, DialectRequest, TurnContext
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
_NO_TOOLS = ToolCatalog((), {}, frozenset())  # An answer is known by its calls, whoever has them


class FoundRounds(NamedTuple):
    """The hidden rounds of earlier turns, as they go into a request."""

    weaves: Weaves
    """Hidden messages by the index of the runner's message that they go to."""
    explained: Callable[[], Weaves] | None = None
    """Returns the weaves without reasoning of the runner's that no stored turn explains.

    For a second try, after a provider has refused reasoning. None if there is no such reasoning.
    """
    broken: BrokenAnswer | None = None
    """The last answer of which the rounds are known, if it broke off."""


class AnsweredTurn(NamedTuple):
    """A turn that is over, with its whole answer as its runner was to get it."""

    turn_id: str
    body: bytes


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

    async def find_hidden_reasoning(self, incoming: DialectRequest) -> Weaves:
        """Return the messages of a request that lose the reasoning of hidden rounds.

        For a request that gets no hidden rounds: without them, a provider refuses their reasoning.
        """
        size = len(incoming.view.body)
        evidence = await compute(size, lambda: incoming.view.evidence)
        if not evidence.signed:
            return NO_WEAVES

        keys = [*_keys_of(incoming, Evidence(signed=evidence.signed))]
        try:
            stored = await self._candidates(incoming.agent.id, keys)
        except StoreError as error:
            if not isinstance(error, StateUnavailableError):
                self._log.event(
                    "error", incoming.agent, error="continuity_not_read", reason=str(error)
                )
            return NO_WEAVES

        hidden = digests_of_hides(name for each in stored for name in each.anchor.names)
        dialect = incoming.dialect
        load_messages = partial(transcript_messages, incoming.view.body, dialect.transcript)
        leave_out = partial(
            leave_out_hidden, evidence.signed, hidden, load_messages, dialect.split_rules
        )
        return await compute(size, leave_out)

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

    async def knows_last_answer(self, incoming: DialectRequest) -> bool:
        """Return whether the last answer in a request is that of a turn.

        It may also be missing between the user's messages. True if there is none, or if the store
        can't be read.
        """
        evidence = await compute(len(incoming.view.body), lambda: incoming.view.evidence)
        places = {**evidence.gaps, **evidence.anchors}
        if not places:
            return True

        last = places[max(places)]
        own = _own(incoming.dialect, last)
        try:
            stored = await self._store.find(incoming.agent.id, own.keys)
        except StoreError:  # which is reported when the rounds are looked for
            return True
        return any(each.anchor.before[-1:] == last.before[-1:] for each in stored)

    async def remember_part(
        self, incoming: DialectRequest, session: str, answer: AnsweredTurn, part: str
    ) -> LiveRecord | None:
        """Store the hidden rounds of a turn under a part of its answer, which its runner holds.

        ``incoming`` is the request of that turn. Return their record; None if there are none, or if
        such an answer is known as a whole one. Raise ``StoreError``.
        """
        agent_id, dialect, view = incoming.agent.id, incoming.dialect, incoming.view
        read = partial(_anchor_of_answer, incoming, answer.body)
        whole = await compute(len(answer.body), read)

        before = view.evidence.before
        of_part = _own(dialect, Anchor(text_key(part), before))
        stored = await self._store.find(agent_id, [*whole.keys, *of_part.keys])
        record = _find_record(stored, whole, answer.turn_id)

        others = {each.anchor.key for each in stored if each.anchor.before == before}
        is_known = not others.isdisjoint(of_part.keys)
        if record is not None and not is_known:
            record = replace(record, is_part=True)
            anchor = _prefixed(live_name(dialect.name), failed_anchor_of_shown(part, before))
            await self._store.save(agent_id, anchor, _digest(session), record.write())
        return record

    async def remember_again(
        self, incoming: DialectRequest, session: str, answer: AnsweredTurn
    ) -> None:
        """Store the hidden rounds of an answer also behind this request, which is given it again.

        The request may have more words than that of the turn (OpenClaw adds a note), and later ones
        have these. Raise ``StoreError``.
        """
        agent_id, before = incoming.agent.id, incoming.view.evidence.before
        read = partial(_anchor_of_answer, incoming, answer.body)
        whole = await compute(len(answer.body), read)
        stored = await self._store.find(agent_id, whole.keys)
        if any(each.anchor.before == before for each in stored):
            return

        # Only the last of the messages before may differ.
        same = [each for each in stored if each.anchor.before[:-1] == before[:-1]]
        latest = max(same, key=lambda each: each.id, default=None)
        behind = before
        if latest is not None and before[:-1]:
            behind = latest.anchor.before
        record = _find_record(same, replace(whole, before=behind), answer.turn_id)
        if record is not None:
            key = f"{live_name(incoming.dialect.name)}:{whole.key.partition(':')[2]}"
            await self._store.save(agent_id, Anchor(key, before), _digest(session), record.write())

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


def _anchor_of_answer(incoming: DialectRequest, body: bytes) -> Anchor:
    """Return the anchor of a request's answer, with the keys of turns of both kinds."""
    dialect = incoming.dialect
    response = dialect.read_response(body, _NO_TOOLS)
    return _own(dialect, dialect.response_anchor(response, incoming.view, terminal=False))


def _find_record(stored: Sequence[StoredRounds], whole: Anchor, turn_id: str) -> LiveRecord | None:
    """Return the record of a turn's hidden rounds; None if it hid nothing, or they were evicted.

    ``whole``: of its answer. A turn that was continued has several records: the one with most
    rounds is that of all.
    """
    records = [record for each in stored if (record := LiveRecord.read(each.messages)) is not None]
    own = [record for record in records if record.turn == turn_id and record.hidden]
    if own:
        return max(own, key=lambda record: sum(each.messages for each in record.shown))

    # A turn whose hidden rounds showed nothing has no record of its own, only their messages.
    plain = [
        each
        for each in stored
        if each.anchor.key == whole.key and each.messages and each.anchor.before == whole.before
    ]
    latest = max(plain, key=lambda each: each.id, default=None)
    if latest is None or latest.evicted:
        return None
    hidden = latest.messages
    count = len(json_splice.element_spans(b"[%b]" % hidden))
    return LiveRecord((ShownRound(1, messages=count),), (hidden,), turn_id)


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
    broken = _find_broken(plan)
    if not evidence.signed:
        return plan, FoundRounds(weaves, broken=broken)

    explain = partial(leave_out_unexplained, weaves, plan, evidence, load_messages, rules)
    return plan, FoundRounds(weaves, explain, broken)


def _find_broken(plan: Reinjection) -> BrokenAnswer | None:
    """Return the last answer of which the rounds are known, if it broke off."""
    if not plan.records:
        return None

    last = max(plan.records)
    record = plan.records[last]
    if not record.is_part:
        return None
    rounds_of = dict(zip(plan.insertions, plan.rounds, strict=True))
    return BrokenAnswer(rounds_of[last].anchor, record)


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
