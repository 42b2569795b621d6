"""Chat completions: responses are read or refused as a whole; hidden rounds keep their bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from claw_mediate.core import tool_result
from claw_mediate.core.types import Arguments, ModelResponse, Round, UnreadableArguments, add_usage
from claw_mediate.dialects.base import UnreadableResponseError
from claw_mediate.dialects.openai import DIALECT as OPENAI_CHAT
from claw_mediate.dialects.streams import write_stream
from claw_mediate.turns.history_lines import usage_record
from tests.mediate.made import catalog, granted

NAMES = catalog(granted("desk.get"), native=["shell"])


def replied(message: Any, **more: Any) -> ModelResponse:
    return OPENAI_CHAT.read_response(
        json.dumps({"choices": [{"message": message}], **more}).encode(), NAMES
    )


def wire_call(name: str = "desk__get", arguments: Any = "{}", **more: Any) -> dict[str, Any]:
    return {
        "id": "c1",
        "type": "function",
        "function": {"name": name, "arguments": arguments},
        **more,
    }


def answered(reply: ModelResponse) -> Round:
    return Round(1, reply, tuple(tool_result.invalid_arguments(call, "x") for call in reply.calls))


ASKED = OPENAI_CHAT.read_request(b'{"messages":[],"stream_options":{"include_usage":true}}')

REFUSED: dict[str, bytes] = {
    "empty": b"",
    "array": b"[]",
    "no choices": b'{"choices":[]}',
    "no message": b'{"choices":[{}]}',
    "null message": b'{"choices":[{"message":null}]}',
    "nan": b'{"choices":[{"message":{"content":"x"},"l":NaN}]}',
    "surrogate": b'{"choices":[{"message":{"content":"\\ud800"}}]}',
    "surrogate unread": b'{"choices":[{"message":{"content":"x"}}],"z":"\\ud800"}',
    "invalid utf-8": b'{"choices":[{"message":{"content":"x"},"z":"\xff"}]}',
    "deep": b'{"choices":[{"message":{"content":' + b"[" * 100_000 + b"]" * 100_000 + b"}}]}",
    "usage list": b'{"choices":[{"message":{}}],"usage":[]}',
    "call null": b'{"choices":[{"message":{"tool_calls":[null]}}]}',
    "calls object": b'{"choices":[{"message":{"tool_calls":{}}}]}',
    "second choice": b'{"choices":[{"message":{}},{"message":5}]}',
    "second calls": b'{"choices":[{"message":{}},{"message":{"tool_calls":["a"]}}]}',
    "too many members": b'{"choices":[{"message":{}}],%b}'
    % b",".join(b'"%d":0' % number for number in range(1000)),
    "choices twice": b'{"choices":[{"message":{}}],"choices":[{"message":{}}]}',
    "usage twice": b'{"choices":[{"message":{}}],"usage":{},"us\\u0061ge":{}}',
    "message twice": b'{"choices":[{"message":{},"message":{}}]}',
    "calls twice": b'{"choices":[{"message":{"tool_calls":[{}],"tool_calls":[]}}]}',
    "call id twice": b'{"choices":[{"message":{"tool_calls":[{"id":"a","id":"b"}]}}]}',
}


@pytest.mark.requirement("failure:bad-reply")
@pytest.mark.parametrize("name", REFUSED)
def test_a_reply_that_is_broken_or_ambiguous_is_refused_as_a_whole(name: str) -> None:
    with pytest.raises(UnreadableResponseError):
        OPENAI_CHAT.read_response(REFUSED[name], NAMES)


@pytest.mark.parametrize("calls", [[], None])
@pytest.mark.parametrize("content", ["x", None, [{"type": "text", "text": "x"}], 5])
def test_a_message_without_calls_is_an_answer_in_its_own_bytes(calls: Any, content: Any) -> None:
    reply = replied({"content": content, "tool_calls": calls})
    assert reply.calls == ()
    assert OPENAI_CHAT.write_response(reply, ASKED, reply.usage, terminal=False) is reply.body


@pytest.mark.requirement("calls:ids")
@pytest.mark.parametrize(
    "ids", [["a", "a"], [None, None], ["", "a"], ["a", None, "a", ""], [5, "b"]]
)
def test_repeated_and_missing_call_ids_are_replaced_and_answered_by_the_new_ones(
    ids: list[Any],
) -> None:
    reply = replied({"content": None, "tool_calls": [wire_call(id=call_id) for call_id in ids]})
    made = [call.id for call in reply.calls]
    assert len(set(made)) == len(ids)
    assert all(call_id.isalnum() for call_id in made)
    hidden = [
        json.loads(message)
        for message in OPENAI_CHAT.write_hidden_rounds([answered(reply)], replayed=False)
    ]
    assert [call["id"] for call in hidden[0]["tool_calls"]] == made
    assert [message["tool_call_id"] for message in hidden[1:]] == made


@pytest.mark.requirement("calls:ids")
def test_the_runner_gets_the_new_id_of_a_call_in_both_forms() -> None:
    calls = [
        wire_call("shell", id=None, x=1.0),
        wire_call("shell", id="a"),
        wire_call("shell", id="a"),
    ]
    reply = replied({"content": None, "tool_calls": calls}, y=2)
    made = [call.id for call in reply.calls]
    body = OPENAI_CHAT.write_response(reply, ASKED, reply.usage, terminal=False)
    handed = json.loads(body)["choices"][0]["message"]["tool_calls"]
    assert handed == [{**call, "id": call_id} for call, call_id in zip(calls, made, strict=True)]
    chunks = [
        json.loads(event[6:])
        for event in b"".join(write_stream(OPENAI_CHAT, body, ASKED)).split(b"\n\n")[:-2]
    ]
    deltas = [
        part
        for chunk in chunks
        for choice in chunk["choices"]
        for part in choice["delta"].get("tool_calls", [])
    ]
    assert [part["id"] for part in deltas if "id" in part] == made
    again = {"messages": [{"role": "assistant", "content": None, "tool_calls": handed}]}
    anchor = OPENAI_CHAT.response_anchor(reply, ASKED, terminal=False)
    assert OPENAI_CHAT.read_request(json.dumps(again).encode()).evidence.anchors == {0: anchor}


@pytest.mark.requirement("legacy:provider")
def test_a_providers_function_call_is_read_as_a_tool_call() -> None:
    body = b'{"choices":[{"message":{"x":1.0,"function_call":{"name":"desk__get","arguments":"{\\"a\\":1.0}"}}}]}'
    reply = OPENAI_CHAT.read_response(body, NAMES)
    (call,) = reply.calls
    assert (call.owner, call.arguments.raw) == ("managed", {"a": b"1.0"})  # type: ignore[union-attr]
    message = json.loads(reply.message)
    assert message["tool_calls"][0]["id"] == call.id
    assert "function_call" not in message
    assert b'"x":1.0' in reply.message


@pytest.mark.requirement("stream:unknown-fields")
@pytest.mark.parametrize("odd", [b"1e400", b"9" * 5000, b"1.0", b"-0"])
def test_a_number_that_no_rule_reads_keeps_its_spelling(odd: bytes) -> None:
    body = b'{"choices":[{"message":{"content":"x","m":%b},"c":%b}],"created":%b}' % (odd, odd, odd)
    reply = OPENAI_CHAT.read_response(body, NAMES)
    assert OPENAI_CHAT.write_response(reply, ASKED, reply.usage, terminal=False) == body
    stream = b"".join(write_stream(OPENAI_CHAT, body, ASKED))
    for name in (b"m", b"c", b"created"):
        assert b'"%b":%b' % (name, odd) in stream


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        ("{}", {}),
        ('{"a":1}', {"a": 1}),
        ({"a": 1.5}, {"a": 1.5}),
        ("", {}),
        ("[]", None),
        (None, None),
    ],
)
def test_arguments_may_be_text_or_an_object(arguments: Any, values: Any) -> None:
    read = replied({"tool_calls": [wire_call(arguments=arguments)]}).calls[0].arguments
    assert (read.values if isinstance(read, Arguments) else None) == values


@pytest.mark.requirement("calls:invalid-arguments")
def test_a_custom_call_by_a_managed_name_never_runs_without_arguments() -> None:
    call = replied(
        {
            "tool_calls": [
                {"id": "a", "type": "custom", "custom": {"name": "desk__get", "input": "x"}}
            ]
        }
    ).calls[0]
    assert call.owner == "managed"
    assert isinstance(call.arguments, UnreadableArguments)
    native = replied(
        {"tool_calls": [{"id": "a", "type": "custom", "custom": {"name": "shell", "input": "x"}}]}
    ).calls[0]
    assert native.owner == "native"


@pytest.mark.requirement("loop:managed-first-native-behind")
def test_native_calls_at_the_end_leave_the_transcript_and_other_bytes_stay() -> None:
    ours, theirs = (
        b'{"id":"a","function":{"name":"desk__get"},"y":1e5}',
        b'{"id":"b","function":{"name":"shell"}}',
    )
    body = (
        b'{"choices":[{"message":{"role":"assistant","x":1.0,"tool_calls":[ '
        + ours
        + b" , "
        + theirs
        + b" ]}}]}"
    )
    reply = OPENAI_CHAT.read_response(body, NAMES)
    past = Round(1, reply, (tool_result.invalid_arguments(reply.calls[0], "x"),))
    first, answer = OPENAI_CHAT.write_hidden_rounds([past], replayed=True)
    assert first == b'{"role":"assistant","x":1.0,"tool_calls":[' + ours + b"]}"
    assert json.loads(answer)["tool_call_id"] == "a"


@pytest.mark.requirement("continuity:advice-left-out")
def test_advice_for_one_turn_is_not_replayed() -> None:
    reply = replied({"tool_calls": [wire_call()]})
    past = Round(1, reply, tuple(map(tool_result.tool_budget_exhausted, reply.calls)))
    assert OPENAI_CHAT.write_hidden_rounds([past], replayed=True) == ()
    assert len(OPENAI_CHAT.write_hidden_rounds([past], replayed=False)) == 2


@pytest.mark.requirement("calls:terminal-on-success")
def test_a_terminal_reply_is_the_models_words_without_its_call() -> None:
    reply = replied({"content": None, "tool_calls": [wire_call()], "x": 1}, id="a")
    body = json.loads(OPENAI_CHAT.write_response(reply, ASKED, {"total_tokens": 3}, terminal=True))
    assert body["choices"][0] == {"message": {"content": "Done.", "x": 1}, "finish_reason": "stop"}
    assert body["usage"] == {"total_tokens": 3}


@pytest.mark.requirement("loop:usage-summed")
@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        (None, (0, 0, 0)),
        (
            {
                "prompt_tokens": 3,
                "completion_tokens": 2,
                "prompt_tokens_details": {"cached_tokens": 1},
            },
            (6, 4, 2),
        ),
        (
            {"prompt_tokens": "3", "completion_tokens": None, "prompt_tokens_details": "x"},
            (0, 0, 0),
        ),
        ({"prompt_tokens": True, "completion_tokens": 1.5, "prompt_tokens_details": []}, (0, 0, 0)),
        ({"prompt_tokens": 18446744073709551615, "cost": 1e308}, (36893488147419103230, 0, 0)),
        ({"cost": "0.1"}, (0, 0, 0)),
        ({"cost": True}, (0, 0, 0)),
    ],
)
def test_any_usage_can_be_summed_recorded_and_streamed(
    usage: Any, tokens: tuple[int, int, int]
) -> None:
    reply = replied({"content": "x"}, usage=usage)
    total = add_usage((reply.usage, reply.usage))
    record = usage_record(total, 2)
    assert (record.prompt_tokens, record.completion_tokens, record.cached_tokens) == tokens
    body = OPENAI_CHAT.write_response(reply, ASKED, total, terminal=False)
    assert b"".join(write_stream(OPENAI_CHAT, body, ASKED)).endswith(b"data: [DONE]\n\n")


@pytest.mark.requirement("continuity:text-anchor")
@pytest.mark.parametrize(
    "spelled", ["Hi", "Hi ", [{"type": "text", "text": "Hi", "cache_control": {}}]]
)
def test_an_answer_is_found_again_in_the_runners_next_request(spelled: Any) -> None:
    asked = OPENAI_CHAT.read_request(b'{"messages":[{"role":"user","content":"Q"}]}')
    anchor = OPENAI_CHAT.response_anchor(replied({"content": "Hi"}), asked, terminal=False)
    answer = {"role": "assistant", "content": spelled, "tool_calls": None}
    again = {"messages": [{"role": "user", "content": [{"type": "text", "text": "Q"}]}, answer]}
    assert OPENAI_CHAT.read_request(json.dumps(again).encode()).evidence.anchors == {1: anchor}
