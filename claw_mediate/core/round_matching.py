"""The matching of hidden rounds with later requests of the same conversation.

docs/spec/mediation.md section 7. Pure.

Stored rounds belong to a message with the same key (``continuity``). Evidence distinguishes
messages with equal keys; none of it is required:

    the session    that the runner names. Two different ones are two conversations
    preceding      digests of the few messages before. One equal digest is enough, since runners
                     add and drop some. Among matches with as many equal digests, the one with
                     fewer other digests wins. A user's message also matches if a runner dropped
                     some of its parts (``_is_same_message``)
    order          the latest of those that are still alike

A key that says enough by itself (ids of calls, a longer answer) needs no evidence if only one turn
has it: a runner may have replaced all messages before it by a summary.

Models, servers and runners make the ids of items, and some only count. So an id is believed only if
one stored turn has it, no other session is named, and either the message right before is the same,
or the session and any message before.

Any text may mention the id of a call. So for a call in a message's text (smolagents) the message
right before must be the same, and no other session named.

A turn may end without an answer: it fails, or the model says nothing at all, and many runners drop
such a message. Its hidden rounds are looked for where the answer would stand, between the user's
messages that nobody answered. Since nothing distinguishes one such place from another, the message
right before must be the same.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, Self

from claw_mediate.core.continuity import (
    EMPTY_TEXT_KEY,
    PART_LENGTH,
    USER_MARK,
    WHOLE_LENGTH,
    Evidence,
    MessageBlock,
)
from claw_state.continuity import ID_KIND, Anchor, StoredRounds

_MAX_EQUAL = 256
"""Messages with equal keys that are compared in one request: the latest.

A heartbeat is answered in the same words day and night. Without a limit, each such answer would be
compared with all stored rounds.
"""
_DISTINCTIVE_KINDS = ("calls", "words")


def match_rounds(
    anchors: Mapping[int, Anchor],
    stored: Sequence[StoredRounds],
    session: str,
    blocks: Mapping[int, MessageBlock] | None = None,
) -> dict[int, StoredRounds]:
    """Return the stored rounds of each message with an anchor.

    One stored turn serves one message.
    """
    blocks = blocks or {}
    return _choose(_find_pairs(anchors, stored, session, blocks), blocks)


class AnswerMatches(NamedTuple):
    """The stored rounds of a request's answers, before it is known where they go."""

    rounds: dict[int, StoredRounds]
    """They are keyed by the index of the message that they led to."""
    places_of: Mapping[int, Sequence[int]]
    """The indexes of all messages that rounds may have led to, by the id of the rounds."""


def match_answers(
    evidence: Evidence, stored: Sequence[StoredRounds], session: str
) -> AnswerMatches:
    """Return the stored rounds of each answer, and of each place of an answer that never came."""
    pairs = _find_pairs({**evidence.gaps, **evidence.anchors}, stored, session, evidence.blocks)
    places_of: dict[int, list[int]] = {}
    for pair in pairs:
        places_of.setdefault(pair.rounds.id, []).append(pair.place)

    return AnswerMatches(_choose(pairs, evidence.blocks), places_of)


def place_rounds(
    evidence: Evidence, matches: AnswerMatches, repeated: Collection[int] = ()
) -> dict[int, StoredRounds]:
    """Return the stored rounds, each by the index of the message that they go before.

    That is the first message of their answer. A block may hold the answers of several turns: the
    first answer begins with the block, each other one right after the last message that the turn
    before it may have produced.

    ``repeated``: indexes of matches that go nowhere (``repeated_rounds``).
    """
    rounds_of = {index: rounds for index, rounds in matches.rounds.items() if index not in repeated}
    if not evidence.blocks or not rounds_of:
        return rounds_of

    placed: dict[int, StoredRounds] = {}
    last_block_start = -1
    after_last_turn = 0  # The index after the messages of the turn that was placed last
    indexes = sorted(rounds_of)
    next_indexes = [*indexes[1:], math.inf]
    for index, next_index in zip(indexes, next_indexes, strict=True):
        rounds = rounds_of[index]
        block_start = evidence.block(index).start
        if block_start != last_block_start:
            placed[block_start] = rounds
        else:
            placed[after_last_turn] = rounds

        # What this turn may have produced ends before the answer of the next one.
        own_places = [
            place
            for place in matches.places_of[rounds.id]
            if place < next_index and evidence.block(place).start == block_start
        ]
        last_block_start = block_start
        after_last_turn = max(own_places) + 1

    return placed


def _choose(
    pairs: Sequence["_Pair"], blocks: Mapping[int, MessageBlock]
) -> dict[int, StoredRounds]:
    """Return the best pair of each message; none of them share a message or a turn.

    An answer may be several messages of a block. None of them goes to another turn with such an
    answer, though only one of them is needed to find their own; and calls of one id are one answer.
    """
    matches: dict[int, StoredRounds] = {}
    place_of: dict[int, int] = {}  # Id of rounds → the message that they were found by
    parts: set[int] = set()  # Further messages of answers that were found
    handoffs: set[tuple[MessageBlock | None, str]] = set()  # Blocks with calls that were found

    for pair in pairs:
        if pair.place in matches or pair.place in parts:
            continue

        block = blocks.get(pair.place)
        answer = pair.rounds.anchor.key
        is_handoff = block is not None and _kind(answer) == "calls"
        handoff = (block, _digest(answer)) if is_handoff else None  # Live or not
        chosen = place_of.get(pair.rounds.id)
        if chosen is None and handoff not in handoffs:
            matches[pair.place] = pair.rounds
            place_of[pair.rounds.id] = pair.place
            if handoff is not None:
                handoffs.add(handoff)
        elif chosen is not None and pair.is_part and block and block == blocks.get(chosen):
            parts.add(pair.place)

    return matches


type _Similarity = tuple[bool, bool, int, int]
"""The sort key of a match; the greatest is the best.

Its members: True if the session is equal, True if an id is equal, the number of equal digests, and
the negative number of other digests (later messages add some).
"""


class _Pair(NamedTuple):
    """A message that may be the one that stored rounds led to."""

    place: int  # The index of the message
    stretch: int
    rounds: StoredRounds
    key: str  # The key that both have
    similarity: _Similarity

    def rank(self) -> tuple[_Similarity, int, int, int]:
        """Return a value that is greater for a better pair.

        Of messages that are alike, the latest stretch is the best, and in a stretch its first
        message. Of rounds that are alike, the latest are the best: their ids grow with each turn.
        """
        return self.similarity, self.stretch, -self.place, self.rounds.id

    @property
    def is_part(self) -> bool:
        """True if the message may be a part of the answer, and is not known to be all of it."""
        return self.key != self.rounds.anchor.key


def _find_pairs(
    anchors: Mapping[int, Anchor],
    stored: Sequence[StoredRounds],
    session: str,
    blocks: Mapping[int, MessageBlock],
) -> list[_Pair]:
    """Return the pairs of messages and stored rounds that nothing contradicts, best first."""
    if not stored:
        return []

    rounds_of: dict[str, list[tuple[StoredRounds, _EarlierMessages]]] = {}
    for rounds in stored:
        with_earlier = (rounds, _EarlierMessages.of(rounds.anchor.before))
        for key in rounds.anchor.keys:
            rounds_of.setdefault(key, []).append(with_earlier)

    messages_of: dict[str, list[int]] = {key: [] for key in rounds_of}
    for index in sorted(anchors):
        for key in {*anchors[index].keys} & messages_of.keys():
            messages_of[key].append(index)

    pairs: list[_Pair] = []
    for key, indexes in messages_of.items():
        for index in indexes[-_MAX_EQUAL:]:
            stretch = blocks[index].stretch if index in blocks else index
            similar = _find_similar(rounds_of[key], anchors[index], key, session)
            pairs += [
                _Pair(index, stretch, rounds, key, similarity) for rounds, similarity in similar
            ]

    return sorted(pairs, key=_Pair.rank, reverse=True)


def _find_similar(
    stored: Sequence[tuple[StoredRounds, "_EarlierMessages"]],
    anchor: Anchor,
    key: str,
    session: str,
) -> Iterator[tuple[StoredRounds, _Similarity]]:
    """Yield those of the rounds with this key that the message may belong to."""
    sent = _EarlierMessages.of(anchor.before)
    is_id = _kind(key) == ID_KIND
    is_alone = len(stored) == 1

    for rounds, earlier in stored:
        overlap, differs = earlier.compare(sent)

        # A text that mentions a part of an answer is no evidence of the whole.
        if key in anchor.alternatives and key != rounds.anchor.key:
            continue

        if is_id:
            may_match = is_alone and _is_id_supported(rounds, anchor, session, overlap)
        else:
            may_match = _may_match(rounds, anchor, key, session, alone=is_alone, overlap=overlap)

        if may_match:
            is_same_session = bool(session) and session == rounds.session
            yield rounds, (is_same_session, is_id, overlap, -differs)


def _is_id_supported(rounds: StoredRounds, anchor: Anchor, session: str, overlap: int) -> bool:
    """Return True if more than an equal id speaks for the match, and nothing against it."""
    if session and rounds.session:
        if session != rounds.session:
            return False
        if overlap:
            return True

    return _follow_same_message(rounds.anchor, anchor)


def _follow_same_message(stored: Anchor, sent: Anchor) -> bool:
    """Return True if the message right before both is the same. False if there is none."""
    if not stored.before or not sent.before:
        return False
    return _is_same_message(stored.before[-1], sent.before[-1])


def _may_match(
    rounds: StoredRounds, anchor: Anchor, key: str, session: str, *, alone: bool, overlap: int
) -> bool:
    """Return True if nothing contradicts the match.

    Two things contradict it: another session, and messages before of which none has an equal
    digest. The second does not count for a distinctive key that only one stored turn has
    (``alone``): the runner may have replaced the messages before by a summary.
    """
    names_sessions = bool(session and rounds.session)
    is_same_session = session == rounds.session

    # Such a key says little, so the message right before must be the same.
    if key in anchor.alternatives or key.endswith(EMPTY_TEXT_KEY):
        is_elsewhere = names_sessions and not is_same_session
        return not is_elsewhere and _follow_same_message(rounds.anchor, anchor)

    if overlap:
        return True

    if names_sessions:
        return is_same_session

    if alone and _kind(key) in _DISTINCTIVE_KINDS:
        return True

    has_evidence = bool(rounds.anchor.before and anchor.before)
    return not has_evidence


def _digest(key: str) -> str:
    """Return the digest in a key, which comes behind its kind."""
    return key.rpartition(":")[2]


def _kind(key: str) -> str:
    """Return the kind of a key, which comes before its digest: "calls", "words", …"""
    return key.split(":")[-2]


class _EarlierMessages(NamedTuple):
    """The digests of the messages before another one, in full and as wholes.

    Wholes are compared first, because runners join and split the parts of a message.
    """

    digests: tuple[str, ...]
    wholes: frozenset[str]
    has_parts: bool

    @classmethod
    def of(cls, before: tuple[str, ...]) -> Self:
        wholes = frozenset(message[:WHOLE_LENGTH] for message in before)
        return cls(before, wholes, has_parts=max(map(len, before), default=0) > WHOLE_LENGTH)

    def compare(self, other: "_EarlierMessages") -> tuple[int, int]:
        """Return how many messages are in both, and how many are in one only."""
        differs = self.wholes ^ other.wholes
        overlap = (len(self.wholes) + len(other.wholes) - len(differs)) // 2

        # Only messages of several parts can be alike without being equal, if they share words.
        if not differs or not (self.has_parts or other.has_parts):
            return overlap, len(differs)
        if _words(self.digests).isdisjoint(_words(other.digests)):
            return overlap, len(differs)

        alike_here: set[str] = set()
        alike_there: set[str] = set()
        unlike_there = [digest for digest in other.digests if digest[:WHOLE_LENGTH] in differs]
        for digest in self.digests:
            if digest[:WHOLE_LENGTH] not in differs:
                continue
            for other_digest in unlike_there:
                if _is_same_message(digest, other_digest):
                    alike_here.add(digest)
                    alike_there.add(other_digest)

        overlap += min(len(alike_here), len(alike_there))
        return overlap, len(differs)


@lru_cache(maxsize=1024)
def _words(before: tuple[str, ...]) -> frozenset[str]:
    """Return the digests of the user's words in all of these messages."""
    return frozenset().union(*(_split_digest(message)[0] for message in before))


def _is_same_message(message: str, other: str) -> bool:
    """Return True if two digests are of one message of the user's.

    A runner may have dropped or changed parts of it. Most of the user's words must be in both, and
    none may be exchanged. Of all parts, with the runner's notes, half must be in both. (The notes
    are alike in every conversation of an agent. The user's words are not.)
    """
    if message[:WHOLE_LENGTH] == other[:WHOLE_LENGTH]:
        return True

    has_parts = max(len(message), len(other)) > WHOLE_LENGTH
    if not has_parts:
        return False

    words, parts = _split_digest(message)
    other_words, other_parts = _split_digest(other)
    shared = words & other_words

    is_subset = shared in (words, other_words)
    is_most = 2 * len(shared) > max(len(words), len(other_words))
    if not is_subset or not is_most:
        return False

    return 2 * len(parts & other_parts) >= min(len(parts), len(other_parts))


@lru_cache(maxsize=1024)
def _split_digest(message: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the digests of the user's words, and those of all parts.

    A message of one part has only the digest of the whole, which begins like that of its part.
    """
    starts = range(WHOLE_LENGTH, len(message), PART_LENGTH)
    parts = [message[start : start + PART_LENGTH] for start in starts]
    if not parts:
        parts = [USER_MARK + message[: PART_LENGTH - 1]]

    words = frozenset(part for part in parts if part[0] == USER_MARK)
    return words, frozenset(parts)
