"""One item of a provider's stream, with what servers leave out of it."""

from __future__ import annotations

import json

import msgspec
import pytest

from claw_mediate.core.reply_events import ReplyEvent
from claw_mediate.dialects.base import UnreadableResponseError
from claw_mediate.dialects.responses.channels import FORMS
from claw_mediate.dialects.responses.item_assembler import (
    ItemAssembler,
    read_index,
    read_text,
)
from claw_mediate.dialects.responses.items import read_item
from tests.wires import Body
from tests.wires.responses import message, reasoning


def begun(item: Body) -> tuple[ItemAssembler, list[ReplyEvent]]:
    raw = json.dumps(item).encode()
    assembler = ItemAssembler(0, read_item(raw))
    return assembler, list(assembler.begin(raw, {}))


def taken(item: ItemAssembler, name: str, **members: object) -> list[tuple[str, str]]:
    raw = {key: msgspec.Raw(msgspec.json.encode(value)) for key, value in members.items()}
    return [(event.channel, event.text) for event in item.take(name, FORMS[name], raw)]


EMPTY = {"type": "message", "id": "m", "role": "assistant", "status": "in_progress", "content": []}
THOUGHT = {"type": "reasoning", "id": "r", "summary": []}


@pytest.mark.requirement("live:responses-channels")
def test_a_part_that_only_its_text_tells_of_begins_before_it() -> None:
    item, _ = begun(EMPTY)
    name = "response.output_text.delta"
    assert taken(item, name, content_index=0, delta="a") == [
        ("part.0.added", ""),
        ("part.0.text", "a"),
    ]
    assert taken(item, name, content_index=0, delta="") == []
    assert taken(item, name, delta="b") == [("part.0.text", "b")]
    assert json.loads(item.so_far())["content"] == [
        {"type": "output_text", "text": "ab", "annotations": []}
    ]


@pytest.mark.requirement("live:responses-channels")
def test_a_text_that_only_its_end_tells_of_comes_before_it() -> None:
    item, _ = begun(THOUGHT)
    assert taken(item, "response.reasoning_summary_text.done", summary_index=0, text="Hm.") == [
        ("summary.0.added", ""),
        ("summary.0.text", "Hm."),
        ("summary.0.text.done", ""),
    ]
    assert json.loads(item.so_far())["summary"] == [{"type": "summary_text", "text": "Hm."}]


@pytest.mark.requirement("live:responses-channels")
@pytest.mark.parametrize(
    ("item", "name", "part", "text_type"),
    [
        (EMPTY, "content_part", {"type": "output_text", "text": "a"}, "output_text"),
        (EMPTY, "content_part", {"type": "refusal", "refusal": "a"}, "refusal"),
        (THOUGHT, "content_part", {"type": "reasoning_text", "text": "a"}, "reasoning_text"),
        (
            THOUGHT,
            "reasoning_summary_part",
            {"type": "summary_text", "text": "a"},
            "reasoning_summary_text",
        ),
    ],
)
def test_a_text_with_which_a_part_begins_is_a_delta(
    item: Body, name: str, part: Body, text_type: str
) -> None:
    assembler, _ = begun(item)
    added = f"response.{name}.added"
    members = {"part": msgspec.Raw(msgspec.json.encode(part))}
    begins, says = assembler.take(added, FORMS[added], members)
    assert "a" not in json.loads(bytes(begins.data["part"])).values()
    assert (says.text, says.data["type"]) == ("a", f"response.{text_type}.delta")


@pytest.mark.requirement("live:responses-channels")
def test_an_item_may_begin_with_its_content() -> None:
    _, told = begun({**message("Hi."), "status": "in_progress"})
    assert [(event.channel, event.text) for event in told] == [
        ("added", ""),
        ("part.0.added", ""),
        ("part.0.text", "Hi."),
    ]
    assert json.loads(bytes(told[0].data["item"]))["content"] == []


@pytest.mark.requirement("live:responses-kinds")
def test_a_search_whose_executor_is_not_known_yet_may_be_the_clients() -> None:
    item, _ = begun({"type": "tool_search_call", "id": "t"})
    assert item.kind == "call"
    done = b'{"type":"tool_search_call","id":"t","execution":"server"}'
    assert [event.kind for event in item.close(done, {})] == ["call"]
    assert item.whole(None) == done


@pytest.mark.requirement("live:responses-damaged")
@pytest.mark.parametrize("part", [1, "text", None, []])
def test_a_part_that_is_no_object_is_refused(part: object) -> None:
    item, _ = begun(EMPTY)
    with pytest.raises(msgspec.DecodeError):
        taken(item, "response.content_part.added", content_index=0, part=part)


@pytest.mark.requirement("live:responses-damaged")
@pytest.mark.parametrize("index", [-1, 1, 10**9])
def test_a_part_out_of_its_place_is_refused(index: int) -> None:
    item, _ = begun(EMPTY)
    with pytest.raises(UnreadableResponseError):
        taken(item, "response.output_text.delta", content_index=index, delta="a")


@pytest.mark.requirement("live:responses-damaged")
@pytest.mark.parametrize("value", [b"1.5", b'"0"', b"[]", b"true"])
def test_an_index_is_a_number_or_null_and_a_text_a_text(value: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        read_index(msgspec.Raw(value))
    assert read_index(msgspec.Raw(b"null")) is None
    with pytest.raises(msgspec.DecodeError):
        read_text(msgspec.Raw(b"null"))


@pytest.mark.requirement("live:responses-end")
def test_an_item_that_its_reply_does_not_finish_is_incomplete() -> None:
    item, _ = begun(EMPTY)
    assert json.loads(item.whole(None))["status"] == "incomplete"
    thought, _ = begun(reasoning("Hm."))
    assert "status" not in json.loads(thought.whole(None))


CALL: Body = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "shell"}


@pytest.mark.requirement("live:early-calls")
@pytest.mark.parametrize(
    ("more", "call_id"),
    [
        ({"arguments": ""}, "c1"),
        ({"arguments": None}, "c1"),
        ({"type": "custom_tool_call", "input": ""}, "c1"),
        ({"arguments": "{}"}, ""),
        ({"type": "custom_tool_call", "input": "ls"}, ""),
        ({"arguments": "", "namespace": "mcp"}, ""),
        ({"type": "local_shell_call"}, ""),
        ({"arguments": "", "call_id": 7}, ""),
    ],
)
def test_a_call_that_can_be_shown_as_it_comes_names_its_id(more: Body, call_id: str) -> None:
    _, (added,) = begun(CALL | more)
    assert added.call is not None
    assert (added.call.id, added.call.tool, added.call.closes) == (call_id, "shell", False)
