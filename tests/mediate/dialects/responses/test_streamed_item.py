"""An item, as far as its events have told of it."""

from __future__ import annotations

import json

import pytest

from claw_mediate.core.reply_events import ReplyEvent
from claw_mediate.dialects.base import MAX_PARTS, UnreadableResponseError
from claw_mediate.dialects.responses.item_events import tell_item
from claw_mediate.dialects.responses.streamed_item import StreamedItem, check_count
from tests.wires import Body
from tests.wires.responses import function_call, message, reasoning

NOTE = {"type": "url_citation", "url": "https://x.example", "start_index": 0, "end_index": 1}


def told(item: Body) -> list[ReplyEvent]:
    return list(tell_item(0, json.dumps(item).encode()))


def streamed(events: list[ReplyEvent]) -> StreamedItem:
    item = StreamedItem(0, events[0].kind)
    for event in events:
        item.note(event)
    return item


def cited() -> Body:
    item = message("It rose.")
    item["content"][0]["annotations"] = [NOTE]
    return item


@pytest.mark.requirement("live:responses-put-together")
@pytest.mark.parametrize(
    "item", [cited(), reasoning("Hm."), function_call("c1", "shell", '{"a":1}')]
)
def test_an_item_that_is_not_done_has_what_came_of_it(item: Body) -> None:
    events = told(item)
    for end in range(1, len(events)):
        so_far = json.loads(streamed(events[:end]).so_far())
        texts = "".join(event.text for event in events[:end])
        assert texts in json.dumps(so_far) or texts == so_far["arguments"]

    almost = json.loads(streamed(events[:-1]).so_far())
    assert {**almost, **({"status": "completed"} if "status" in item else {})} == item
    assert json.loads(streamed(events).so_far()) == item


@pytest.mark.requirement("live:responses-put-together")
def test_an_annotation_of_an_open_part_is_a_part_of_it() -> None:
    events = [event for event in told(cited()) if not event.channel.endswith("done")]
    assert json.loads(streamed(events).so_far())["content"] == cited()["content"]


@pytest.mark.requirement("live:responses-put-together")
def test_a_text_counts_as_it_came_and_not_as_it_is_stated_later() -> None:
    item = streamed(told(message("Hi there. "))[:-1])
    stated = json.dumps(message("Hi there.")).encode()
    assert json.loads(item.with_texts(stated)) == message("Hi there. ")


@pytest.mark.requirement("live:responses-end")
def test_arguments_that_are_stated_otherwise_are_refused_and_empty_ones_filled() -> None:
    item = streamed(told(function_call("c1", "shell", '{"a":1}'))[:-1])
    empty = json.dumps(function_call("c1", "shell", "")).encode()
    assert json.loads(item.with_texts(empty))["arguments"] == '{"a":1}'
    other = json.dumps(function_call("c1", "shell", '{"a": 1}')).encode()
    with pytest.raises(UnreadableResponseError):
        item.with_texts(other)


@pytest.mark.requirement("live:responses-channels")
def test_what_is_missing_is_what_no_event_told() -> None:
    events = told(cited())
    whole = json.dumps(cited()).encode()
    for end in range(1, len(events) + 1):
        assert list(streamed(events[:end]).missing_events(whole)) == events[end:]


@pytest.mark.requirement("live:responses-damaged")
def test_no_reply_has_more_parts_than_a_body_may_have() -> None:
    check_count(MAX_PARTS)
    with pytest.raises(UnreadableResponseError):
        check_count(MAX_PARTS + 1)
