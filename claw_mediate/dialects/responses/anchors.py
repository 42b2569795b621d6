"""The anchors of answers in OpenAI Responses: of those in a request, and of the one
that a turn ends with.

An answer is several items. A runner sends back some of them, in another order, or as one
(docs/spec/responses.md section 8).

stored                        is found by
────────────────────────────  ──────────────────────────────────────────────────────────────────────
the ids of its items          an item with that id, or a reference to it
the joined text               a message with that text, or neighbouring messages with it
the text of its last message  a message with that text
its call ids                  the same calls, or one of them

Reasoning and hosted items lead to the message or call behind them, so their ids are names of that
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
from claw_mediate.dialects.openai.wire_types import text_parts, visible_text
from claw_mediate.dialects.responses.items import REFERENCE, Item, output_text
from claw_state.continuity import MAX_NAMES, Anchor

_MAX_IDS: Final = MAX_NAMES // 2  # The other names are calls and a text


def answer_anchor(items: Sequence[Item], before: tuple[str, ...]) -> Anchor:
    """Return the anchor of an answer by the items that the runner gets."""
    ids = tuple(filter(None, map(_id_name, items)))[-_MAX_IDS:]
    if any(item.is_call for item in items):
        keys = [calls_key([_call_id(item)]) for item in items if item.is_call]
        return Anchor(
            _whole_key(items), before, names=(*ids, *(keys[-_MAX_IDS:] if len(keys) > 1 else ()))
        )
    messages = [item for item in items if item.is_message]
    parts = (text_key(visible_text(messages[-1])),) if len(messages) > 1 else ()
    return Anchor(text_key(output_text(items)), before, names=(*ids, *parts))


def read_evidence(items: Sequence[Item]) -> Evidence:
    """Return the evidence of a request's items.

    What stands before a compaction is not looked for: it is in it.
    """
    anchors: dict[int, Anchor] = {}
    gaps: dict[int, Anchor] = {}
    blocks: dict[int, MessageBlock] = {}
    transcript = Transcript()
    index = stretch = 1 + max(
        (at for at, item in enumerate(items) if item.kind == "compaction"), default=-1
    )
    is_unanswered = False
    while index < len(items):
        item = items[index]
        if item.speaker == "assistant":
            end = _block_end(items, index)
            found = {
                index + place: anchor for place, anchor in _read_block(items[index:end], transcript)
            }
            anchors |= found
            blocks |= dict.fromkeys(found, MessageBlock(index, stretch))
            is_unanswered, index = False, end
            continue
        if item.speaker == "tool":
            is_unanswered = True
        elif item.speaker == "user":
            gap = transcript.add_user(*text_parts(item))
            if is_unanswered and gap is not None:
                gaps[index] = gap
            is_unanswered, stretch = True, index
        index += 1
    return Evidence(anchors, gaps, transcript.before, transcript.earlier, blocks)


def _block_end(items: Sequence[Item], start: int) -> int:
    """Return the index behind the model's items that are neighbours; types that
    nobody knows are among them.
    """
    end = start
    while end < len(items) and items[end].speaker in {"assistant", None}:
        end += 1
    return end


def _read_block(items: Sequence[Item], transcript: Transcript) -> Iterator[tuple[int, Anchor]]:
    """Yield the anchors of neighbouring items of the model's, each with its place."""
    calls = [place for place, item in enumerate(items) if item.is_call]
    messages = [place for place, item in enumerate(items) if item.is_message]
    whole = (_whole_key(items),) if calls else ()
    joined = (text_key(output_text(items)),) if len(messages) > 1 and not calls else ()
    ids: tuple[str, ...] = ()
    for place, item in enumerate(items):
        ids = (*ids[1 - _MAX_IDS :], name) if (name := _id_name(item)) else ids
        if item.is_message:
            names = (*ids, *joined) if place == messages[-1] else ids
            yield (
                place,
                _message_anchor(
                    visible_text(item),
                    transcript,
                    names,
                    whole if calls and place < calls[-1] else (),
                ),
            )
        elif item.is_call:
            key = calls_key([_call_id(item)])
            transcript.add_assistant(key)
            yield place, Anchor(key, transcript.before, names=(*ids, *whole))
        elif item.kind == REFERENCE and ids:
            yield place, transcript.add_assistant(ids[-1])
        elif place == len(items) - 1 and not calls and not messages:
            yield place, Anchor(EMPTY_TEXT_KEY, transcript.before, names=ids)
        else:
            continue
        ids = ()


def _message_anchor(
    text: str, transcript: Transcript, names: tuple[str, ...], whole: tuple[str, ...]
) -> Anchor:
    """Return the anchor of a message; ``whole``: the key of the calls behind it, of
    whose handoff it is a part.
    """
    anchor = transcript.add_assistant(text_key(text), text)
    transcript.add_text(text)
    if whole:
        return Anchor(whole[0], anchor.before, (anchor.key, *anchor.alternatives), names)
    return Anchor(anchor.key, anchor.before, anchor.alternatives, names)


def _whole_key(items: Sequence[Item]) -> str:
    return calls_key(_call_id(item) for item in items if item.is_call)


def _call_id(item: Item) -> str:
    return item.own_call_id if isinstance(item.own_call_id, str) else ""


def _id_name(item: Item) -> str:
    return item_key(item.id) if isinstance(item.id, str) else ""
