"""What a conversation gets back of its hidden rounds, and why not the rest (spec/mediation.md section 7). Pure.

of an assistant's message          what becomes of it   why
─────────────────────────────────  ───────────────────  ───────────────────────────────────────────────────
its turn is kept, with rounds      reinjected           may be shortened, where the request has no room
                                   missed: over_bound   even so there was no room
its turn is kept, without          plain                nothing was hidden before it
                                   missed: evicted      the agent had no room for them any more
turns with an equal key are kept   missed: other_conversation
none is                            missed: unknown      it was no turn of ours, or too long ago, or was altered
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from claw_contract.log.turns import MissedRounds, ReinjectedRounds
from claw_mediate.core.continuity import Evidence, bounded, chosen
from claw_state.continuity import Anchor, StoredRounds


@dataclass(frozen=True, slots=True)
class Recall:
    """``woven``: hidden messages by the index of the message that they go before; the same bytes every time."""

    woven: Mapping[int, bytes]
    used: tuple[StoredRounds, ...]
    told: ReinjectedRounds


def recalled(
    evidence: Evidence, kept: Sequence[StoredRounds], session: str, shortened: Callable[[bytes], bytes]
) -> Recall:
    """``kept``: the turns whose keys are those of the evidence."""
    found = chosen({**evidence.gaps, **evidence.anchors}, kept, session)
    hidden = {index: one.messages for index, one in found.items() if one.messages}
    woven = bounded(hidden, shortened)
    known = {one.anchor.key for one in kept}
    whys = Counter(_why(anchor, found.get(index), known, index in woven) for index, anchor in evidence.anchors.items())
    gaps = len(woven.keys() - evidence.anchors.keys())
    told = ReinjectedRounds(
        anchors=len(evidence.anchors) + gaps,
        hits=whys["hit"] + whys["plain"] + gaps,
        turns=len(woven),
        bytes=sum(map(len, woven.values())),
        shortened=sum(messages != hidden[index] for index, messages in woven.items()),
        missed=MissedRounds(**{name: whys[name] for name in MissedRounds.model_fields}),
    )
    return Recall(woven, tuple(found[index] for index in woven), told)


def _why(anchor: Anchor, one: StoredRounds | None, known: set[str], woven: bool) -> str:
    if one is None:
        return "unknown" if known.isdisjoint(anchor.keys) else "other_conversation"
    if woven:
        return "hit"
    if one.messages:
        return "over_bound"
    return "evicted" if one.evicted else "plain"
