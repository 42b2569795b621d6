"""Storage of a turn's hidden rounds for later requests, under all that its runner may send back.

    the runner                            the rounds are stored under
    ────────────────────────────────────  ───────────────────────────────────────────────────────
    has the answer                        the answer, or all that was shown of the turn
    held a part of it, of an earlier      that part, the rest, and both as one answer
      attempt
    has an answer that was cut off, and   both as one answer, too
      now that to its next words
    has no answer                         what it was shown; or the place of the answer

``Continuity`` stores them, and finds them again.
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from claw_mediate.core.continuity import EMPTY_TEXT_KEY, text_key
from claw_mediate.core.shown import LiveRecord, answer_anchor_of_shown, failed_anchor_of_shown
from claw_mediate.core.types import Deliver, ModelResponse, Refuse, Round
from claw_mediate.turns.answer_stream import AnswerStream
from claw_mediate.turns.context import SettledAnswer, TurnContext
from claw_mediate.turns.ports import TurnParts
from claw_mediate.turns.shown_answer import ShownAnswer
from claw_mediate.turns.shown_rounds import describe_shown, find_lost_text
from claw_state.continuity import Anchor


class TurnMemory:
    """Stores the hidden rounds of one turn.

    ``stream``: of its answer; None if the runner asked for none.
    """

    def __init__(self, context: TurnContext, stream: AnswerStream | None, parts: TurnParts) -> None:
        self._context = context
        self._stream = stream
        self._continuity = parts.continuity
        self._recorder = parts.recorder

    async def remember(self, outcome: Deliver, body: bytes) -> Anchor:
        """Store the hidden rounds of an answer; return the anchor by which they are found again.

        ``body``: the last reply, as the runner may read it.
        """
        dialect = self._context.dialect
        for loss in dialect.replay_rules.find_losses(outcome.rounds, replayed=True):
            self._recorder.log_intervention(self._context, loss)

        if self._stream is None or not self._context.held:
            anchor = await self._remember_rounds(outcome, outcome.rounds, body)
            key = anchor.key if _has_calls(outcome) else ""
            await self._remember_behind_settled(outcome.rounds, key)
            return anchor

        if dialect.answers_in_items and outcome.rounds:
            return await self._remember_items(outcome, self._stream, body)

        rest = await self.remember_held(outcome.rounds)
        anchor = await self._remember_rounds(outcome, rest, body)
        if outcome.rounds:
            await self._remember_joined(outcome, self._stream, anchor)
        return anchor

    async def _remember_rounds(
        self, outcome: Deliver, rounds: Sequence[Round], body: bytes
    ) -> Anchor:
        """Store these rounds under the answer to the request; return its anchor."""
        context, dialect = self._context, self._context.dialect
        response = outcome.response
        stream = self._stream
        if stream is not None and context.view.is_live and stream.shown.differs_from(body):
            told = stream.shown.answer(body, context.held)
            response = dialect.read_response(told, context.catalog)

        anchor = dialect.response_anchor(response, context.view, terminal=outcome.terminal)
        if context.held:
            # With calls it is found by those, joined or not; what comes before tells the two apart.
            anchor = replace(anchor, before=context.before_rest)

        if stream is None or not _has_shown_more(stream.shown, rounds):
            hidden = dialect.write_hidden_rounds(rounds, replayed=True)
            await self._continuity.remember(context, anchor, hidden)
            return anchor

        # What the runner held already is no part of the message that it makes of the rest.
        shown = dialect.read_response(stream.shown.answer(body, context.held), context.catalog)
        whole = dialect.response_anchor(shown, context.view, terminal=False)
        record = describe_shown(context, rounds, stream.shown, stream.shown.last_words().text)
        record = self._hide_left_out(record, outcome, stream, shown)
        anchor = answer_anchor_of_shown(replace(whole, before=anchor.before), anchor)
        await self._continuity.remember_live(context, anchor, record)
        return anchor

    def _hide_left_out(
        self, record: LiveRecord, outcome: Deliver, stream: AnswerStream, shown: ModelResponse
    ) -> LiveRecord:
        """Return a record that also knows the reasoning of what the last reply has left out."""
        if not stream.shown.has_left_out:
            return record

        signatures = self._context.dialect.split_rules.signatures
        own = signatures(outcome.response.message)
        return record.hide({*signatures(shown.message)}.difference(own))

    async def remember_held(self, rounds: Sequence[Round]) -> Sequence[Round]:
        """Store the rounds of earlier attempts under what the runner holds of their answer.

        Return the other rounds: they led to what it is shown now.
        """
        context, stream = self._context, self._stream
        assert stream is not None
        known = rounds[: stream.shown.known_rounds]
        if not known:
            return rounds  # What is held is the beginning of a reply that broke off

        record = replace(describe_shown(context, known, stream.shown, ""), is_part=True)
        anchor = failed_anchor_of_shown(context.held, context.view.evidence.before)
        await self._continuity.remember_live(context, anchor, record)
        return rounds[len(known) :]

    async def _remember_joined(self, outcome: Deliver, stream: AnswerStream, rest: Anchor) -> None:
        """Store all rounds for a runner that sends what it held and the rest as one answer.

        ``rest``: the anchor of the rest. The runner may have held the beginning of a reply that
        broke off, behind the rounds that are known: it is ``lost``.
        """
        context, before = self._context, self._context.view.evidence.before
        lost = find_lost_text(context.held, stream.shown, in_items=False)
        after = stream.shown.last_words().text
        record = describe_shown(context, outcome.rounds, stream.shown, after, lost)

        # A message with calls is known by them, whatever its text.
        whole = context.held + stream.shown.text(context.held)
        key = rest.key if _has_calls(outcome) else text_key(whole)
        await self._continuity.remember_live(context, Anchor(key, before), record)

    async def _remember_items(self, outcome: Deliver, stream: AnswerStream, body: bytes) -> Anchor:
        """Store all rounds for a runner that has the items of its answer from several attempts.

        They are one answer in its next request, so that all rounds have one record. Return the
        anchor of the answer.
        """
        context, dialect = self._context, self._context.dialect
        shown = dialect.read_response(stream.shown.answer(body), context.catalog)
        whole = dialect.response_anchor(shown, context.view, terminal=False)
        last = dialect.response_anchor(outcome.response, context.view, terminal=outcome.terminal)
        anchor = answer_anchor_of_shown(whole, last)
        if not shown.calls:  # Calls are known by themselves
            joined = text_key(context.held + stream.shown.text(context.held))
            anchor = replace(anchor, key=joined, names=(*anchor.names, whole.key))

        lost = find_lost_text(context.held, stream.shown, in_items=True)
        after = stream.shown.last_words().text
        record = describe_shown(context, outcome.rounds, stream.shown, after, lost)
        record = self._hide_left_out(record, outcome, stream, shown)
        await self._continuity.remember_live(context, anchor, record)
        return anchor

    def describe_settled(self, rounds: Sequence[Round]) -> SettledAnswer | None:
        """Return what the runner holds of this turn, which is over; None if no round is known."""
        context, stream = self._context, self._stream
        assert stream is not None
        if not rounds:
            return None

        lost = find_lost_text(context.held, stream.shown, in_items=False)
        record = describe_shown(context, rounds, stream.shown, "", lost)
        return SettledAnswer(context.held, context.view.evidence.before, record)

    async def _remember_behind_settled(
        self, rounds: Sequence[Round], key: str = "", *, is_part: bool = False
    ) -> None:
        """Store all rounds for a runner that makes one answer of a settled one and this one.

        qwen-code does, and drops the words that it sent between them. ``key``: of this answer's
        calls; "" for an answer that is known by its text. ``is_part``: this one broke off, too.
        """
        settled, stream = self._context.settled, self._stream
        if settled is None or stream is None:
            return

        earlier = settled.record
        own = describe_shown(self._context, rounds, stream.shown, stream.shown.last_words().text)
        record = replace(
            own,
            shown=earlier.shown + own.shown,
            messages=earlier.messages + own.messages,
            is_part=is_part,
            continued=(*earlier.continued, earlier.turn),
        )
        anchor = Anchor(key or text_key(settled.text + stream.shown.text()), settled.before)
        await self._continuity.remember_live(self._context, anchor, record)

    async def remember_unanswered(self, outcome: Refuse) -> None:
        """Store what a failed turn did, in the place of its answer.

        The runner may go on after it, or after what it was shown of it.
        """
        context, stream = self._context, self._stream
        before = context.view.evidence.before
        if stream is not None and stream.shown.has_content:
            stream.drop(outcome.rounds)
            rounds: Sequence[Round] = outcome.rounds
            if context.held:
                rounds = await self.remember_held(rounds)

            await self._remember_behind_settled(outcome.rounds, is_part=True)
            if rounds:  # Otherwise there is nothing to put into a later request
                anchor = failed_anchor_of_shown(stream.shown.text(context.held), before)
                after = stream.shown.last_words().text
                record = describe_shown(context, rounds, stream.shown, after)
                record = replace(record, is_part=True)
                await self._continuity.remember_live(context, anchor, record)
            return

        hidden = context.dialect.write_hidden_rounds(outcome.rounds, replayed=True)
        anchor = Anchor(EMPTY_TEXT_KEY, before)
        await self._continuity.remember(context, anchor, hidden)


def _has_calls(outcome: Deliver) -> bool:
    """Return whether the runner gets calls: its message is known by them, whatever its text."""
    return bool(outcome.response.calls) and not outcome.terminal


def _has_shown_more(shown: ShownAnswer, rounds: Iterable[Round]) -> bool:
    """Return whether the runner was shown more than is in the body of the last reply."""
    return shown.has_left_out or any(past.number in shown.rounds for past in rounds)
