"""A streamed chat completion, put together: what flows, what is held, and the body."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claw_contract.sse import SseEvent, SseReader
from claw_mediate.dialects.base import UnreadableResponseError
from claw_mediate.dialects.openai import assemble, assemble_calls
from claw_mediate.dialects.openai.assemble import ChatAssembler
from claw_mediate.dialects.openai.response import read_response
from tests.mediate.any_reply import ANY, CATALOG
from tests.mediate.dialects.openai.cut_reply import (
    DONE,
    END,
    FRAME,
    assembled,
    body_of,
    call,
    chunk,
    cut,
    event,
    message_of,
    plain,
    shape,
    usage,
)
from tests.mediate.dialects.openai.test_stream import CALL, TEXT
from tests.wires.openai import completion

ENTRIES = st.lists(
    st.fixed_dictionaries({"type": st.just("url_citation"), "url": st.text(max_size=5)}),
    max_size=2,
)


@pytest.mark.requirement("live:chat-assembled")
@settings(max_examples=60)
@given(st.data(), TEXT, TEXT, ENTRIES, st.lists(CALL, max_size=3, unique_by=lambda call: call[0]))
def test_a_reply_cut_anyhow_and_put_together_is_the_reply(
    data: st.DataObject,
    words: str,
    thought: str,
    citations: list[Any],
    calls: list[tuple[str, str, str]],
) -> None:
    body = completion(words or None, calls=list(calls), system_fingerprint="fp")
    message = body["choices"][0]["message"]
    message |= {"reasoning_content": thought, "annotations": citations}
    assembler, told = assembled(data.draw(cut(body)))

    put_together = assembler.body()
    got = read_response(put_together, CATALOG)
    wanted = read_response(json.dumps(body).encode(), CATALOG)
    assert got.calls == wanted.calls
    assert got.usage == wanted.usage == json.loads(assembler.usage() or b"")
    got_message = json.loads(got.message)
    assert (got_message["content"] or "") == words
    assert got_message.get("reasoning_content", "") == thought
    assert got_message.get("annotations", []) == citations
    assert got_message.get("tool_calls") == message.get("tool_calls")

    shown = {"content": words, "reasoning_content": thought}
    for channel, text in shown.items():
        assert "".join(each.text for each in told if each.channel == channel) == text


@pytest.mark.requirement("live:chat-flows")
def test_strings_of_a_delta_flow_at_once_with_what_they_came_with() -> None:
    odd = {"index": 0, "delta": {"content": "Hel", "thinking": "hm"}, "content_filter": {"a": 1}}
    odd["logprobs"] = {"content": [{"token": "Hel", "logprob": -1}], "refusal": None}
    _, told = assembled(
        [
            chunk({"role": "assistant", "content": ""}),
            chunk({"reasoning": "so"}),
            event({**FRAME, "choices": [odd], "obfuscation": "xx"}),
            chunk({"role": "assistant", "refusal": "no"}),
            END,
            DONE,
        ]
    )
    assert shape(told) == [
        ("opening", "", ""),
        ("reasoning", "reasoning", "so"),
        ("content", "content", "Hel"),
        ("content", "thinking", "hm"),
        ("content", "refusal", "no"),
        ("end", "", ""),
        ("end", "", ""),
    ]
    assert plain(told[0]) == {"chunk": {name: FRAME[name] for name in ("id", "created", "model")}}
    assert plain(told[2]) == {
        "chunk": {"obfuscation": "xx"},
        "choice": {"content_filter": {"a": 1}, "logprobs": odd["logprobs"]},
    }
    assert plain(told[3]) == {}


@pytest.mark.requirement("live:chat-whole")
def test_a_reply_is_whole_with_its_finish_reason() -> None:
    assembler, _ = assembled([chunk({"content": "a"}), usage(1)])
    assert not assembler.is_whole
    with pytest.raises(UnreadableResponseError, match="ended before"):
        assembler.body()

    # Edge 25: no [DONE]. Edge 26: more content behind the end. Edge 24: the last usage counts.
    _, told = assembled([chunk({}, "stop"), chunk({"content": "b"})])
    assert ("content", "content", "b") in shape(told)
    body = body_of(
        chunk({"content": "a"}), usage(1), chunk({}, "stop"), chunk({"content": "b"}),
        chunk({}, "length"), usage(2), usage(3),
    )  # fmt: skip
    assert body["choices"][0]["message"]["content"] == "ab"
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["usage"] == {"total_tokens": 3}

    # Behind [DONE], nothing is read.
    assert message_of(chunk({}, "stop"), DONE, chunk({"content": "b"}), DONE)["content"] is None


@pytest.mark.requirement("live:chat-whole")
def test_usage_in_every_chunk_and_an_empty_reply() -> None:
    """Edges 24 and 28."""
    counted = [event({**FRAME, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": {"total_tokens": n}}) for n, reason in enumerate([None, "stop"])]  # fmt: skip
    body = body_of(*counted)
    assert body["usage"] == {"total_tokens": 1}
    assert body["object"] == "chat.completion"
    assert body["choices"][0]["message"] == {"role": "assistant", "content": None}


@pytest.mark.requirement("live:chat-assembled")
def test_members_that_nobody_knows_are_kept_and_padding_is_not() -> None:
    azure = {"id": "", "model": "", "created": 0, "choices": [], "prompt_filter_results": [1]}
    odd = {"index": 0, "delta": None, "finish_reason": "stop", "content_filter_results": {"a": 1}}
    last = {**FRAME, "choices": [odd], "obfuscation": "xx", "provider": "P", "service_tier": "flex"}
    body = body_of(event(azure), chunk({"content": "a"}), event(last))
    assert body["id"] == FRAME["id"]
    assert body["prompt_filter_results"] == [1]
    assert (body["provider"], body["service_tier"]) == ("P", "flex")
    assert body["choices"][0]["content_filter_results"] == {"a": 1}
    assert "obfuscation" not in body

    _, told = assembled([event(azure), chunk({"content": "a"})])
    assert plain(told[0])["chunk"]["id"] == FRAME["id"]
    assert plain(told[0])["chunk"]["prompt_filter_results"] == [1]


@pytest.mark.requirement("live:chat-assembled")
def test_logprobs_are_joined() -> None:
    def token(text: str) -> dict[str, Any]:
        return {"content": [{"token": text, "logprob": -1, "top_logprobs": []}], "refusal": None}

    events = [chunk({"content": "a"}, logprobs=token("a")), chunk({}, logprobs=token("b")), END]
    _, told = assembled(events)
    assert [each.channel for each in told[1:3]] == ["content", "logprobs"]
    joined = body_of(*events)["choices"][0]["logprobs"]
    assert [each["token"] for each in joined["content"]] == ["a", "b"]
    assert joined["refusal"] is None


@pytest.mark.requirement("live:chat-unreadable")
@pytest.mark.parametrize(
    "data",
    [
        b'{"choices":[{"delta":{"content":"a"',
        b'{"id":"x"}',
        b"[]",
        b'{"choices":{}}',
        b'{"choices":[5]}',
        b'{"choices":[{"delta":{"content":"\xff"}}]}',
        b'{"choices":[{"delta":{"unread":"\xff"}}]}',
        b'{"choices":[{"delta":{"content":"a","content":"b"}}]}',
        b'{"choices":[{"delta":{"content":"a","c\\u006fntent":"b"}}]}',
        b'{"choices":[{"delta":{}}],"choices":[]}',
        b'{"choices":[{"delta":{"tool_calls":[{"id":"a","id":"b"}]}}]}',
        b'{"choices":[{"delta":{"tool_calls":[{"function":{"name":"a","name":"b"}}]}}]}',
        b'{"choices":[{"delta":{"function_call":{"name":"a","name":"b"}}}]}',
        b'{"choices":[{"delta":{"tool_calls":{}}}]}',
        b'{"choices":[{"delta":[]}]}',
        b'{"choices":[],"usage":5}',
        b'{"choices":[{"index":"a"}]}',
        b'{"choices":' + b"[" * 100_000,
        b'{"choices":[{"delta":{%b}}]}' % b",".join(b'"m%d":null' % n for n in range(1001)),
        b'{"choices":[],%b}' % b",".join(b'"m%d":1' % n for n in range(1001)),
    ],
)
def test_an_event_that_no_strict_client_reads_is_refused(data: bytes) -> None:
    with pytest.raises(UnreadableResponseError):
        ChatAssembler().feed(SseEvent(data))


@pytest.mark.requirement("live:chat-unreadable")
def test_more_calls_than_a_body_may_have_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assemble_calls, "MAX_PARTS", 2)
    monkeypatch.setattr(assemble, "MAX_PARTS", 2)
    three = [chunk(call(n, f"c{n}", name="x")) for n in range(3)]
    with pytest.raises(UnreadableResponseError, match="more than"):
        assembled(three)
    with pytest.raises(UnreadableResponseError, match="more than"):
        assembled(event({"choices": [{"index": n, "delta": {}}]}) for n in range(3))


@pytest.mark.requirement("live:chat-assembled")
def test_keepalives_tell_nothing_and_sse_is_read_as_the_standard_says() -> None:
    """Edge 31: CRLF, a BOM, comments, and several lines of data."""
    stream = (
        b"\xef\xbb\xbf: hello\r\n\r\nevent: ping\r\ndata: {}\r\n\r\ndata:\r\n\r\n"
        b'data: {"choices":[{"delta":\r\ndata: {"content":"a"},"finish_reason":"stop"}]}\r\n\r\n'
        b"data: [DONE]\r\n\r\n"
    )
    assembler, told = assembled(SseReader(1000).feed(stream))
    assert shape(told)[1:] == [("content", "content", "a"), ("end", "", ""), ("end", "", "")]
    assert json.loads(assembler.body())["choices"][0]["message"]["content"] == "a"


MEMBERS = st.sampled_from(
    ["role", "content", "reasoning", "tool_calls", "function_call", "annotations", "odd"]
)
PARTS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "index": st.sampled_from([0, 1, "0", None]),
            "id": st.sampled_from(["a", "b", "", 5]),
            "function": st.fixed_dictionaries({}, optional={"name": ANY, "arguments": ANY}) | ANY,
        },
    ),
    max_size=3,
)


@pytest.mark.requirement("live:chat-unreadable")
@settings(max_examples=150)
@given(st.lists(st.dictionaries(MEMBERS, ANY | PARTS, max_size=4), max_size=4), ANY, ANY)
def test_any_delta_is_refused_or_put_together(
    deltas: list[dict[str, Any]], finish: Any, logprobs: Any
) -> None:
    events = [chunk(delta, logprobs=logprobs) for delta in deltas]
    last = event({**FRAME, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    try:
        assembler, _ = assembled([*events, last])
        body = assembler.body()
    except UnreadableResponseError:
        return
    assert json.loads(body)["choices"][0]["finish_reason"] == finish
