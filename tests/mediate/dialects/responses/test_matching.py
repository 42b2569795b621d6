"""The items of a stream among those that its last event states."""

from __future__ import annotations

import json
from typing import Any

import pytest

from claw_mediate.dialects.base import UnreadableResponseError
from claw_mediate.dialects.responses.items import read_item
from claw_mediate.dialects.responses.matching import match_items
from tests.wires import Body

ITEMS = {
    "a": {"type": "message", "id": "msg_a"},
    "b": {"type": "message", "id": "msg_b"},
    "?": {"type": "message"},
    "c": {"type": "function_call", "id": "fc_c", "call_id": "c"},
    "c'": {"type": "function_call", "id": "fc_other", "call_id": "c"},
    "d": {"type": "function_call", "id": "fc_c", "call_id": "d"},
    "f": {"type": "function_call"},
    "x": {"type": "custom_tool_call", "id": "ctc_x", "call_id": "x"},
}


def raw(name: str) -> bytes:
    item: Body = ITEMS[name]
    return json.dumps(item).encode()


def matched(streamed: str, stated: str) -> tuple[list[str | None], list[str]]:
    names: dict[Any, str] = {raw(name): name for name in ITEMS}
    made = match_items(
        [read_item(raw(name)) for name in streamed.split()], [raw(name) for name in stated.split()]
    )
    return (
        [None if item is None else names[item] for item in made.same],
        [names[item] for item in made.others],
    )


@pytest.mark.requirement("live:responses-end")
@pytest.mark.parametrize(
    ("streamed", "stated", "same", "others"),
    [
        ("a b c", "a b c", ["a", "b", "c"], []),
        ("a b", "b a", ["a", "b"], []),
        ("a b", "b", [None, "b"], []),
        ("a b", "", [None, None], []),
        ("b", "a b c", ["b"], ["a", "c"]),
        ("? ?", "a b", ["a", "b"], []),
        ("a b", "? ?", ["?", "?"], []),
        ("a ?", "b", ["b", None], []),
        ("c", "c'", ["c'"], []),
        ("f", "c", ["c"], []),
        ("a", "a x", ["a"], ["x"]),
    ],
)
def test_items_are_found_by_their_ids_else_by_their_order(
    streamed: str, stated: str, same: list[str | None], others: list[str]
) -> None:
    assert matched(streamed, stated) == (same, others)


@pytest.mark.requirement("live:responses-end")
@pytest.mark.parametrize(("streamed", "stated"), [("c", "d"), ("c", "a x"), ("x c", "x d")])
def test_a_call_that_may_be_another_one_is_refused(streamed: str, stated: str) -> None:
    with pytest.raises(UnreadableResponseError):
        matched(streamed, stated)
