"""Bodies of requests, for every dialect: how they are read and edited."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from claw_mediate.core import json_splice
from claw_mediate.core.types import ToolUse
from claw_mediate.core.weave import Insert, Replace, Weave
from claw_mediate.dialects.base import MAX_MESSAGES, UnreadableRequestError
from claw_mediate.dialects.bodies import (
    Changes,
    append_text,
    decode_or_none,
    decode_request,
    encode,
    insert_hidden_rounds,
    insert_messages,
    request_writer,
    transcript_messages,
    unique_ids,
)


class Conversation(msgspec.Struct):
    messages: list[Any]


DECODER = msgspec.json.Decoder(Conversation)


@pytest.mark.requirement("loop:handoff-continuity")
def test_hidden_messages_are_inserted_right_before_their_message() -> None:
    body = b'{"messages":[ {"n":0} , {"n":1}],"a":1e400}'
    weaves = {0: Insert(b'{"h":0}'), 1: Insert(b'{"h":1},{"h":2}')}
    woven = insert_hidden_rounds(body, "messages", weaves)
    assert woven == b'{"messages":[ {"h":0},{"n":0} , {"h":1},{"h":2},{"n":1}],"a":1e400}'
    assert insert_hidden_rounds(body, "messages", {}) is body


H = b'{"h":0}'


@pytest.mark.requirement("live:continuity-split", "wire:byte-fidelity")
@pytest.mark.parametrize(
    ("weaves", "woven"),
    [
        ({1: Replace(H, b"{}")}, b'[ 0 , {"h":0},{} ,2 ,3]'),
        ({1: Replace(H, b"")}, b'[ 0 , {"h":0} ,2 ,3]'),
        ({1: Replace(b"", b"{}")}, b"[ 0 , {} ,2 ,3]"),
        ({1: Replace(b"", b"")}, b"[ 0 , 2 ,3]"),
        ({1: Replace(b"", b""), 2: Insert(H)}, b'[ 0 , {"h":0},2 ,3]'),
        ({0: Replace(b"", b""), 1: Replace(b"", b"")}, b"[ 2 ,3]"),
        ({3: Replace(b"", b"")}, b"[ 0 , 1 ,2]"),
        ({2: Replace(b"", b""), 3: Replace(b"", b""), 1: Replace(H, b"")}, b'[ 0 , {"h":0}]'),
        ({index: Replace(b"", b"") for index in range(4)}, b"[ ]"),
    ],
)
def test_a_message_is_replaced_and_the_others_keep_their_bytes(
    weaves: dict[int, Weave], woven: bytes
) -> None:
    assert insert_messages(b"[ 0 , 1 ,2 ,3]", weaves) == woven


@pytest.mark.requirement("live:continuity-split")
def test_an_edit_of_a_message_that_is_replaced_is_left_out() -> None:
    messages = b"[0,1,2]"
    edits = [(1, 2, b"a"), (3, 4, b"b"), (5, 6, b"c")]
    assert insert_messages(messages, {1: Replace(H, b"{}")}, *edits) == b'[a,{"h":0},{},c]'
    assert insert_messages(messages, {1: Insert(H)}, *edits) == b'[a,{"h":0},b,c]'


@pytest.mark.requirement("live:continuity-split")
def test_the_messages_of_a_request_are_told_in_their_own_bytes() -> None:
    assert transcript_messages(b'{"messages":[ {"a" : 1},2 ]}', "messages") == [b'{"a" : 1}', b"2"]
    assert transcript_messages(b'{"input":"text"}', "input") == []
    assert transcript_messages(b"{}", "input") == []


@pytest.mark.requirement("wire:byte-fidelity")
@pytest.mark.parametrize(
    ("content", "longer"),
    [
        (b'"Be \\u0067ood."', b'"Be \\u0067ood.\\n\\nNew"'),
        (b'""', b'"New"'),
        (b"null", b'"New"'),
        (b"[]", b'[{"type":"text","text":"New"}]'),
        (b'[{"a":1.0}]', b'[{"a":1.0},{"type":"text","text":"New"}]'),
    ],
)
def test_text_is_added_to_a_content_of_each_form(content: bytes, longer: bytes) -> None:
    assert append_text(content, "New") == longer


@pytest.mark.requirement("calls:ids")
@pytest.mark.parametrize(
    ("ids", "unique"),
    [
        (["a", "b"], ["a", "b"]),
        (["a", "a", None], ["a", "call1", "call2"]),
        (["", 7, ["x"]], ["call0", "call1", "call2"]),
        ([], []),
    ],
)
def test_a_missing_or_repeated_id_is_replaced_by_one_of_its_own(
    ids: list[object], unique: list[str]
) -> None:
    assert unique_ids(ids, lambda: "call") == unique


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"messages":{}}',
        b'{"messages":["\xff"]}',
        b'{"messages":' + b"[" * 10**5,
    ],
)
def test_a_body_that_is_no_request_is_refused_by_name(body: bytes) -> None:
    with pytest.raises(UnreadableRequestError, match="the request is not a chat completion"):
        decode_request(DECODER, body, "chat completion")


def test_a_request_of_too_many_messages_is_refused() -> None:
    body = encode({"messages": [0] * MAX_MESSAGES})
    assert len(decode_request(DECODER, body, "chat completion").messages) == MAX_MESSAGES
    with pytest.raises(UnreadableRequestError, match=str(MAX_MESSAGES)):
        decode_request(DECODER, encode({"messages": [0] * (MAX_MESSAGES + 1)}), "x")


def test_a_member_of_another_form_is_read_as_none() -> None:
    decoder = msgspec.json.Decoder(list[int])
    forms = [b"[1]", b'"1"', b"null", b"[" * 10**5]
    assert [decode_or_none(decoder, msgspec.Raw(raw)) for raw in forms] == [[1], None, None, None]


@pytest.mark.requirement("wire:byte-fidelity")
def test_a_request_is_edited_once_for_a_use_of_tools_and_only_when_asked_for() -> None:
    body = json_splice.Object(b'{"messages":[{"n":0}],"a":1.0}')
    asked: list[ToolUse] = []

    class Choices(dict[ToolUse, Changes]):
        def __missing__(self, use: ToolUse) -> Changes:
            asked.append(use)
            return {"tool_choice": encode(use.name)}

    write = request_writer(body, {"stream": b"false"}, Choices())
    assert asked == []
    head, *_ = write(ToolUse.FORBIDDEN)
    sent = write(ToolUse.FORBIDDEN, [b'{"h":1}'])
    assert sent[0] is head
    assert asked == [ToolUse.FORBIDDEN]
    assert json.loads(b"".join(sent)) == {
        "messages": [{"n": 0}, {"h": 1}],
        "a": 1.0,
        "stream": False,
        "tool_choice": "FORBIDDEN",
    }
