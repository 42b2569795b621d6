"""Kept responses and items, as their runner may read them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_mediate.dialects.kept import Concealment
from claw_mediate.dialects.responses import kept
from tests.mediate.turns.kept.kept_pod import (
    output,
    user,
)
from tests.wires import Body
from tests.wires.responses import function_call, message, reasoning

KINDS: tuple[Body, ...] = (
    user("Hi"),
    message("Fifty."),
    reasoning("Why"),
    {"type": "web_search_call", "id": "ws_1"},
    {"type": "hologram", "id": ["odd"], "call_id": {"odd": 1}},
    {"type": "function_call", "call_id": 7, "name": ["odd"]},
)


@pytest.mark.requirement("responses:paths-items")
@given(
    shown=st.lists(st.sampled_from(KINDS), max_size=6),
    hidden=st.lists(st.tuples(st.integers(0, 6), st.booleans()), max_size=4),
)
def test_nothing_hidden_is_listed_and_nothing_else_is_left_out(
    shown: list[Body], hidden: list[tuple[int, bool]]
) -> None:
    """Put hidden rounds anywhere, each with its own reasoning or none."""
    items: list[tuple[Body, bool]] = [(item, True) for item in shown]
    for number, (place, thinks) in enumerate(hidden):
        round_ = [
            function_call(f"call_{number}", "desk__balance", "{}"),
            output(f"call_{number}", "planted"),
        ]
        own = [{"type": "reasoning", "id": f"rs_hidden_{number}", "summary": []}] if thinks else []
        at = min(place, len(items))
        while 0 < at < len(items) and not items[at][1]:
            at += 1
        items[at:at] = [(item, False) for item in [*own, *round_]]
    raw = [json.dumps(item).encode() for item, _ in items]
    hidden_ids = kept.ids_in(
        b",".join(json.dumps(item).encode() for item, is_shown in items if not is_shown)
    )
    wanted = [
        text
        for text, (item, is_shown) in zip(raw, items, strict=True)
        if is_shown and item["type"] != "reasoning"
    ]
    for concealment in (
        Concealment(ids=hidden_ids),
        Concealment(names=frozenset({"desk__balance"})),
    ):
        got = kept.show_items(raw, concealment)
        assert [text for text in got if b'"reasoning"' not in text] == wanted
        assert not any(b"hidden" in text or b"planted" in text for text in got)
