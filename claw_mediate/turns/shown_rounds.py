"""The record of a live turn's hidden rounds, as continuity stores it."""

from collections.abc import Sequence

from msgspec.structs import replace

from claw_mediate.core.shown import PREFILL, LiveRecord, RoundText, describe_rounds
from claw_mediate.core.shown_log import ShownWords
from claw_mediate.core.types import Round
from claw_mediate.turns.context import TurnContext
from claw_mediate.turns.shown_answer import ShownAnswer


def describe_shown(
    context: TurnContext,
    rounds: Sequence[Round],
    shown: ShownAnswer,
    after: str,
    lost: str = "",
) -> LiveRecord:
    """Return the record of rounds of which something was shown.

    ``after``: the text that was shown behind them. ``lost``: that of a reply which broke off,
    behind any rounds of earlier attempts; it leaves the transcript as a rejected round does.
    """
    dialect, prefill = context.dialect, context.view.prefill_text
    rules = dialect.split_rules
    minted = shown.minted_ids()
    is_beginning = not rounds or rounds[0].number == 1
    texts = [RoundText(PREFILL, prefill)] if prefill and is_beginning else []
    if lost and not shown.known_rounds:
        texts.append(RoundText(PREFILL, lost))

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
        if lost and past.number == shown.known_rounds:
            texts.append(RoundText(PREFILL, lost))

    record = describe_rounds(texts, after, is_joined=rules.joins_text)
    last_ids = minted.get(shown.last_round, {})
    given_ids = {own: given for own, given in last_ids.items() if given}
    return replace(record, turn=context.turn_id, given_ids=given_ids)
