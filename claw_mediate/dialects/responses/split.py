"""The changes of hidden items between the items that a live turn has shown.

docs/spec/live.md section 6. An answer is items, of which each round has some.

    item of the runner's               what becomes of it
    ─────────────────────────────────  ─────────────────────────────────────────────────────────────
    reasoning of a hidden round        goes: the record has it, in the provider's bytes
    messages of a round                the same
    others of a round                  the same, if the record has as many of their type; generated
                                         images stay, because no record has them
    items of the last reply            stay

The items of a round go where its last shown item was. A reference to an item of the record is that
item: some runners send the id alone of what the provider keeps.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import takewhile
from typing import Final

from claw_mediate.core import json_splice
from claw_mediate.core.shown import Cut, LiveRecord, Piece, find_cuts, signature_digest
from claw_mediate.core.split import SplitRules
from claw_mediate.core.weave import Insert, Replace, Weave, Weaves, join_messages
from claw_mediate.dialects.bodies import encode
from claw_mediate.dialects.openai.split import content_after, read_pieces
from claw_mediate.dialects.openai.wire_types import visible_text
from claw_mediate.dialects.responses.items import (
    FUNCTION,
    MESSAGE,
    REASONING,
    REFERENCE,
    Item,
    keep_items,
    read_item,
    signatures,
    split_items,
)


def split(items: Sequence[bytes], record: LiveRecord) -> Weaves | None:
    """Return what takes the places of the answer's items, which come first in ``items``."""
    views = _resolve([read_item(item) for item in takewhile(_is_models, items)], record)
    signed = record.signed
    places = [place for place, view in enumerate(views) if not _is_reasoning_of(view, signed)]
    cuts = find_cuts([_read_piece(views[place]) for place in places], record.shown)
    if not cuts:
        return None

    changes = _ItemChanges(items, views)
    for place in sorted({*range(len(views))} - {*places}):
        changes.leave(place)

    start = Cut(0)
    for end, messages in zip(cuts, record.messages, strict=True):
        changes.leave_round(places[start.piece : end.piece], messages)
        is_last = end.piece == len(places)
        changes.insert(len(views) if is_last else places[end.piece], messages)
        start = end

    if start.offset and not changes.cut(places[start.piece], start.offset):
        return None
    for place in places[start.piece :]:
        changes.restore_id(place, record.given_ids)
    return changes.weaves()


def _resolve(views: Sequence[Item], record: LiveRecord) -> Sequence[Item]:
    """Return the items of an answer, those of the record in place of references to them."""
    if all(view.kind != REFERENCE for view in views):
        return views

    recorded = {
        item.id: item
        for messages in record.messages
        for item in map(read_item, split_items(b"[%b]" % messages))
        if isinstance(item.id, str)
    }
    return [
        recorded.get(view.id, view) if view.kind == REFERENCE and isinstance(view.id, str) else view
        for view in views
    ]


def _is_models(raw: bytes) -> bool:
    return read_item(raw).speaker in {"assistant", None}


def _is_reasoning_of(view: Item, digests: Collection[str]) -> bool:
    return any(signature_digest(each) in digests for each in signatures(view))


def _read_piece(view: Item) -> Piece:
    if view.is_call:
        return Piece("call")
    if view.is_message:
        return Piece("text", visible_text(view))
    return Piece("signed" if view.kind == REASONING else "other")


class _ItemChanges:
    """The changes of an answer's items, as they are collected."""

    def __init__(self, items: Sequence[bytes], views: Sequence[Item]) -> None:
        self._items = items
        self._views = views
        self._rests: dict[int, bytes] = {}  # Of items that leave, b""
        self._hidden: dict[int, list[bytes]] = {}
        """Hidden items, by the place of the item that they go before."""

    def leave(self, place: int) -> None:
        self._rests[place] = b""

    def leave_round(self, places: Sequence[int], messages: bytes) -> None:
        """Leave out the shown items of a round that its record has, too.

        Those of a rejected round leave the transcript with it.
        """
        recorded = Counter(read_item(item).kind for item in split_items(b"[%b]" % messages))
        for place in places:
            kind = self._views[place].kind
            if kind == MESSAGE or not messages or recorded[kind] > 0:
                recorded[kind] -= 1
                self.leave(place)

    def insert(self, place: int, messages: bytes) -> None:
        if messages:
            self._hidden.setdefault(place, []).append(messages)

    def cut(self, place: int, offset: int) -> bool:
        """Leave out the beginning of a message; return False for one of another form."""
        item = self._items[place]
        if read_item(item).kind == REFERENCE:
            return False

        content = bytes(self._views[place].content)
        pieces = read_pieces(self._views[place].content)
        if pieces is None:
            return False

        index = 0
        while index < len(pieces) - 1 and offset >= len(pieces[index].text):
            offset -= len(pieces[index].text)
            index += 1
        rest = content_after(content, Cut(index, offset))
        self._rests[place] = json_splice.edit(item, {"content": rest})
        return True

    def restore_id(self, place: int, given_ids: Mapping[str, str]) -> None:
        """Let an item have the provider's id again, where the runner knows it by one of ours."""
        own_id = self._views[place].id
        given = given_ids.get(own_id) if isinstance(own_id, str) else None
        if given is not None:
            item = self._rests.get(place, self._items[place])
            self._rests[place] = json_splice.edit(item, {"id": encode(given)})

    def weaves(self) -> Weaves | None:
        """Return the changes by place; None if there is no item that they could go to."""
        end = len(self._views)
        if end in self._hidden and end == len(self._items):
            if not end:
                return None

            # Nothing comes behind the answer, so its last item takes them along.
            last = self._rests.setdefault(end - 1, self._items[end - 1])
            hidden = self._hidden.setdefault(end - 1, [])
            behind = self._hidden.pop(end)
            self._hidden[end - 1] = [*hidden, last, *behind]
            self._rests[end - 1] = b""

        weaves: dict[int, Weave] = {}
        for place in sorted({*self._hidden, *self._rests}):
            hidden_items = join_messages(self._hidden.get(place, ()))
            if place in self._rests:
                weaves[place] = Replace(hidden_items, self._rests[place])
            else:
                weaves[place] = Insert(hidden_items)
        return weaves


def without_text(messages: bytes) -> bytes:
    """Return the hidden items of a round without its messages, and reasoning for them alone."""
    raw = split_items(b"[%b]" % messages)
    views = [read_item(item) for item in raw]
    return b",".join(keep_items(raw, views, lambda _: True, dropped=MESSAGE))


def leave_out(items: Sequence[bytes], index: int, digests: Collection[str]) -> Mapping[int, bytes]:
    """Return the changes of a runner's items when reasoning with one of these digests leaves.

    What it led to loses its id, by which the API would notice.
    """
    if not items[index] or not _is_reasoning_of(read_item(items[index]), digests):
        return {}

    changes = {index: b""}
    for place in range(index + 1, len(items)):
        item = items[place]
        view = read_item(item) if item else None
        if view is None:
            continue
        if view.kind == REASONING or view.speaker not in {"assistant", None}:
            break
        if view.id is not None and view.kind in {MESSAGE, FUNCTION}:
            changes[place] = json_splice.edit(item, {"id": None})

    return changes


def read_signatures(items: bytes) -> Sequence[str]:
    """Return what tells the reasoning of a reply: ids and encrypted contents."""
    views = map(read_item, split_items(items))
    return [each for view in views for each in signatures(view)]


SPLIT_RULES: Final = SplitRules(split, without_text, leave_out, read_signatures)
