"""The items of a stream, found again in the output that its last event states."""

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Sequence
from typing import Final, NamedTuple

from claw_mediate.dialects.base import UnreadableResponseError
from claw_mediate.dialects.responses.items import Item, read_item

_AMBIGUOUS: Final = "the provider's stream states another call than it streamed"


class MatchedItems(NamedTuple):
    """The stated items, by their place in the stream."""

    same: list[bytes | None]
    """The stated item of each streamed one; None if it is not stated."""
    others: list[bytes]
    """Items that are stated only, in order."""


def match_items(streamed: Sequence[Item], stated: Sequence[bytes]) -> MatchedItems:
    """Find the items of a stream among the stated ones: by their ids, else by their order.

    Some servers number an item anew in each event. A call must not become two by that: raise
    ``UnreadableResponseError`` where it is not clear which calls are the same.
    """
    views = [read_item(item) for item in stated]
    same: dict[int, int] = {}  # The place among the stated items, by that in the stream
    for identify in (_by_id, _by_call, _by_type):
        _match(streamed, views, same, identify)

    taken = set(same.values())
    others = [place for place in range(len(stated)) if place not in taken]
    is_lost = any(item.is_call and place not in same for place, item in enumerate(streamed))
    if is_lost and any(views[place].is_call for place in others):
        raise UnreadableResponseError(_AMBIGUOUS)

    matched = [same.get(place) for place in range(len(streamed))]
    return MatchedItems(
        [None if place is None else stated[place] for place in matched],
        [stated[place] for place in others],
    )


def _match(
    streamed: Sequence[Item],
    stated: Sequence[Item],
    same: dict[int, int],
    identify: Callable[[Item], Hashable],
) -> None:
    """Match what has no match yet, and is the same by ``identify``, which gives None for unknown.

    Of several that are the same, the first belong together.
    """
    taken = set(same.values())
    free: defaultdict[Hashable, deque[int]] = defaultdict(deque)
    for place, view in enumerate(stated):
        if place not in taken:
            free[identify(view)].append(place)

    for place, view in enumerate(streamed):
        key = identify(view)
        if place in same or key is None or not free[key]:
            continue

        found = free[key].popleft()
        ids = (view.own_call_id, stated[found].own_call_id)
        if view.is_call and all(ids) and ids[0] != ids[1]:
            raise UnreadableResponseError(_AMBIGUOUS)
        same[place] = found


def _by_id(item: Item) -> Hashable:
    return (item.kind, item.id) if isinstance(item.id, str) and item.id else None


def _by_call(item: Item) -> Hashable:
    named = item.own_call_id
    return (item.kind, named) if isinstance(named, str) and named else None


def _by_type(item: Item) -> Hashable:
    return item.kind
