"""Items at the end of a request that are from an answer that was cut off on its way.

docs/spec/responses.md section 11. Codex repeats its last request, and adds those items of the
answer that it received whole.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec

from claw_mediate.core import json_splice
from claw_mediate.core.json_pieces import copy_span
from claw_mediate.dialects.base import ResentItems
from claw_mediate.dialects.responses.items import Item, join_items, read_item, split_items

_MAX_ITEMS: Final = 16  # For each, the journal is searched once


def find_resent_items(body: bytes, items: Sequence[Item]) -> list[ResentItems]:
    """Return what may be the beginning of an answer: the last item, the last two, and so on.

    All are items of the model's with an id.
    """
    # An answer follows something of the runner's, so that the first item is no part of it.
    candidates = items[1:][-_MAX_ITEMS:]
    ids: list[str] = []
    for item in reversed(candidates):
        is_models = item.speaker in {"assistant", None}
        if not is_models or not isinstance(item.id, str) or not item.id:
            break
        ids.insert(0, item.id)
    if not ids:
        return []

    found = json_splice.find_members(body, ["input"])["input"]
    spans = json_splice.element_spans(copy_span(body, found.start, found.end))
    ends = [found.start + end for _, end in spans]

    resent: list[ResentItems] = []
    for count in range(1, len(ids) + 1):
        # From the end of the item before them, so that its comma goes, too.
        end_before = ends[-count - 1]
        without = json_splice.splice(body, [(end_before, ends[-1], b"")])
        resent.append(ResentItems(without, partial(_leave_out, tuple(ids[-count:]))))
    return resent


def _leave_out(ids: tuple[str, ...], answer: bytes) -> bytes | None:
    """Return an answer without its first items; None unless they have these ids."""
    try:
        parsed = json_splice.Object(answer)
        items = split_items(parsed.value("output") or b"[]")
        if tuple(read_item(item).id for item in items[: len(ids)]) != ids:
            return None
        return parsed.edit({"output": join_items(items[len(ids) :])})
    except (json_splice.JsonSpliceError, msgspec.DecodeError):
        return None
