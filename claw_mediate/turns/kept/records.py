"""The records of the responses that providers keep (docs/spec/responses.md section 10).

A record has what must be known to go on from a response, and to show it to its runner.
"""

from collections.abc import Iterable

from msgspec import structs

from claw_mediate.core.types import Deliver
from claw_mediate.dialects.base import RunnerRequest
from claw_mediate.dialects.bodies import encode
from claw_mediate.dialects.kept import KeptReferences
from claw_mediate.turns.context import DialectRequest, TurnContext
from claw_state.continuity import Anchor
from claw_state.ownership import KeptObject

_MAX_MARKS = 128  # Answers that a response holds in its ``input``: the latest
_MARK_LENGTH = 16
_MAX_DELIVERED = 256 << 10
"""Bytes of a delivered body of which we have a copy, because the provider keeps another body."""


def marks_of(anchors: Iterable[Anchor]) -> frozenset[str]:
    """Return a short mark for each key of some answers."""
    return frozenset(key[-_MARK_LENGTH:] for anchor in anchors for key in anchor.content_keys)


def describe_forwarded(incoming: DialectRequest, session: str) -> KeptObject | None:
    """Return the record of the response to a forwarded request, without its id.

    Return None where no provider keeps it.
    """
    kept = incoming.view.kept
    if kept is None or not kept.keeps_response:
        return None

    record = _begin_record(incoming.view, kept, session, incoming.woven)
    if incoming.woven:
        return record
    return structs.replace(record, is_plain=True, tool_choice=b"", instructions=-1)


def describe_delivered(
    context: TurnContext, outcome: Deliver, answer: Anchor, body: bytes, *, is_joined: bool
) -> KeptObject | None:
    """Return the record of a delivered response; None where no provider keeps it.

    ``body``: as it is delivered. ``is_joined``: it also has what hidden rounds have shown.
    """
    kept = context.view.kept
    response, rounds = outcome.response, outcome.rounds
    if kept is None or not kept.keeps_response or not response.id:
        return None

    # If a tool ended the turn, the response is the last round itself, and at the provider nobody
    # has answered its calls.
    pending = response.pending_results
    if outcome.terminal:
        pending = context.dialect.write_answers(rounds[-1])

    hidden = [*context.dialect.write_hidden_rounds(rounds, replayed=False), *pending]
    if context.prepared.woven:
        hidden.insert(0, context.prepared.woven)
    record = _begin_record(context.view, kept, context.session, b",".join(hidden))

    hidden_ids = record.hidden_ids
    delivered = b""
    if pending or is_joined:
        # The provider keeps another body: with calls that the runner never got, or only the last
        # of several replies. What the model said beside those calls is in both bodies, and not
        # hidden.
        shown = kept.form.ids_of_output(body)
        hidden_ids = tuple(each for each in hidden_ids if each not in shown)
        if len(body) <= _MAX_DELIVERED:
            delivered = body

    earlier = list(context.view.evidence.anchors.values())[-_MAX_MARKS:]
    hidden_responses = tuple(
        past.response.id for past in rounds if past.response.id not in {"", response.id}
    )
    return structs.replace(
        record,
        id=response.id,
        provider_id=response.id,
        provider=context.provider,
        key_label=context.route.key_label,
        anchors=tuple(sorted(marks_of([*earlier, answer]))),
        hidden_responses=hidden_responses,
        pending_results=b",".join(pending),
        delivered=delivered,
        hidden_ids=hidden_ids,
        managed_names=(*context.catalog.managed, *sorted(context.catalog.withdrawn)),
    )


def _begin_record(
    view: RunnerRequest, kept: KeptReferences, session: str, hidden: bytes
) -> KeptObject:
    """Return what is known of a response before the provider answers.

    ``hidden``: items that the runner did not send.
    """
    return KeptObject(
        id="",
        provider_id="",
        provider="",
        previous=kept.previous_response or kept.conversation,
        session=session,
        hidden_ids=tuple(sorted(kept.form.ids_in(hidden))),
        tool_choice=encode("auto" if view.tool_choice is None else view.tool_choice),
        instructions=kept.instructions_length,
    )
