"""Anthropic's responses: every block survives, and calls are read as they were written."""

from __future__ import annotations

import json
from typing import Any

import pytest

from claw_mediate.core import json_splice, tool_result
from claw_mediate.core.types import Arguments, ModelResponse, Round, UnreadableArguments
from claw_mediate.dialects.anthropic import DIALECT as ANTHROPIC_MESSAGES
from claw_mediate.dialects.base import UnreadableResponseError
from tests.mediate.made import catalog, granted

NAMES = catalog(granted("desk.get"), native=["shell"])
ASKED = ANTHROPIC_MESSAGES.read_request(b'{"messages":[]}')
THINKING = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
REDACTED = {"type": "redacted_thinking", "data": "b64"}
SEARCHED = {
    "type": "server_tool_use",
    "id": "srvtoolu_1",
    "name": "web_search",
    "input": {"query": "x"},
}
FOUND = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [{"type": "web_search_result"}],
}
CITED = {
    "type": "text",
    "text": "as said",
    "citations": [{"type": "char_location", "start_char_index": 1}],
}
UNKNOWN = {"type": "type_of_tomorrow", "n": 1.0}
EVERY = [THINKING, REDACTED, SEARCHED, FOUND, CITED, UNKNOWN]


def call(name: str = "desk__get", call_id: Any = "toolu_1", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def replied(*blocks: Any, **more: Any) -> ModelResponse:
    body = {"type": "message", "role": "assistant", "content": list(blocks), **more}
    return ANTHROPIC_MESSAGES.read_response(json.dumps(body).encode(), NAMES)


def delivered(reply: ModelResponse, *, terminal: bool = False, **usage: Any) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(
        ANTHROPIC_MESSAGES.write_response(reply, ASKED, usage, terminal=terminal)
    )
    return body


@pytest.mark.requirement("anthropic:blocks-survive")
def test_blocks_of_every_type_stay_in_the_transcript_and_in_the_answer() -> None:
    reply = replied(*EVERY, call(), usage={"input_tokens": 1})
    past = Round(1, reply, (tool_result.unknown_tool(reply.calls[0]),))
    assistant, user = map(
        json.loads, ANTHROPIC_MESSAGES.write_hidden_rounds([past], replayed=False)
    )
    assert assistant == {"role": "assistant", "content": [*EVERY, call()]}
    assert [block["tool_use_id"] for block in user["content"]] == ["toolu_1"]
    answer = replied(*EVERY, usage={"input_tokens": 1})
    assert delivered(answer, input_tokens=5)["content"] == EVERY


@pytest.mark.requirement("anthropic:pairing")
def test_calls_without_a_result_leave_the_transcript() -> None:
    reply = replied(THINKING, call(call_id="a"), call("shell", "b", cmd="ls"))
    past = Round(1, reply, (tool_result.unknown_tool(reply.calls[0]),))
    assistant, user = map(json.loads, ANTHROPIC_MESSAGES.write_hidden_rounds([past], replayed=True))
    assert assistant["content"] == [THINKING, call(call_id="a")]
    assert [block["tool_use_id"] for block in user["content"]] == ["a"]


@pytest.mark.requirement("calls:ids")
@pytest.mark.parametrize("ids", [["a", "a"], [None, None], ["", "a"], ["a", 5, "a", ""]])
def test_every_call_has_its_own_id_in_the_transcript_and_in_the_answer(
    ids: list[Any],
) -> None:
    reply = replied(*(call("shell", call_id) for call_id in ids))
    own = [made.id for made in reply.calls]
    assert len(set(own)) == len(ids)
    assert [block["id"] for block in delivered(reply)["content"]] == own
    past = Round(1, reply, tuple(map(tool_result.unknown_tool, reply.calls)))
    assistant, user = map(
        json.loads, ANTHROPIC_MESSAGES.write_hidden_rounds([past], replayed=False)
    )
    assert [block["id"] for block in assistant["content"]] == own
    assert [block["tool_use_id"] for block in user["content"]] == own
    assert all(made.isalnum() for made in own)


def test_an_answer_that_needs_no_change_is_delivered_in_its_own_bytes() -> None:
    reply = replied(*EVERY, call("shell"), usage={"output_tokens": 1.0})
    assert (
        ANTHROPIC_MESSAGES.write_response(reply, ASKED, reply.usage, terminal=False) is reply.body
    )


@pytest.mark.requirement("calls:exact-numbers")
def test_arguments_keep_the_spelling_of_their_numbers() -> None:
    body = b'{"content":[{"type":"tool_use","id":"a","name":"desk__get","input":{ "n" : 12345678901234567890.10 }}]}'
    (made,) = ANTHROPIC_MESSAGES.read_response(body, NAMES).calls
    assert isinstance(made.arguments, Arguments)
    assert made.arguments.raw == {"n": b"12345678901234567890.10"}


@pytest.mark.requirement("calls:invalid-arguments")
@pytest.mark.parametrize("bad", ['"x"', "[]", "null", '{"a":1,"a":2}', '"{\\"a\\":1}"'])
def test_a_call_whose_input_is_not_a_sound_object_never_runs(
    bad: str,
) -> None:
    body = (
        f'{{"content":[{{"type":"tool_use","id":"a","name":"desk__get","input":{bad}}}]}}'.encode()
    )
    (made,) = ANTHROPIC_MESSAGES.read_response(body, NAMES).calls
    assert isinstance(made.arguments, UnreadableArguments)


@pytest.mark.requirement("calls:cut-off")
def test_the_last_call_of_an_answer_that_ran_out_of_tokens_is_never_run() -> None:
    first, last = replied(call(call_id="a"), call(call_id="b"), stop_reason="max_tokens").calls
    assert isinstance(first.arguments, Arguments)
    assert isinstance(last.arguments, UnreadableArguments)


@pytest.mark.requirement("anthropic:blank-text")
def test_blank_text_is_not_given_back_to_a_provider_that_refuses_it() -> None:
    reply = replied({"type": "text", "text": " \n"}, call())
    past = Round(1, reply, (tool_result.unknown_tool(reply.calls[0]),))
    assistant = json.loads(ANTHROPIC_MESSAGES.write_hidden_rounds([past], replayed=False)[0])
    assert assistant["content"] == [call()]


@pytest.mark.requirement("calls:terminal-on-success")
@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ([], [{"type": "text", "text": "Done."}]),
        ([{"type": "text", "text": ""}], [{"type": "text", "text": "Done."}]),
        ([THINKING], [THINKING, {"type": "text", "text": "Done."}]),
        ([{"type": "text", "text": "Buying."}], [{"type": "text", "text": "Buying."}]),
    ],
)
def test_a_terminal_reply_is_the_models_words_without_its_call(
    said: list[Any], shown: list[Any]
) -> None:
    body = delivered(replied(*said, call(), stop_reason="tool_use"), terminal=True, output_tokens=3)
    assert (body["content"], body["stop_reason"], body["usage"]) == (
        shown,
        "end_turn",
        {"output_tokens": 3},
    )


REFUSED = {
    "nothing": b"",
    "an error": b'{"type":"error","error":{"type":"overloaded_error","message":"x"}}',
    "a chat completion": b'{"choices":[{"message":{"role":"assistant","content":"x"}}]}',
    "text for content": b'{"content":"x"}',
    "a block that is none": b'{"content":[1]}',
    "not UTF-8": b'{"content":[{"type":"text","text":"\xff"}]}',
    "half a character": b'{"content":[{"type":"text","text":"\\ud800"}]}',
    "content twice": b'{"content":[],"content":[]}',
    "input twice": b'{"content":[{"type":"tool_use","id":"a","name":"x","input":{},"input":{}}]}',
    "content twice, once with an escape": b'{"content":[],"c\\u006fntent":[]}',
    "input twice, once with an escape": b'{"content":[{"type":"tool_use","id":"a","name":"x","input":{},"\\u0069nput":{}}]}',
    "usage twice": b'{"content":[],"usage":{},"usage":{"output_tokens":1}}',
    "text twice": b'{"content":[{"type":"text","text":"a","text":"b"}]}',
    "a call with too many members": b'{"content":[{"type":"tool_use","id":"a",%b"name":"x"}]}'
    % (b'"x":1,' * 1000),
    "deep": b'{"content":[],"x":' + b"[" * 100_000,
}


@pytest.mark.requirement("failure:bad-reply")
@pytest.mark.parametrize("name", REFUSED)
def test_a_reply_that_is_broken_or_ambiguous_is_refused_as_a_whole(name: str) -> None:
    with pytest.raises(UnreadableResponseError):
        ANTHROPIC_MESSAGES.read_response(REFUSED[name], NAMES)


def test_a_plain_reply_is_read_without_a_list_of_its_members(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        json_splice, "list_members", lambda *_: pytest.fail("its members were listed")
    )
    reply = replied(
        {"type": "text", "text": "content: input, text"},
        call(),
        usage={"input_tokens": 1},
        stop_reason="tool_use",
    )
    assert [made.name for made in reply.calls] == ["desk__get"]
    assert json.loads(reply.message) == [{"type": "text", "text": "content: input, text"}, call()]
