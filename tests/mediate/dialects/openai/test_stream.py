"""A synthetic stream of chat completions: the real SDK puts the same message together."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claw_mediate.dialects.openai import DIALECT as OPENAI_CHAT
from claw_mediate.dialects.sse import DELTA_LENGTH
from claw_mediate.dialects.streams import write_stream
from tests.mediate.made import catalog
from tests.mediate.openai_sdk import chunks, final
from tests.wires.openai import completion

SHARP = [
    "data: x\n\n",
    "\r\n",
    "\n",
    "[DONE]",
    "event: error\n",
    ": ",
    "\u2028\u2029\x85\x0b\x0c\x1c",
    "\ufeff",
    "😀" * 60,
    '"}',
    "\\u",
]
TEXT = st.lists(
    st.one_of(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=70), st.sampled_from(SHARP)
    ),
    max_size=4,
).map("".join)
CALL = st.tuples(
    st.from_regex(r"[A-Za-z0-9]{1,12}", fullmatch=True),
    st.from_regex(r"[a-z_]{1,12}", fullmatch=True),
    TEXT,
)


def streamed(body: Any, *, include_usage: bool = True) -> bytes:
    data = json.dumps(body).encode()
    OPENAI_CHAT.read_response(data, catalog())
    options = {"messages": [], "stream_options": {"include_usage": include_usage}}
    request = OPENAI_CHAT.read_request(json.dumps(options).encode())
    return b"".join(write_stream(OPENAI_CHAT, data, request))


@pytest.mark.requirement("stream:sdk-accepts")
@settings(max_examples=60)
@given(
    TEXT | st.none(),
    st.lists(CALL, max_size=3, unique_by=lambda call: call[0]),
    TEXT | st.none(),
    st.booleans(),
)
def test_any_message_comes_out_of_the_sdk_as_it_went_in(
    words: str | None, made: list[tuple[str, str, str]], refusal: str | None, usage: bool
) -> None:
    body = completion(words, calls=list(made))
    body["choices"][0]["message"]["refusal"] = refusal
    answer = final(streamed(body, include_usage=usage))
    message = answer.choices[0].message
    assert (message.role, message.content, message.refusal) == ("assistant", words, refusal)
    got = [
        (c.id, c.function.name, c.function.arguments)
        for c in message.tool_calls or []
        if c.type == "function"
    ]
    assert got == made
    assert answer.choices[0].finish_reason == body["choices"][0]["finish_reason"]
    assert (answer.id, answer.model) == (body["id"], body["model"])
    assert (answer.usage.total_tokens if answer.usage else None) == (15 if usage else None)


@pytest.mark.requirement("stream:sdk-accepts")
@settings(max_examples=40)
@given(TEXT, st.lists(CALL, max_size=3))
def test_the_stream_is_one_well_formed_lifecycle(
    words: str, made: list[tuple[str, str, str]]
) -> None:
    seen = chunks(streamed(completion(words, calls=made)))
    assert len({chunk.id for chunk in seen}) == 1
    assert {chunk.object for chunk in seen} == {"chat.completion.chunk"}
    deltas = [choice.delta for chunk in seen for choice in chunk.choices]
    assert [delta.role for delta in deltas] == ["assistant"] + [None] * (len(deltas) - 1)
    assert all(len(delta.content or "") <= DELTA_LENGTH for delta in deltas)
    parts = [call for delta in deltas for call in delta.tool_calls or []]
    assert [part.index for part in parts if part.id] == list(range(len(made)))
    assert [part.index for part in parts] == sorted(part.index for part in parts)
    reasons = [
        choice.finish_reason for chunk in seen for choice in chunk.choices if choice.finish_reason
    ]
    assert reasons == ["tool_calls" if made else "stop"]
    assert [chunk.choices for chunk in seen if chunk.usage] == [[]]
    assert seen[-1].usage is not None


@given(TEXT)
def test_any_text_keeps_the_frame_of_events_whole(words: str) -> None:
    stream = streamed(completion(words))
    assert stream.endswith(b"\n\ndata: [DONE]\n\n")
    events = stream.removesuffix(b"\n\n").split(b"\n\n")
    assert all(
        event.startswith(b"data: ") and b"\n" not in event and b"\r" not in event
        for event in events
    )
    assert b"\xff" not in stream
    stream.decode()


@pytest.mark.requirement("stream:unknown-fields")
def test_unknown_fields_are_in_the_first_delta_and_the_frame() -> None:
    body = completion("x", system_fingerprint="fp", service_tier="flex")
    body["choices"][0]["message"] |= {
        "annotations": [{"type": "url_citation"}],
        "reasoning_details": [{"signature": "s"}],
    }
    body["choices"][0]["logprobs"] = {"content": []}
    events = [json.loads(line[6:]) for line in streamed(body).split(b"\n\n")[:-2]]
    first = events[0]["choices"][0]["delta"]
    assert first["annotations"] == [{"type": "url_citation"}]
    assert first["reasoning_details"] == [{"signature": "s"}]
    assert all(
        (event["system_fingerprint"], event["service_tier"]) == ("fp", "flex") for event in events
    )
    assert events[-2]["choices"][0]["logprobs"] == {"content": []}


def test_members_that_need_no_repetition_are_only_in_the_first_chunk() -> None:
    made = streamed(completion("x" * 500, citations=["http://a"] * 9))
    assert made.count(b'"citations"') == 1
    assert final(made).model_extra == {"citations": ["http://a"] * 9}


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_comes_whole_before_the_content(name: str) -> None:
    body = completion("answer")
    body["choices"][0]["message"][name] = "thought " * 20
    events = [json.loads(line[6:]) for line in streamed(body).split(b"\n\n")[:-3]]
    deltas = [event["choices"][0]["delta"] for event in events]
    assert [delta[name] for delta in deltas if name in delta] == ["thought " * 20]
    assert max(i for i, d in enumerate(deltas) if name in d) < max(
        i for i, d in enumerate(deltas) if d.get("content")
    )


@pytest.mark.requirement("stream:sdk-accepts")
@pytest.mark.parametrize(
    "message",
    [
        {"content": "x", "tool_calls": []},
        {"content": "x", "tool_calls": None},
        {"content": [{"type": "text", "text": "x"}]},
        {"content": None},
        {},
    ],
)
def test_odd_messages_of_real_providers_make_a_stream(message: dict[str, Any]) -> None:
    seen = chunks(
        streamed({"id": "c", "created": 1, "model": "m", "choices": [{"message": message}]})
    )
    assert seen[-2].choices[0].finish_reason == "stop"


def test_a_custom_call_keeps_its_input_and_a_null_custom_is_a_function() -> None:
    custom = {"id": "a", "type": "custom", "custom": {"name": "shell", "input": "ls " * 40}}
    function = {
        "id": "b",
        "type": "function",
        "custom": None,
        "function": {"name": "f", "arguments": {"a": 1}},
    }
    message = {"role": "assistant", "content": None, "tool_calls": [custom, function]}
    events = streamed({"choices": [{"message": message, "finish_reason": "tool_calls"}]}).split(
        b"\n\n"
    )[:-3]
    parts = [
        part
        for event in events
        for part in json.loads(event[6:])["choices"][0]["delta"].get("tool_calls", [])
    ]
    assert "".join(part["custom"]["input"] for part in parts if part["index"] == 0) == "ls " * 40
    assert (
        "".join(part["function"]["arguments"] for part in parts if part["index"] == 1) == '{"a": 1}'
    )


def test_a_custom_call_comes_in_one_delta_because_the_js_sdk_keeps_the_last() -> None:
    custom = {"id": "a", "type": "custom", "custom": {"name": "shell", "input": "ls " * 400}}
    message = {"role": "assistant", "content": None, "tool_calls": [custom]}
    stream = streamed({"choices": [{"message": message, "finish_reason": "tool_calls"}]})
    assert stream.count(b'"custom":') == 1


@pytest.mark.requirement("stream:sdk-accepts")
@pytest.mark.parametrize("index", [1, 5, None, "a"])
def test_choices_are_numbered_from_0_whatever_the_provider_says(index: Any) -> None:
    body = completion("x")
    body["choices"][0]["index"] = index
    assert final(streamed(body)).choices[0].message.content == "x"


@pytest.mark.requirement("stream:sdk-accepts")
@pytest.mark.parametrize("reason", ["length", "content_filter", "tool_calls", "something_new"])
def test_the_finish_reason_is_the_providers(reason: str) -> None:
    body = completion("x")
    body["choices"][0]["finish_reason"] = reason
    assert [
        c.finish_reason
        for chunk in chunks(streamed(body))
        for c in chunk.choices
        if c.finish_reason
    ] == [reason]


@pytest.mark.requirement("stream:sdk-accepts")
@pytest.mark.parametrize(
    ("message", "reason"), [({"content": "x"}, "stop"), ({"tool_calls": []}, "stop")]
)
def test_a_stream_gets_a_finish_reason_if_the_provider_gave_none(message: Any, reason: str) -> None:
    for body in ({"message": message}, {"message": message, "finish_reason": None}):
        assert final(streamed({"id": "a", "choices": [body]})).choices[0].finish_reason == reason
    call = {"id": "a", "function": {"name": "f", "arguments": "{}"}}
    made = final(streamed({"id": "a", "choices": [{"message": {"tool_calls": [call]}}]}))
    assert made.choices[0].finish_reason == "tool_calls"
    assert made.choices[0].message.tool_calls[0].type == "function"  # type: ignore[index]


@pytest.mark.long
def test_a_very_long_text_is_cut_into_a_bounded_number_of_chunks() -> None:
    arguments = json.dumps({"a": "😀" * 200_000})
    body = completion("word " * 40_000, calls=[("a", "f", arguments)])
    stream = streamed(body)
    assert stream.count(b"\n\n") < 2100
    message = final(stream).choices[0].message
    assert message.content == "word " * 40_000
    assert message.tool_calls[0].function.arguments == arguments  # type: ignore[index, union-attr]
