"""The rounds of one turn that several messages of a request would bring back.

docs/spec/live.md section 6. Pure. A turn that failed is stored by what it had done until then, and
stored again when a later attempt fails or is answered. Some runners keep a message of each attempt,
so that a request may lead to several entries of one turn:

    the entries                               are of the same rounds if
    ────────────────────────────────────────  ──────────────────────────────────────────────────
    both of live turns                        they name the same turn, and share a round; an answer
                                                that goes on with broken ones names their turns, too
    that of a failure, and a later one        session, messages before and first hidden message
      of an attempt that was answered           are equal

Of such entries the one with most rounds stays, of equal ones the last: what an attempt has done,
the next one has in its record, too. A turn that was continued is stored in parts (``held``), which
share no round, so that all of them stay.
"""

from collections import Counter
from collections.abc import Mapping

import msgspec

from claw_mediate.core import json_splice
from claw_mediate.core.continuity import EMPTY_TEXT_KEY
from claw_mediate.core.shown import LiveRecord
from claw_state.continuity import StoredRounds


class _Entry(msgspec.Struct, frozen=True):
    """A stored turn that a request leads to."""

    index: int  # Of the runner's message
    rounds: StoredRounds
    record: LiveRecord | None

    @property
    def turns(self) -> frozenset[str]:
        """Return the ids of the live turns of which it has rounds."""
        if self.record is None:
            return frozenset()
        return frozenset({self.record.turn, *self.record.continued} - {""})

    @property
    def hidden(self) -> list[bytes]:
        """Return the hidden messages."""
        messages = self.rounds.messages if self.record is None else self.record.hidden
        array = b"[%b]" % messages
        return [array[start:end] for start, end in json_splice.element_spans(array)]

    @property
    def numbers(self) -> frozenset[int]:
        """Return the numbers of the rounds that a live turn's record has."""
        shown = () if self.record is None else self.record.shown
        return frozenset(each.number for each in shown if each.number)

    @property
    def is_unanswered(self) -> bool:
        """True if it was found in the place of an answer that never came, or was empty."""
        return any(key.endswith(EMPTY_TEXT_KEY) for key in self.rounds.anchor.keys)

    @property
    def rank(self) -> tuple[int, int]:
        """Return the sort key of entries of the same rounds; the greatest one stays."""
        return len(self.hidden), self.rounds.id


def find_repeated(
    matches: Mapping[int, StoredRounds], records: Mapping[int, LiveRecord]
) -> frozenset[int]:
    """Return the indexes of those messages whose rounds another message brings back.

    ``matches``: the stored turns by the index of the runner's message. ``records``: those of live
    turns, by the id of the stored turn.
    """
    entries = [
        _Entry(index, rounds, records.get(rounds.id))
        for index, rounds in matches.items()
        if rounds.messages
    ]
    counts = Counter(turn for entry in entries for turn in entry.turns)
    doubtful = [
        entry
        for entry in entries
        if entry.is_unanswered or any(counts[turn] > 1 for turn in entry.turns)
    ]
    return frozenset(
        entry.index
        for entry in doubtful
        if any(_has_rounds_of(other, entry) for other in entries if other is not entry)
    )


def _has_rounds_of(more: _Entry, fewer: _Entry) -> bool:
    """Return whether an entry stays in the place of another one, of the same rounds."""
    return _share_rounds(fewer, more) and fewer.rank < more.rank


def _share_rounds(fewer: _Entry, more: _Entry) -> bool:
    """Return whether two entries are of one turn and share a round."""
    if fewer.record is not None and more.record is not None:
        is_same_turn = not fewer.turns.isdisjoint(more.turns)
        return is_same_turn and not fewer.numbers.isdisjoint(more.numbers)

    if not fewer.is_unanswered or fewer.index > more.index:
        return False

    # One of them names no turn. Two turns may follow the same messages, such as the steps of one
    # task. The ids of calls tell their rounds apart.
    stored, later = fewer.rounds, more.rounds
    if stored.session != later.session or stored.anchor.before != later.anchor.before:
        return False
    return fewer.hidden[:1] == more.hidden[:1]
