"""The hidden rounds that a request gets back, and why not the rest.

docs/spec/mediation.md section 7. Pure. Each of the assistant's messages counts as one of these:

    the state has                    result                        because
    ───────────────────────────────  ────────────────────────────  ──────────────────────────────
    its turn, with hidden rounds     reinjected                    (shortened, if room is short)
                                     missed: over_bound            even so there was no room
    its turn, without                plain                         nothing was hidden before it
                                     missed: evicted               they were dropped to make room
    its turn, found twice            plain                         the other message has its rounds
    other turns with an equal key    missed: other_conversation    the evidence is against them
    no turn with its key             missed: unknown               it was no mediated turn, is too
                                                                     long ago, or was altered
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec

from claw_contract.base import JsonObject
from claw_contract.log import MissedRounds, ReinjectedRounds
from claw_mediate.core.continuity import Evidence
from claw_mediate.core.repeated_rounds import find_repeated
from claw_mediate.core.round_matching import match_answers, place_rounds
from claw_mediate.core.shown import LiveRecord, digests_of_hides, is_live_key
from claw_state.continuity import StoredRounds

MAX_REINJECTED_BYTES = 256 * 1024  # For the hidden messages of one request
MAX_UNCHANGED = 256  # Characters of arguments, or of a result, that a summary leaves as they are
_PREFIX_LENGTH = 160  # Characters of the beginning that a summary keeps of longer ones


class Reinjection(msgspec.Struct, frozen=True):
    """The hidden messages for one request, and the log event about them."""

    # Keyed by the index of the message that they go before; the same bytes in every request
    insertions: Mapping[int, bytes]
    rounds: tuple[StoredRounds, ...]  # The stored rounds that were used
    event: ReinjectedRounds
    records: Mapping[int, LiveRecord] = msgspec.field(default_factory=dict)
    """Those of ``insertions`` that are whole records of live turns."""
    places: frozenset[int] = frozenset()
    """All places at which a turn was found, without those whose rounds another one has."""
    hidden_reasoning: frozenset[str] = frozenset()
    """The digests of reasoning in the request that is known to be of hidden rounds."""


def plan_reinjection(
    evidence: Evidence,
    stored: Sequence[StoredRounds],
    session: str,
    summarize: Callable[[bytes], bytes],
) -> Reinjection:
    """Match the stored rounds with the messages of a request.

    ``stored``: the rounds that have a key in common with the evidence.
    """
    answers = match_answers(evidence, stored, session)
    record_of = _read_records(answers.rounds.values())  # By the id of the rounds
    repeated = find_repeated(answers.rounds, record_of)
    matches = place_rounds(evidence, answers, repeated)

    hidden: dict[int, bytes] = {}
    records: dict[int, LiveRecord] = {}
    for index, rounds in matches.items():
        record = record_of.get(rounds.id)
        if record is not None:
            records[index] = record

        # Without its record, nobody knows where the rounds of a live turn belong.
        is_unreadable = record is None and is_live_key(rounds.anchor.key)
        if rounds.messages and not is_unreadable:
            hidden[index] = rounds.messages

    insertions = fit_to_limit(hidden, summarize)

    # A record that had to be shortened, or left out, is no record any more.
    whole = {
        index: record for index, record in records.items() if insertions.get(index) == hidden[index]
    }

    # A turn without an answer is no message of the request: it counts only if it was found.
    gaps = sum(place in evidence.gaps for place in insertions)
    counts = Counter(
        _classify(rounds, place in insertions)
        for place, rounds in matches.items()
        if place not in evidence.gaps
    )
    counts["plain"] += sum(place not in evidence.gaps for place in repeated)
    counts.update(_count_misses(evidence, stored, {*matches, *repeated}))

    names = (name for rounds in stored for name in rounds.anchor.names)
    return Reinjection(
        insertions,
        rounds=tuple(matches[index] for index in insertions),
        event=_describe(insertions, hidden, counts, gaps),
        records=whole,
        places=frozenset(matches),
        hidden_reasoning=digests_of_hides(names),
    )


def _describe(
    insertions: Mapping[int, bytes], hidden: Mapping[int, bytes], counts: Counter[str], gaps: int
) -> ReinjectedRounds:
    """Return the log event. ``gaps``: the turns without an answer that were found."""
    return ReinjectedRounds(
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


def _read_records(found: Iterable[StoredRounds]) -> dict[int, LiveRecord]:
    """Return the records of live turns, by the id of their rounds; none that can't be read."""
    records: dict[int, LiveRecord] = {}
    for rounds in found:
        if not is_live_key(rounds.anchor.key):
            continue

        record = LiveRecord.read(rounds.messages)
        if record is not None:
            records[rounds.id] = record

    return records


def _classify(rounds: StoredRounds, is_inserted: bool) -> str:
    if is_inserted:
        return "hit"
    if rounds.messages:
        return "over_bound"
    return "evicted" if rounds.evicted else "plain"


def _count_misses(
    evidence: Evidence, stored: Sequence[StoredRounds], matches: Collection[int]
) -> Counter[str]:
    """Count the answers without a stored turn, by the reason. An answer is a block of messages.

    ``matches``: the indexes at which a turn was found.
    """
    keys_of: dict[int, set[str]] = {}  # Start of a block → the keys of its messages
    for index, anchor in evidence.anchors.items():
        keys_of.setdefault(evidence.block(index).start, set()).update(anchor.keys)

    # Rounds may have been placed in the middle of a block.
    starts = sorted(keys_of)
    found = {
        starts[bisect_right(starts, place) - 1] for place in matches if place not in evidence.gaps
    }

    known = {key for rounds in stored for key in rounds.anchor.keys}
    misses: Counter[str] = Counter()
    for start, keys in keys_of.items():
        if start not in found:
            misses["unknown" if known.isdisjoint(keys) else "other_conversation"] += 1
    return misses


def fit_to_limit(
    hidden: Mapping[int, bytes],
    summarize: Callable[[bytes], bytes],
    limit: int = MAX_REINJECTED_BYTES,
) -> dict[int, bytes]:
    """Return hidden messages by their index, within ``limit`` bytes.

    Older ones are summarized, and left out if that is not enough.

    Room is made in the order of the conversation, until half of the limit is free. So the beginning
    of the conversation, which a provider has in its cache, changes once in a long while and not
    with every request.
    """

    @cache
    def short(index: int) -> bytes:
        return min(summarize(hidden[index]), hidden[index], key=len)

    def nothing(_index: int) -> bytes:
        return b""

    kept: dict[int, bytes] = {}
    held = 0  # Bytes of ``kept``
    for index in sorted(hidden):
        latest = hidden[index] if len(hidden[index]) <= limit else short(index)
        room = limit - len(latest)  # For all that is older
        if room < 0:
            continue

        if held > room:
            goal = min(limit // 2, room)
            _make_room(kept, short, goal)
            # If the summaries do not free enough, the oldest of them go.
            held = _make_room(kept, nothing, goal)

        kept[index] = latest
        held += len(latest)

    return {index: messages for index, messages in kept.items() if messages}


def _make_room(kept: dict[int, bytes], shrink: Callable[[int], bytes], goal: int) -> int:
    """Shrink the kept messages, oldest first, to ``goal`` bytes. Return how many bytes they are."""
    held = sum(map(len, kept.values()))

    for index, messages in kept.items():
        if held <= goal:
            break
        if messages:
            kept[index] = shrink(index)
            held += len(kept[index]) - len(messages)

    return held


# The summary of a call is the same in every request, for the sake of the provider's cache. Nothing
# in it invites the model to make the call again, which may have been a write.


def summarize_arguments(text: str) -> JsonObject | None:
    """Return an object with the beginning of long arguments; None for short ones, which stay."""
    if len(text) <= MAX_UNCHANGED:
        return None
    return {"left_out": f"{len(text)} characters", "beginning": text[:_PREFIX_LENGTH]}


def summarize_result(content: str) -> str:
    """Return a result envelope without its data; code and status stay."""
    if len(content) <= MAX_UNCHANGED:
        return content

    try:
        envelope = msgspec.json.decode(content, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        envelope = {}

    summary: JsonObject = {"ok": envelope.get("ok") is True}
    error = envelope.get("error")
    if isinstance(error, dict):
        summary["error"] = {
            "code": error.get("code"),
            "message": str(error.get("message"))[:_PREFIX_LENGTH],
        }
    if "status_code" in envelope:
        summary["status_code"] = envelope["status_code"]

    summary["left_out"] = f"{len(content)} characters of an older result"
    return msgspec.json.encode(summary).decode()
