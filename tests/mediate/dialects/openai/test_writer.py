"""A stream of one or several replies: the real SDK puts together what was shown."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claw_contract.sse import SseEvent
from claw_mediate.core.reply_events import ReplyEvent
from claw_mediate.dialects.base import RunnerRequest
from claw_mediate.dialects.openai.stream import tell
from claw_mediate.dialects.openai.writer import ChatWriter
from claw_mediate.dialects.streams import Keepalive, OwnOpening
from tests.mediate.dialects.openai.cut_reply import (
    DONE,
    END,
    FRAME,
    assembled,
    call,
    chunk,
    cut,
    event,
)
from tests.mediate.dialects.openai.test_stream import CALL, TEXT
from tests.mediate.openai_sdk import chunks, final
from tests.wires.openai import completion

OWN = OwnOpening("chatcmplown", "asked-for", 7)
ASKED = RunnerRequest(b"{}", "asked-for", stream=True, include_usage=True)
FLOWS = {"opening", "content", "reasoning"}


def body_of(words: str | None, **members: Any) -> bytes:
    body = completion(words)
    body["choices"][0]["message"] |= members
    return json.dumps(body).encode()


class LiveStream:
    """A live turn, as far as its stream goes: what flows, then what the verdict releases."""

    def __init__(self, request: RunnerRequest = ASKED) -> None:
        self.writer = ChatWriter(request, OWN)
        self.stream = b""
        self._shown: dict[str, int] = {}
        self._replies = 0

    def show(self, events: Iterable[ReplyEvent]) -> None:
        """Show what flows of one more reply."""
        if self._replies:
            self.writer.begin_reply()
        self._replies += 1
        self._shown = {}
        for each in events:
            if each.kind == "call":
                return
            if each.kind in FLOWS:
                self._write(each)

    def deliver(self, body: bytes) -> bytes:
        """Show what of the last reply's body was not shown, and return the answer."""
        for each in tell(body, ASKED):
            rest = each
            if each.text:
                shown = self._shown.get(each.channel, 0)
                self._shown[each.channel] = max(0, shown - len(each.text))
                rest = msgspec.structs.replace(each, text=each.text[shown:])
                if not rest.text:
                    continue
            self.stream += self.writer.write(rest)
        return self.writer.answer(body)

    def _write(self, each: ReplyEvent) -> None:
        self._shown[each.channel] = self._shown.get(each.channel, 0) + len(each.text)
        self.stream += self.writer.write(each)


def live(*replies: Sequence[SseEvent]) -> tuple[Any, Any]:
    """Return what the SDK makes of live replies, of which the last one is delivered, and the
    answer that history records.
    """
    turn = LiveStream()
    for events in replies:
        assembler, told = assembled(events)
        turn.show(told)
    answer = turn.deliver(assembler.body())
    return final(turn.stream), json.loads(answer)


@pytest.mark.requirement("live:chat-lifecycle")
@settings(max_examples=40, deadline=None)
@given(
    st.data(),
    st.lists(st.tuples(TEXT, TEXT), max_size=3),
    TEXT,
    st.lists(CALL, max_size=2, unique_by=lambda call: call[0]),
)
def test_any_replies_accumulate_in_the_strict_sdk_to_what_was_shown(
    data: st.DataObject,
    hidden: list[tuple[str, str]],
    words: str,
    native: list[tuple[str, str, str]],
) -> None:
    replies: list[Sequence[SseEvent]] = []
    for preamble, thought in hidden:
        body = completion(preamble, calls=[("m", "desk__get", "{}")])
        body["choices"][0]["message"] |= {"reasoning_content": thought, "annotations": [{"a": 1}]}
        replies.append(data.draw(cut(body)))
    last = completion(words, calls=list(native), id="chatcmpl-last")
    replies.append(data.draw(cut(last)))

    got, answer = live(*replies)
    message = got.choices[0].message
    recorded = answer["choices"][0]["message"]

    shown = ""
    for text in (*(preamble for preamble, _ in hidden), words):
        touches = bool(shown and text) and not (shown[-1].isspace() or text[0].isspace())
        shown += "\n\n" * touches + text
    assert (message.content or "") == (recorded["content"] or "") == shown
    thoughts = "".join(thought for _, thought in hidden)
    assert getattr(message, "reasoning_content", "") == thoughts
    assert recorded.get("reasoning_content", "") == thoughts

    calls = [(c.id, c.function.name, c.function.arguments) for c in message.tool_calls or []]
    assert calls == native
    assert message.annotations is None
    assert got.usage.total_tokens == 15
    assert got.choices[0].finish_reason == last["choices"][0]["finish_reason"]
    assert got.id == answer["id"] == ("chatcmpl-1" if hidden else "chatcmpl-last")

    # Told as a stream, the answer says the same.
    again = final(
        b"".join(map(ChatWriter(ASKED, OWN).write, tell(json.dumps(answer).encode(), ASKED)))
    )
    assert again.choices[0].message.content == (shown or recorded["content"])


def deltas(stream: bytes) -> list[Any]:
    return [each.choices[0].delta.to_dict() for each in chunks(stream) if each.choices]


@pytest.mark.requirement("live:chat-lifecycle")
def test_a_stream_has_one_id_and_one_role_and_content_goes_on() -> None:
    """Edges 3, 21 and 22: two hidden rounds with a preamble each."""
    later = {**FRAME, "id": "chatcmpl-2", "created": 2, "model": "other"}
    opening = {"index": 0, "delta": {"role": "assistant", "content": ""}}
    odd = {"index": 0, "delta": {"role": "assistant", "content": "It is 5."}, "odd": 1}
    last = [
        event({**later, "choices": [opening]}),
        event({**later, "choices": [odd], "obfuscation": "xx"}),
        END,
        DONE,
    ]
    first = [chunk({"role": "assistant", "content": "Let me look."}), chunk(call(0, "a", name="x"))]
    second = [chunk({"role": "assistant", "content": " Once more"}), chunk(call(0, "a", name="x"))]

    turn = LiveStream()
    for events in (first, second):
        turn.show(assembled(events)[1])
    assembler, told = assembled(last)
    turn.show(told)
    answer = json.loads(turn.deliver(assembler.body()))

    made = chunks(turn.stream)
    assert {(each.id, each.created, each.model) for each in made} == {("chatcmpl-1", 1, "gpt-test")}
    assert deltas(turn.stream) == [
        {"role": "assistant"},
        {"content": "Let me look."},
        {"content": " Once more"},
        {"content": "\n\nIt is 5."},
        {},
    ]
    assert b'"obfuscation":"xx","choices":[{"odd":1,"index":0,' in turn.stream
    text = "Let me look. Once more\n\nIt is 5."
    assert answer["choices"][0]["message"]["content"] == text
    assert (answer["id"], answer["created"], answer["model"]) == ("chatcmpl-1", 1, "gpt-test")
    assert turn.stream.endswith(b"data: [DONE]\n\n")


@pytest.mark.requirement("live:chat-lifecycle")
def test_objects_of_the_last_reply_come_with_the_verdict() -> None:
    """F3 and F4: SDKs join lists over replies, signatures too."""
    entry = {"type": "reasoning.text", "index": 0, "text": "hm", "signature": "S"}
    hidden = [chunk({"content": "a ", "reasoning_details": [entry]}), chunk(call(0, name="x"))]
    last = [chunk({"reasoning_details": [entry]}), chunk({"content": "b"}), END]
    got, answer = live(hidden, last)
    assert got.choices[0].message.content == "a b"
    assert got.choices[0].message.reasoning_details == [entry]
    assert answer["choices"][0]["message"]["reasoning_details"] == [entry]

    # A recorded reply that is told again shows none of them, though its opening knows their names.
    turn = LiveStream()
    turn.show(tell(body_of("a", reasoning_details=[entry], name="bob"), ASKED))
    turn.show(tell(body_of("b", reasoning_details=[entry]), ASKED))
    turn.deliver(body_of("b", reasoning_details=[entry]))
    message = final(turn.stream).choices[0].message
    assert (message.content, message.reasoning_details) == ("a\n\nb", [entry])


def logprobs(*texts: str) -> dict[str, Any]:
    return {
        "content": [
            {"token": text, "logprob": -1, "bytes": None, "top_logprobs": []} for text in texts
        ],
        "refusal": None,
    }


@pytest.mark.requirement("live:chat-lifecycle")
def test_logprobs_come_once() -> None:
    first = [chunk({"content": "a "}, logprobs=logprobs("a")), chunk(call(0, name="x"))]
    last = [
        chunk({"content": "b"}, logprobs=logprobs("b")),
        chunk({}, logprobs=logprobs("c")),
        chunk(call(0, "i", name="native", arguments="{}"), logprobs=logprobs("d")),
        END,
    ]
    got, answer = live(first, last)
    shown = got.choices[0].logprobs.content
    assert [each.token for each in shown] == ["a", "b", "c", "d"]
    recorded = answer["choices"][0]["logprobs"]["content"]
    assert [each["token"] for each in recorded] == ["a", "b", "c", "d"]

    # All of them shown: the last chunk has none.
    turn = LiveStream()
    assembler, told = assembled([chunk({"content": "a"}, logprobs=logprobs("a")), END])
    turn.show(told)
    turn.deliver(assembler.body())
    assert turn.stream.count(b'"logprobs"') == 1


@pytest.mark.requirement("live:chat-beats")
@pytest.mark.parametrize("kind", ["comment", "native"])
def test_beats_go_anywhere_and_the_first_id_stays(kind: Keepalive) -> None:
    turn = LiveStream()
    writer = turn.writer
    assert writer.id == ""
    turn.stream += writer.beat("round=1\ndata: no", kind)
    assert writer.id == ("chatcmplown" if kind == "native" else "")

    assembler, told = assembled(
        [chunk({"role": "assistant", "content": "a"}), chunk({"content": "b"}), END]
    )
    turn.show(told)
    turn.stream += writer.beat("round=1", kind)
    answer = json.loads(turn.deliver(assembler.body()))

    shown_id = "chatcmplown" if kind == "native" else "chatcmpl-1"
    assert {each.id for each in chunks(turn.stream)} == {shown_id}
    assert writer.id == answer["id"] == shown_id
    message = final(turn.stream).choices[0].message
    assert (message.role, message.content) == ("assistant", "ab")


@pytest.mark.requirement("live:chat-beats")
def test_a_beat_before_the_members_of_an_opening_are_told_writes_it() -> None:
    turn = LiveStream()
    opening, listed, *_ = tell(body_of("a", annotations=[{"a": 1}]), ASKED)
    assert turn.writer.write(opening) == b""
    beat = turn.writer.beat("n", "native")
    assert deltas(beat) == [{"role": "assistant", "content": "", "refusal": None}]
    assert deltas(turn.writer.write(listed)) == [{"annotations": [{"a": 1}]}]


@pytest.mark.requirement("live:chat-beats")
def test_an_error_ends_the_stream_and_the_usage_goes_to_those_who_asked() -> None:
    turn = LiveStream(RunnerRequest(b"{}", "m", stream=True))
    _, told = assembled([chunk({"content": "a"})])
    turn.show(told)
    turn.deliver(body_of("a"))
    assert b"usage" not in turn.stream

    error = turn.writer.error(b'{"error":{"message":"no"}}')
    assert error == b'data: {"error":{"message":"no"}}\n\ndata: [DONE]\n\n'


@pytest.mark.requirement("live:chat-lifecycle")
def test_what_was_text_goes_before_a_content_of_parts() -> None:
    part = {"type": "text", "text": "b"}
    turn = LiveStream()
    turn.show(assembled([chunk({"content": "a"})])[1])
    turn.writer.begin_reply()
    answer = json.loads(turn.writer.answer(body_of(None, content=[part])))
    message = answer["choices"][0]["message"]
    assert message["content"] == [{"type": "text", "text": "a"}, part]


@pytest.mark.requirement("live:chat-lifecycle")
def test_events_without_an_opening_open_the_stream_themselves() -> None:
    writer = ChatWriter(ASKED, OWN)
    stream = writer.write(ReplyEvent("content", 0, {}, "content", "a"))
    assert deltas(stream) == [{"role": "assistant"}, {"content": "a"}]
    assert writer.id == "chatcmplown"

    # A provider that gives no id gets one of ours.
    frame = {"created": 1, "model": "m", "choices": [{"index": 0, "delta": {"content": "a"}}]}
    turn = LiveStream()
    turn.show(assembled([event(frame)])[1])
    assert turn.writer.id == "chatcmplown"


@pytest.mark.requirement("live:chat-calls")
def test_calls_that_flow_early_are_written_from_index_0() -> None:
    events = [
        chunk(call(1, "a", name="sh")),
        chunk(call(1, name="ell")),
        chunk(call(1, arguments='{"a"')),
        chunk(
            {"tool_calls": [{"index": 2, "id": "b", "type": "custom", "custom": {"name": "py"}}]}
        ),
        chunk(call(1, arguments=":1}")),
        chunk({"tool_calls": [{"index": 2, "custom": {"input": "1"}}]}),
        END,
    ]
    writer = ChatWriter(ASKED, OWN)
    assembler, told = assembled(events)
    stream = b"".join(writer.write(each) for each in told if each.kind != "end")
    stream += b"".join(
        writer.write(each) for each in tell(assembler.body(), ASKED) if each.kind == "end"
    )
    parts = [part for each in deltas(stream) for part in each.get("tool_calls", ())]
    joined: dict[int, dict[str, str]] = {}
    for part in parts:
        call_so_far = joined.setdefault(part["index"], {})
        for name, text in {**part.get("function", {}), **part.get("custom", {})}.items():
            call_so_far[name] = call_so_far.get(name, "") + text
    assert joined == {
        0: {"name": "shell", "arguments": '{"a":1}'},
        1: {"name": "py", "input": "1"},
    }

    legacy = [
        chunk({"function_call": {"name": "x"}}),
        chunk({"function_call": {"arguments": "{}"}}),
    ]
    writer = ChatWriter(ASKED, OWN)
    stream = b"".join(map(writer.write, assembled(legacy)[1]))
    assert [each.get("function_call") for each in deltas(stream)] == [
        None,
        {"name": "x", "arguments": ""},
        {"arguments": "{}"},
    ]
