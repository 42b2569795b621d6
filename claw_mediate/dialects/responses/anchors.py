"""The anchors of answers in OpenAI Responses (docs/spec/responses.md section 8).

They are those of the answers in a request, and that of the answer that a turn ends with. An answer
is several items, of which a runner sends back some, in another order, or joined to one.

    stored                           is found by
    ───────────────────────────────  ─────────────────────────────────────────────────────────────
    the ids of its items             an item with that id, or a reference to it
    the joined text                  a message with that text, or consecutive messages with it,
                                       which others may follow: of a turn that was continued
    the text of its last message     a message with that text
    its call ids                     the same calls, or one of them; all of them as OpenClaw
                                       rewrites their ids

Reasoning and hosted items lead to the message or call after them, so their ids are names of that
one.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from claw_mediate.core.continuity import (
    EMPTY_TEXT_KEY,
    Evidence,
    MessageBlock,
    Transcript,
    calls_key,
    item_key,
    text_key,
)
from claw_mediate.core.shown import signature_digest
from claw_mediate.dialects.openai.wire_types import text_parts, visible_text
from claw_mediate.dialects.responses.items import REFERENCE, Item, output_text, signatures
from claw_mediate.dialects.responses.openclaw_ids import openclaw_call_id
from claw_state.continuity import MAX_NAMES, Anchor

_MAX_HELD: Final = 8  # Messages of an answer that a runner may hold of it when it is continued
_MAX_IDS: Final = MAX_NAMES // 4  # As many are for calls, and half for reasoning of hidden rounds


def answer_anchor(items: Sequence[Item], before: tuple[str, ...]) -> Anchor:
    """Return the anchor of an answer by the items that the runner gets."""
    names = [name for item in items if (name := _id_name(item))][-_MAX_IDS:]

    calls = [item for item in items if item.is_call]
    if calls:
        handoff = _handoff_key(items)
        parts = [calls_key([_call_id(call)]) for call in calls] if len(calls) > 1 else []
        rewritten = calls_key(_openclaw_id(call) for call in calls)
        if rewritten != handoff:
            parts.append(rewritten)
        names += parts[-_MAX_IDS:]
        return Anchor(handoff, before, names=tuple(names))

    messages = [item for item in items if item.is_message]
    if len(messages) > 1:
        names.append(text_key(visible_text(messages[-1])))
    return Anchor(text_key(output_text(items)), before, names=tuple(names))


def read_evidence(items: Sequence[Item]) -> Evidence:
    """Return the evidence of a request's items.

    Items before a compaction are not looked for: the compaction contains them.
    """
    anchors: dict[int, Anchor] = {}
    gaps: dict[int, Anchor] = {}
    blocks: dict[int, MessageBlock] = {}
    signed: dict[int, tuple[str, ...]] = {}
    transcript = Transcript()

    compactions = [at for at, item in enumerate(items) if item.kind == "compaction"]
    index = compactions[-1] + 1 if compactions else 0
    stretch = index
    is_unanswered = False  # True if nobody has answered the items so far

    while index < len(items):
        item = items[index]
        if item.speaker == "assistant":
            end = _block_end(items, index)
            block = MessageBlock(index, stretch)
            for place, anchor in _read_block(items[index:end], transcript):
                anchors[index + place] = anchor
                blocks[index + place] = block
            for place in range(index, end):
                if known_by := signatures(items[place]):
                    signed[place] = tuple(map(signature_digest, known_by))
            is_unanswered = False
            index = end
            continue

        if item.speaker == "tool":
            is_unanswered = True
        elif item.speaker == "user":
            gap = transcript.add_user(*text_parts(item))
            if is_unanswered and gap is not None:
                gaps[index] = gap
            is_unanswered = True
            stretch = index
        index += 1

    return Evidence(anchors, gaps, transcript.before, transcript.earlier, blocks, signed)


def _block_end(items: Sequence[Item], start: int) -> int:
    """Return the index after the run of consecutive model items.

    Unknown item types count as the model's.
    """
    end = start
    while end < len(items) and items[end].speaker in {"assistant", None}:
        end += 1
    return end


def _read_block(items: Sequence[Item], transcript: Transcript) -> Iterator[tuple[int, Anchor]]:
    """Yield the anchors of consecutive items of the model's, each with its place among them."""
    calls = [place for place, item in enumerate(items) if item.is_call]
    messages = [place for place, item in enumerate(items) if item.is_message]
    last_call = calls[-1] if calls else -1

    # The keys of all calls together, and of all texts together: an answer is stored by these.
    handoff = _handoff_key(items) if calls else ""
    joined = text_key(output_text(items)) if len(messages) > 1 and not calls else ""
    beginnings = _beginnings(items, messages, calls)

    ids: tuple[str, ...] = ()  # Names by the ids since the last anchor: they belong to the next one
    for place, item in enumerate(items):
        name = _id_name(item)
        if name:
            ids = (*ids, name)[-_MAX_IDS:]

        anchor = None
        if item.is_message:
            # The joined text follows what the first message follows. So it goes to that one: before
            # the last of many messages there are only others of the same answer.
            is_first_message = place == messages[0]
            names = (*ids, joined) if joined and is_first_message else ids
            if place in beginnings:
                names = (*names, beginnings[place])
            whole = handoff if place < last_call else ""
            anchor = _message_anchor(visible_text(item), transcript, names, whole)
        elif item.is_call:
            key = calls_key([_call_id(item)])
            transcript.add_assistant(key)
            anchor = Anchor(key, transcript.before, names=(*ids, handoff))
        elif item.kind == REFERENCE and ids:
            anchor = transcript.add_assistant(ids[-1])
        elif place == len(items) - 1 and not calls and not messages:
            # Reasoning and hosted items alone are an answer without text.
            anchor = Anchor(EMPTY_TEXT_KEY, transcript.before, names=ids)

        if anchor is not None:
            yield place, anchor
            ids = ()


def _beginnings(
    items: Sequence[Item], messages: Sequence[int], calls: Sequence[int]
) -> dict[int, str]:
    """Return the key of all texts up to a message, by the place of that message.

    Those are what a runner may have held of an answer that was continued. The first message has
    that key itself, and of the last one the joined text is known.
    """
    held = [place for place in messages if not calls or place < calls[0]][:_MAX_HELD]
    whole = () if calls else messages[-1:]
    keys: dict[int, str] = {}
    text = ""
    for number, place in enumerate(held):
        text += visible_text(items[place])
        if number > 0 and place not in whole:
            keys[place] = text_key(text)
    return keys


def _message_anchor(
    text: str, transcript: Transcript, names: tuple[str, ...], whole: str
) -> Anchor:
    """Return the anchor of a message.

    ``whole``: the key of the handoff (the calls after this message) that it belongs to, if any.
    """
    anchor = transcript.add_assistant(text_key(text), text)
    transcript.add_text(text)
    if whole:
        return Anchor(whole, anchor.before, (anchor.key, *anchor.alternatives), names)
    return Anchor(anchor.key, anchor.before, anchor.alternatives, names)


def _handoff_key(items: Sequence[Item]) -> str:
    return calls_key(_call_id(item) for item in items if item.is_call)


def _call_id(item: Item) -> str:
    return item.own_call_id if isinstance(item.own_call_id, str) else ""


def _openclaw_id(item: Item) -> str:
    return openclaw_call_id(_call_id(item), item.id if isinstance(item.id, str) else "")


def _id_name(item: Item) -> str:
    return item_key(item.id) if isinstance(item.id, str) else ""
