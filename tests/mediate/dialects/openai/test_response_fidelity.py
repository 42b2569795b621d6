"""Chat completions: unknown members keep their bytes everywhere (properties)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claw_mediate.core.types import ToolUse
from claw_mediate.core.weave import Insert
from claw_mediate.dialects.openai import DIALECT as OPENAI_CHAT
from claw_mediate.dialects.streams import write_stream
from tests.mediate.made import JSON_TEXT, catalog, granted

NAMES = catalog(granted("desk.get"), native=["shell"])
MANAGED = b'{"type":"function","function":{"name":"desk__get","description":"","parameters":{"type":"object"}}}'
ASKED = OPENAI_CHAT.read_request(b'{"messages":[],"stream_options":{"include_usage":true}}')
NAME = st.from_regex(r"x_[a-z]{1,6}", fullmatch=True)
OTHERS = st.dictionaries(NAME, JSON_TEXT, max_size=3)
"""Unknown members, in any spelling."""
WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=120)


def written(members: dict[str, str]) -> str:
    return (
        "{ " + " ,\n".join(f"{json.dumps(name)}\t:{value}" for name, value in members.items()) + "}"
    )


def repeated(others: dict[str, str], members: dict[str, str]) -> bytes:
    """Return a request in which each unknown member appears twice."""
    twice = written(others)[:-1] + " ," if others else "{"
    return (twice + written(others | members)[1:]).encode()


@st.composite
def messages(draw: st.DrawFn) -> list[str]:
    """Return a conversation in unusual spellings."""
    roles = st.sampled_from(
        ['"user"', '"assistant"', '"system"', '"developer"', '"tool"', r'"us\u0065r"', "null", "7"]
    )
    made = st.tuples(roles, JSON_TEXT, OTHERS)
    return [
        written({"role": role, "content": said} | more)
        for role, said, more in draw(st.lists(made, max_size=4))
    ]


@pytest.mark.requirement("wire:byte-fidelity")
@settings(max_examples=60)
@given(messages(), OTHERS, st.lists(OTHERS, max_size=2), st.booleans())
def test_a_request_keeps_its_bytes_but_for_what_is_added(
    said: list[str], others: dict[str, str], functions: list[dict[str, str]], stream: bool
) -> None:
    conversation = "[" + " , ".join(said) + " ]"
    asked = repeated(others, {"messages": conversation, **({"stream": "true"} if stream else {})})
    declared = [written(function).encode() for function in functions]
    request = OPENAI_CHAT.read_request(
        b'{ "functions" : [%b ] , ' % b" ,".join(declared) + asked[2:]
    )
    hidden = {index: Insert(f'{{"hidden":{index}}}'.encode()) for index in range(len(said))}
    write = OPENAI_CHAT.build_request(request, NAMES, hidden)
    tools = b",".join(
        [*(b'{"type":"function","function":%b}' % function for function in declared), MANAGED]
    )
    expected = (
        asked[:-1].replace(b'"stream"\t:true', b'"stream"\t:false') + b',"tools":[' + tools + b"]}"
    )
    woven = (
        "["
        + " , ".join(f'{{"hidden":{index}}},{message}' for index, message in enumerate(said))
        + " ]"
    )
    assert b"".join(write(ToolUse.AS_REQUESTED)) == expected.replace(
        conversation.encode(), woven.encode()
    )


@pytest.mark.requirement("wire:byte-fidelity")
@settings(max_examples=60)
@given(messages(), OTHERS, WORDS.filter(bool))
def test_context_is_added_to_one_message_and_changes_no_other_byte(
    said: list[str], others: dict[str, str], words: str
) -> None:
    system = r'{"x":1.0,"role":"system" , "content":"Be good. \u00e9" ,"y":1e400 }'
    asked = written(
        {**others, "messages": "[" + ",".join([system, '{"role":"user"}', *said]) + "]"}
    ).encode()
    longer = rb'"Be good. \u00e9\n\n' + json.dumps(words, ensure_ascii=False).encode()[1:]
    expected = asked.replace(rb'"Be good. \u00e9"', longer)
    request = OPENAI_CHAT.read_request(asked)
    assert OPENAI_CHAT.add_context(request, words) == expected
    write = OPENAI_CHAT.build_request(request, NAMES, {}, words)
    assert b"".join(write(ToolUse.AS_REQUESTED)) == expected[:-1] + b',"tools":[' + MANAGED + b"]}"


@st.composite
def responses(draw: st.DrawFn) -> bytes:
    """Return a response with calls and texts of every kind, and unknown members in any spelling."""
    choices = [draw(choice()) for _ in range(draw(st.integers(1, 2)))]
    usage = draw(st.sampled_from(["null", '{"total_tokens":1.0}', '{ "cost" : 1e-5 }']))
    known = {
        "id": '"chatcmpl-1"',
        "created": "1.0",
        "model": '"m"',
        "choices": f"[{','.join(choices)}]",
        "usage": usage,
    }
    return written(
        draw(OTHERS) | known | draw(optional(service_tier='"flex"', system_fingerprint="null"))
    ).encode()


def optional(**members: str) -> st.SearchStrategy[dict[str, str]]:
    return st.fixed_dictionaries(
        {}, optional={name: st.just(value) for name, value in members.items()}
    )


@st.composite
def choice(draw: st.DrawFn) -> str:
    said = draw(
        st.fixed_dictionaries({"role": st.just('"assistant"')}, optional=dict.fromkeys(TEXTS, TEXT))
    )
    if calls := draw(st.lists(call(), max_size=3)):
        said["tool_calls"] = f"[{' , '.join(calls)}]"
    reason = {
        "finish_reason": draw(
            st.sampled_from(['"stop"', '"length"', '"tool_calls"', r'"\u0073top"'])
        )
    }
    more = draw(optional(logprobs='{"content":[{"logprob":-1.0}]}'))
    return written({"message": written(said | draw(OTHERS))} | reason | more | draw(OTHERS))


@st.composite
def call(draw: st.DrawFn) -> str:
    called = draw(OTHERS) | {"id": json.dumps(draw(st.uuids().map(str))), "type": '"function"'}
    arguments = draw(TEXT.filter(lambda text: text != "null") | st.just('{ "a" : 1e5,\n"b":[] }'))
    return written(
        called | {"function": written({"name": '"shell"', "arguments": arguments} | draw(OTHERS))}
    )


TEXTS = ("content", "refusal", "reasoning", "reasoning_content")
TEXT = st.one_of(
    WORDS.map(json.dumps),
    WORDS.map(lambda text: json.dumps(text, ensure_ascii=False)),
    st.just("null"),
)


@pytest.mark.requirement("stream:same-as-json")
@settings(max_examples=120)
@given(responses())
def test_a_stream_put_together_as_a_client_does_is_the_response(body: bytes) -> None:
    reply = OPENAI_CHAT.read_response(body, NAMES)
    assert OPENAI_CHAT.write_response(reply, ASKED, reply.usage, terminal=False) == body
    whole = b"".join(write_stream(OPENAI_CHAT, body, ASKED))
    chunks = [
        exact(event.removeprefix(b"data: "))
        for event in whole.removesuffix(b"data: [DONE]\n\n").split(b"\n\n")[:-1]
    ]
    response = exact(body)
    assert put_together(chunks) == {
        **response,
        "choices": [as_streamed(made) for made in response["choices"]],
    }


class Number(str):
    """A number as it is written."""

    __slots__ = ()


def exact(body: bytes) -> Any:
    """Parse JSON with numbers as they are written, and an object with a repeated
    name as the list of its members.
    """

    def members(pairs: list[tuple[str, Any]]) -> Any:
        return dict(pairs) if len(dict(pairs)) == len(pairs) else pairs

    return json.loads(body, parse_int=Number, parse_float=Number, object_pairs_hook=members)


def as_streamed(choice: dict[str, Any]) -> dict[str, Any]:
    """Return the choice as a stream has it: arguments are text, whatever the provider gave."""
    for made in choice["message"].get("tool_calls", ()):
        if not isinstance(made["function"]["arguments"], str):
            made["function"]["arguments"] = '{ "a" : 1e5, "b":[] }'
    return choice


def put_together(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the response that a client assembles from its chunks."""
    made: dict[str, Any] = {}
    for chunk in chunks:
        assert not made or chunk["id"] == made["id"]
        for choice in chunk.pop("choices"):
            add_choice(made.setdefault("choices", []), choice)
        chunk.pop("object")
        made |= chunk
    return made


def add_choice(choices: list[dict[str, Any]], choice: dict[str, Any]) -> None:
    index, delta, reason = (
        int(choice.pop("index")),
        choice.pop("delta"),
        choice.pop("finish_reason"),
    )
    assert index in {len(choices), len(choices) - 1}
    if index == len(choices):
        assert delta["role"] == "assistant"
        choices.append({"message": {}})
    else:
        assert "role" not in delta
    message = choices[index]["message"]
    for part in delta.pop("tool_calls", ()):
        add_call(message.setdefault("tool_calls", []), part)
    grow(message, delta)
    choices[index] |= choice
    if reason is not None:
        choices[index]["finish_reason"] = reason


def add_call(calls: list[dict[str, Any]], part: dict[str, Any]) -> None:
    index, function = int(part.pop("index")), part.pop("function")
    assert index in {len(calls), len(calls) - 1}
    if index == len(calls):
        calls.append({**part, "function": function})
    else:
        assert not part
        grow(calls[index]["function"], function)


def grow(whole: dict[str, Any], part: dict[str, Any]) -> None:
    for name, value in part.items():
        whole[name] = whole[name] + value if isinstance(whole.get(name), str) else value
