"""Items of an answer that was cut off on its way, at the end of a request
(docs/spec/responses.md section 11).

Codex asks again with its last request and, behind its items, those of the answer that it got whole.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec

from claw_mediate.core import json_splice
from claw_mediate.core.json_pieces import copy_span
from claw_mediate.dialects.base import ResentItems
from claw_mediate.dialects.responses.items import Item, join_items, read_item, split_items

_MAX_ITEMS: Final = 16  # A request is looked for once for each


def find_resent_items(body: bytes, items: Sequence[Item]) -> list[ResentItems]:
    """Return each number of the model's items at the end of a request, all of which have an id."""
    ids: list[str] = []
    for item in reversed(items[1:][-_MAX_ITEMS:]):
        if item.speaker not in {"assistant", None} or not isinstance(item.id, str) or not item.id:
            break
        ids.insert(0, item.id)
    if not ids:
        return []
    place = json_splice.find_members(body, ["input"])["input"]
    ends = [
        place.start + end
        for _, end in json_splice.element_spans(copy_span(body, place.start, place.end))
    ]
    return [
        ResentItems(
            json_splice.splice(body, [(ends[-count - 1], ends[-1], b"")]),
            partial(_leave_out, tuple(ids[-count:])),
        )
        for count in range(1, len(ids) + 1)
    ]


def _leave_out(ids: tuple[str, ...], answer: bytes) -> bytes | None:
    """Return an answer without its first items, if they have these ids."""
    try:
        parsed = json_splice.Object(answer)
        items = split_items(parsed.value("output") or b"[]")
        if tuple(read_item(item).id for item in items[: len(ids)]) != ids:
            return None
        return parsed.edit({"output": join_items(items[len(ids) :])})
    except (json_splice.JsonSpliceError, msgspec.DecodeError):
        return None
