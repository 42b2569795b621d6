"""The hidden rounds that a request gets back, and why not the rest
(docs/spec/mediation.md section 7). Pure.

an assistant's message             result               why
─────────────────────────────────  ───────────────────
─────────────────────────────────────────────────── its turn is kept, with rounds      reinjected
may be shortened, where the request has no room
                                   missed: over_bound   even so there was no room
its turn is kept, without          plain                nothing was hidden before it
                                   missed: evicted      the agent had no room for them any more
turns with an equal key are kept   missed: other_conversation
no such turn is kept               missed: unknown      it was no mediated turn, or too long ago, or
was altered
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec

from claw_contract.base import JsonObject
from claw_contract.log import MissedRounds, ReinjectedRounds
from claw_mediate.core.continuity import Evidence, place_rounds
from claw_state.continuity import StoredRounds

MAX_REINJECTED_BYTES = 256 * 1024  # For the hidden messages of one request
MAX_UNCHANGED = 256  # Characters of arguments, or of a result, that a summary leaves as they are
_PREFIX_LENGTH = 160  # Characters of longer ones that it keeps


class Reinjection(msgspec.Struct, frozen=True):
    """The hidden messages for one request, and the log event about them."""

    insertions: Mapping[
        int, bytes
    ]  # Keyed by the index of the message that they go before; the same bytes every time
    rounds: tuple[StoredRounds, ...]  # The stored rounds that were used
    event: ReinjectedRounds


def plan_reinjection(
    evidence: Evidence,
    stored: Sequence[StoredRounds],
    session: str,
    summarize: Callable[[bytes], bytes],
) -> Reinjection:
    """Match the stored rounds with the messages of a request.

    ``stored``: those whose keys are in the evidence.
    """
    matches = place_rounds(evidence, stored, session)
    hidden = {index: rounds.messages for index, rounds in matches.items() if rounds.messages}
    insertions = fit_to_limit(hidden, summarize)
    gaps = sum(place in evidence.gaps for place in insertions)
    counts = Counter(
        _classify(rounds, place in insertions)
        for place, rounds in matches.items()
        if place not in evidence.gaps
    )
    counts.update(_count_misses(evidence, stored, matches))
    event = ReinjectedRounds(
        anchors=counts.total() + gaps,
        hits=counts["hit"] + counts["plain"] + gaps,
        turns=len(insertions),
        bytes=sum(map(len, insertions.values())),
        shortened=sum(messages != hidden[index] for index, messages in insertions.items()),
        missed=MissedRounds(
            unknown=counts["unknown"],
            evicted=counts["evicted"],
            other_conversation=counts["other_conversation"],
            over_bound=counts["over_bound"],
        ),
    )
    return Reinjection(insertions, tuple(matches[index] for index in insertions), event)


def _classify(rounds: StoredRounds, is_inserted: bool) -> str:
    if is_inserted:
        return "hit"
    if rounds.messages:
        return "over_bound"
    return "evicted" if rounds.evicted else "plain"


def _count_misses(
    evidence: Evidence, stored: Sequence[StoredRounds], matches: Mapping[int, StoredRounds]
) -> Counter[str]:
    """Count the answers without a stored turn, by the reason. An answer is a block of messages."""
    blocks: dict[int, set[str]] = {}
    for index, anchor in evidence.anchors.items():
        blocks.setdefault(evidence.block(index).start, set()).update(anchor.keys)
    starts = sorted(blocks)
    found = {
        starts[bisect_right(starts, place) - 1] for place in matches if place not in evidence.gaps
    }
    known = {key for rounds in stored for key in rounds.anchor.keys}
    missed = (names for start, names in blocks.items() if start not in found)
    return Counter(
        "unknown" if known.isdisjoint(names) else "other_conversation" for names in missed
    )


def fit_to_limit(
    hidden: Mapping[int, bytes],
    summarize: Callable[[bytes], bytes],
    limit: int = MAX_REINJECTED_BYTES,
) -> dict[int, bytes]:
    """Return hidden messages by their index, within ``limit`` bytes: older ones are
    summarized, and if need be left out.

    Room is made in the order of the conversation, and for half of the bytes at once: what a
    provider has cached of its beginning then changes once in a long while, not with every request.
    """

    @cache
    def short(index: int) -> bytes:
        return min(summarize(hidden[index]), hidden[index], key=len)

    kept: dict[int, bytes] = {}
    held = 0
    for index in sorted(hidden):
        latest = hidden[index] if len(hidden[index]) <= limit else short(index)
        if len(latest) > limit:
            continue
        if held > limit - len(latest):
            goal = min(limit // 2, limit - len(latest))
            _make_room(kept, short, goal)
            held = _make_room(kept, lambda _: b"", goal)
        kept[index] = latest
        held += len(latest)
    return {index: messages for index, messages in kept.items() if messages}


def _make_room(kept: dict[int, bytes], shrink: Callable[[int], bytes], goal: int) -> int:
    held = sum(map(len, kept.values()))
    for index, messages in kept.items():
        if held <= goal:
            break
        if messages:
            kept[index] = shrink(index)
            held += len(kept[index]) - len(messages)
    return held


# A summary gives the same bytes for the same call, and nothing in it invites the model to call
# again: it may have been a write.


def summarize_arguments(text: str) -> JsonObject | None:
    """Return long arguments as an object with their beginning; None where they are short."""
    return (
        None
        if len(text) <= MAX_UNCHANGED
        else {"left_out": f"{len(text)} characters", "beginning": text[:_PREFIX_LENGTH]}
    )


def summarize_result(content: str) -> str:
    """Return a result envelope without its data; code and status stay."""
    if len(content) <= MAX_UNCHANGED:
        return content
    try:
        envelope = msgspec.json.decode(content, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        envelope = {}
    summary: JsonObject = {"ok": envelope.get("ok") is True}
    if isinstance(error := envelope.get("error"), dict):
        summary["error"] = {
            "code": error.get("code"),
            "message": str(error.get("message"))[:_PREFIX_LENGTH],
        }
    if "status_code" in envelope:
        summary["status_code"] = envelope["status_code"]
    return msgspec.json.encode(
        summary | {"left_out": f"{len(content)} characters of an older result"}
    ).decode()
