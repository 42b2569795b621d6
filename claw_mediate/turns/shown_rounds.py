"""The record of a live turn's hidden rounds, as continuity stores it."""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from claw_mediate.core.held_text import compact
from claw_mediate.core.shown import PREFILL, LiveRecord, RoundText, describe_rounds
from claw_mediate.core.shown_log import ShownWords
from claw_mediate.core.types import Round
from claw_mediate.turns.context import TurnContext
from claw_mediate.turns.shown_answer import ShownAnswer


class LostText(NamedTuple):
    """The text of a reply that broke off, in a runner's hands.

    It leaves the transcript as a rejected round does.
    """

    text: str
    behind: int  # The number of the round that it stands behind; 0 for none

    def as_round(self) -> RoundText:
        return RoundText(self.behind + 1, self.text)


def find_lost_text(held: str, shown: ShownAnswer, *, in_items: bool) -> LostText | None:
    """Return what a runner holds beside the rounds of earlier attempts; None if nothing.

    ``in_items``: a round of which it holds a part was shown whole, so that the part is lost, too.
    """
    left = compact(held)
    behind = 0
    for number in range(1, shown.known_rounds + 1):
        text = compact(shown.rounds.get(number, ShownWords()).text)
        if not left.startswith(text):
            return LostText(left, behind) if left and in_items else None
        left = left[len(text) :]
        behind = number

    return LostText(left, behind) if left else None


def describe_shown(
    context: TurnContext,
    rounds: Sequence[Round],
    shown: ShownAnswer,
    after: str,
    lost: LostText | None = None,
) -> LiveRecord:
    """Return the record of rounds of which something was shown.

    ``after``: the text that was shown behind them.
    """
    dialect, prefill = context.dialect, context.view.prefill_text
    rules = dialect.split_rules
    minted = shown.minted_ids()
    is_beginning = not rounds or rounds[0].number == 1
    texts = [RoundText(PREFILL, prefill)] if prefill and is_beginning else []
    if lost is not None and not lost.behind:
        texts.append(lost.as_round())

    for past in rounds:
        words = shown.rounds.get(past.number, ShownWords())
        hidden = dialect.write_hidden_rounds([past], replayed=True)
        text = RoundText(
            past.number,
            words.text,
            hidden,
            words.reasoning if rules.joins_text else "",
            words.pieces,
            (*rules.signatures(past.response.message), *minted.get(past.number, ())),
        )
        texts.append(text)
        if lost is not None and past.number == lost.behind:
            texts.append(lost.as_round())

    record = describe_rounds(texts, after, is_joined=rules.joins_text)
    last_ids = minted.get(shown.last_round, {})
    given_ids = {own: given for own, given in last_ids.items() if given}
    return replace(record, turn=context.turn_id, given_ids=given_ids)
