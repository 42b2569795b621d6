"""Hidden rounds of turns that streamed live, put back into the runner's messages.

docs/spec/live.md section 6. Pure.

    the turn                       the runner's message        its hidden rounds
    ─────────────────────────────  ──────────────────────────  ──────────────────────────────────
    its record is whole            is split where each round   go between the parts, in the bytes
                                     ended                       that the provider saw
    the same, but the message is   loses reasoning that is     go before it, without the text
      not what was shown             known to be hidden          that it has itself
    the record was shortened       the same                    the same, shortened
    the messages were evicted      the same                    are lost

Signed reasoning never goes back without its round, because a provider refuses it for good.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from claw_mediate.core.continuity import Evidence
from claw_mediate.core.reinjection import Reinjection
from claw_mediate.core.shown import LiveRecord
from claw_mediate.core.weave import Insert, Replace, Weave, Weaves, join_messages


class SplitRules(NamedTuple):
    """The rules of a dialect for the splitting of its messages."""

    split: Callable[[Sequence[bytes], LiveRecord], Weaves | None]
    """Given the messages from that of the answer on, returns what takes their places.

    The indexes are those of the given messages. None if they are not what was shown.
    """
    without_text: Callable[[bytes], bytes]
    """Returns the hidden messages of a round without the text that the runner was shown."""
    leave_out: Callable[[Sequence[bytes], int, Collection[str]], Mapping[int, bytes]]
    """Given all messages and the index of one, leaves out its reasoning with these digests.

    Returns each message that changes, by its index; b"" if nothing is left of it.
    """
    signatures: Callable[[bytes], Sequence[str]]
    """Returns what tells the reasoning of a reply (``ModelResponse.message``); () for none."""
    joins_text: bool = False
    """True if an answer has one text, with line breaks of the proxy's between rounds."""


def summarize_record(
    messages: bytes, summarize: Callable[[bytes], bytes], rules: SplitRules
) -> bytes:
    """Return shorter hidden messages of a turn, live or not.

    Those of a live turn lose the text that was shown, because they go before it.
    """
    record = LiveRecord.read(messages)
    if record is None:
        return summarize(messages)
    return summarize(_without_shown_text(record, rules))


def _without_shown_text(record: LiveRecord, rules: SplitRules) -> bytes:
    """Return the hidden messages of all rounds, without the text that was shown."""
    return join_messages(
        rules.without_text(messages) if messages and each.text.characters else messages
        for each, messages in zip(record.shown, record.messages, strict=True)
    )


def weave_rounds(
    plan: Reinjection,
    evidence: Evidence,
    load_messages: Callable[[], Sequence[bytes]],
    rules: SplitRules,
) -> dict[int, Weave]:
    """Return what goes into a request, by the index of the runner's message.

    ``load_messages`` returns all messages of the request. It is called only if one is changed.
    """
    weaves: dict[int, Weave] = {
        index: Insert(messages)
        for index, messages in plan.insertions.items()
        if index not in plan.records
    }
    # The runner's messages that hold reasoning of hidden rounds
    hidden = plan.hidden_reasoning
    with_hidden = [
        index for index, digests in evidence.signed.items() if not hidden.isdisjoint(digests)
    ]
    if not plan.records and not with_hidden:
        return weaves

    messages = load_messages()
    turn_places = sorted(plan.places)
    for index in sorted(plan.records):
        # The messages of this turn end before those of the next one.
        after = bisect_right(turn_places, index)
        is_last = after == len(turn_places)
        end = len(messages) if is_last else turn_places[after]
        weaves |= _weave_record(plan.records[index], index, messages[index:end], evidence, rules)

    return _leave_out(weaves, with_hidden, hidden, messages, rules)


def _weave_record(
    record: LiveRecord,
    index: int,
    messages: Sequence[bytes],
    evidence: Evidence,
    rules: SplitRules,
) -> dict[int, Weave]:
    """Return the weaves of one live turn, whose answer begins at ``index``."""
    if index in evidence.gaps:
        # The runner has dropped what it was shown.
        return {index: Insert(record.hidden)} if record.hidden else {}

    split = rules.split(messages, record) if record.hidden else None
    if split is not None:
        return {index + offset: weave for offset, weave in split.items()}

    hidden = _without_shown_text(record, rules)
    return {index: Insert(hidden)} if hidden else {}


def leave_out_hidden(
    signed: Mapping[int, Collection[str]],
    hidden: Collection[str],
    load_messages: Callable[[], Sequence[bytes]],
    rules: SplitRules,
) -> dict[int, Weave]:
    """Return the messages of a request without the reasoning of hidden rounds.

    ``signed``: the digests of reasoning, by the index of its message. ``hidden``: those that are
    known to be of hidden rounds.
    """
    known = frozenset(hidden)
    with_hidden = [index for index, digests in signed.items() if not known.isdisjoint(digests)]
    return _leave_out({}, with_hidden, known, load_messages(), rules) if with_hidden else {}


def leave_out_unexplained(
    weaves: Weaves,
    plan: Reinjection,
    evidence: Evidence,
    load_messages: Callable[[], Sequence[bytes]],
    rules: SplitRules,
) -> dict[int, Weave]:
    """Return the weaves without the runner's reasoning that no stored turn explains.

    For a second try, after a provider has refused reasoning of a request. If the weaves are the
    same, there is nothing to try.
    """
    starts = sorted({evidence.block(index).start for index in evidence.anchors})
    explained = {_block_start(starts, place) for place in plan.places}
    unexplained = [
        index for index in evidence.signed if _block_start(starts, index) not in explained
    ]
    if not unexplained:
        return dict(weaves)

    digests = frozenset(digest for index in unexplained for digest in evidence.signed[index])
    return _leave_out(weaves, unexplained, digests, load_messages(), rules)


def _block_start(starts: Sequence[int], index: int) -> int:
    """Return the start of the answer that a message belongs to."""
    after = bisect_right(starts, index)
    return starts[after - 1] if after else index


def _leave_out(
    weaves: Mapping[int, Weave],
    indexes: Iterable[int],
    digests: Collection[str],
    messages: Sequence[bytes],
    rules: SplitRules,
) -> dict[int, Weave]:
    """Return the weaves with these messages of the runner's freed from reasoning."""
    changed = dict(weaves)
    current = list(messages)
    for index, weave in weaves.items():
        if isinstance(weave, Replace):
            current[index] = weave.rest

    for index in indexes:
        for place, rest in rules.leave_out(current, index, digests).items():
            hidden = changed[place].hidden if place in changed else b""
            changed[place] = Replace(hidden, rest)
            current[place] = rest

    return changed
