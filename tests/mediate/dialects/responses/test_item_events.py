"""The events of one item, told of the item as it is when it is done."""

from __future__ import annotations

import json
from typing import Any

import pytest

from claw_mediate.dialects.responses.item_events import item_kind, tell_item
from claw_mediate.dialects.responses.items import read_item
from tests.mediate.items import NEW, PATCH, SEARCH
from tests.wires import Body
from tests.wires.responses import function_call, message, reasoning


def raw(item: Body) -> bytes:
    return json.dumps(item).encode()


@pytest.mark.requirement("live:responses-kinds")
@pytest.mark.parametrize(
    ("item", "kind"),
    [
        (message("Hi."), "content"),
        (SEARCH, "content"),
        (NEW, "content"),
        ({"type": "tool_search_call", "execution": "server"}, "content"),
        ({"type": "shell_call", "environment": {"type": "container_auto"}}, "content"),
        (reasoning("Hm."), "reasoning"),
        (function_call("c1", "desk__get", "{}"), "call"),
        (PATCH, "call"),
        ({"type": "local_shell_call"}, "call"),
        ({"type": "mcp_approval_request"}, "call"),
        ({"type": "tool_search_call", "execution": "client"}, "call"),
    ],
)
def test_an_item_is_content_reasoning_or_a_call_that_is_not_the_providers_own(
    item: Body, kind: str
) -> None:
    assert item_kind(read_item(raw(item))) == kind
    kinds = {event.kind for event in tell_item(0, raw(item))}
    assert kinds == ({kind} if kind == "call" else {kind, "closing"})


@pytest.mark.requirement("live:responses-channels")
def test_channels_and_texts_of_a_message() -> None:
    item = message("Hi.")
    item["content"].append({"type": "refusal", "refusal": "No."})
    told = [(event.channel, event.text) for event in tell_item(3, raw(item))]
    assert told == [
        ("added", ""),
        ("part.0.added", ""),
        ("part.0.text", "Hi."),
        ("part.0.text.done", ""),
        ("part.0.done", ""),
        ("part.1.added", ""),
        ("part.1.refusal", "No."),
        ("part.1.refusal.done", ""),
        ("part.1.done", ""),
        ("done", ""),
    ]
    assert {event.piece for event in tell_item(3, raw(item))} == {3}


@pytest.mark.requirement("live:responses-channels")
@pytest.mark.parametrize(
    "item",
    [NEW, SEARCH, {"type": "function_call"}, {"type": "message", "content": "text"}, {"type": 1}],
)
def test_what_we_do_not_know_is_told_whole(item: dict[str, Any]) -> None:
    told = list(tell_item(0, raw(item)))
    assert [event.channel for event in told] == ["added", "done"]
    assert json.loads(bytes(told[1].data["item"])) == item
