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
from functools import cache
from typing import Any

import msgspec

from claw_contract.base import JsonObject
from claw_contract.log.turns import Missed, Reinjected
from claw_mediate.core.continuity import Evidence, match_rounds
from claw_state.continuity import Anchor, StoredRounds

MAX_REINJECTED_BYTES = 256 * 1024
"""Bytes of hidden messages in one request."""
MAX_UNCHANGED = 256
"""Characters that stay as they are."""
_PREFIX_LENGTH = 160


@dataclass(frozen=True, slots=True)
class Reinjection:
    """``woven``: hidden messages by the index of the message that they go before; the same bytes every time."""

    woven: Mapping[int, bytes]
    used: tuple[StoredRounds, ...]
    told: Reinjected


def plan_reinjection(
    evidence: Evidence, kept: Sequence[StoredRounds], session: str, shortened: Callable[[bytes], bytes]
) -> Reinjection:
    """``kept``: the turns whose keys are those of the evidence."""
    found = match_rounds({**evidence.gaps, **evidence.anchors}, kept, session)
    hidden = {index: one.messages for index, one in found.items() if one.messages}
    woven = fit_to_limit(hidden, shortened)
    known = {one.anchor.key for one in kept}
    whys = Counter(
        _classify(anchor, found.get(index), known, index in woven) for index, anchor in evidence.anchors.items()
    )
    gaps = len(woven.keys() - evidence.anchors.keys())
    told = Reinjected(
        anchors=len(evidence.anchors) + gaps,
        hits=whys["hit"] + whys["plain"] + gaps,
        turns=len(woven),
        bytes=sum(map(len, woven.values())),
        shortened=sum(messages != hidden[index] for index, messages in woven.items()),
        missed=Missed(**{name: whys[name] for name in Missed.model_fields}),
    )
    return Reinjection(woven, tuple(found[index] for index in woven), told)


def _classify(anchor: Anchor, one: StoredRounds | None, known: set[str], woven: bool) -> str:
    if one is None:
        return "unknown" if known.isdisjoint(anchor.keys) else "other_conversation"
    if woven:
        return "hit"
    if one.messages:
        return "over_bound"
    return "evicted" if one.evicted else "plain"


def fit_to_limit(
    hidden: Mapping[int, bytes], shortened: Callable[[bytes], bytes], most: int = MAX_REINJECTED_BYTES
) -> dict[int, bytes]:
    """Hidden messages by their place, within ``most`` bytes: older ones shrink, and where that is not enough, are left out.

    Room is made as the conversation went, and for half of the bytes at once: what a provider has cached of its beginning then
    changes once in a long while, not with every request.
    """

    @cache
    def short(index: int) -> bytes:
        return min(shortened(hidden[index]), hidden[index], key=len)

    kept: dict[int, bytes] = {}
    held = 0
    for index in sorted(hidden):
        latest = hidden[index] if len(hidden[index]) <= most else short(index)
        if len(latest) > most:
            continue
        if held > most - len(latest):
            goal = min(most // 2, most - len(latest))
            _make_room(kept, short, goal)
            held = _make_room(kept, lambda _: b"", goal)
        kept[index] = latest
        held += len(latest)
    return {index: messages for index, messages in kept.items() if messages}


def _make_room(kept: dict[int, bytes], less: Callable[[int], bytes], goal: int) -> int:
    """Less of the oldest, until all of it fits. The bytes that are held then."""
    held = sum(map(len, kept.values()))
    for index, messages in kept.items():
        if held <= goal:
            break
        if messages:
            kept[index] = less(index)
            held += len(kept[index]) - len(messages)
    return held


def summarize_arguments(text: str) -> JsonObject | None:
    """Arguments, as an object, by how they begin; None: they are short."""
    return (
        None
        if len(text) <= MAX_UNCHANGED
        else {"left_out": f"{len(text)} characters", "beginning": text[:_PREFIX_LENGTH]}
    )


def summarize_result(content: str) -> str:
    """A result envelope without its data; the code and status stay."""
    if len(content) <= MAX_UNCHANGED:
        return content
    try:
        envelope = msgspec.json.decode(content, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        envelope = {}
    less: JsonObject = {"ok": envelope.get("ok") is True}
    if isinstance(error := envelope.get("error"), dict):
        less["error"] = {"code": error.get("code"), "message": str(error.get("message"))[:_PREFIX_LENGTH]}
    if "status_code" in envelope:
        less["status_code"] = envelope["status_code"]
    return msgspec.json.encode(less | {"left_out": f"{len(content)} characters of an older result"}).decode()
