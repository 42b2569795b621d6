"""A chat completion, cut anyhow into the chunks of a stream."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from hypothesis import strategies as st

from claw_contract.sse import SseEvent
from claw_mediate.core.reply_events import ReplyEvent
from claw_mediate.dialects.openai.assemble import ChatAssembler

FRAME: Mapping[str, Any] = {
    "id": "chatcmpl-1",
    "object": "chat.completion.chunk",
    "created": 1,
    "model": "gpt-test",
}


def event(document: object, name: bytes = b"message") -> SseEvent:
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    return SseEvent(data, name)


def chunk(delta: object = None, finish: str | None = None, **choice: Any) -> SseEvent:
    """Return the event of one chunk; ``choice``: other members of its choice."""
    members = {"index": 0, "delta": delta or {}, "finish_reason": finish, **choice}
    return event({**FRAME, "choices": [members]})


def usage(total: int) -> SseEvent:
    return event({**FRAME, "choices": [], "usage": {"total_tokens": total}})


DONE = SseEvent(b"[DONE]")
END = chunk({}, "stop")


def call(index: int | None, call_id: str | None = None, **function: str) -> dict[str, Any]:
    """Return a delta with a part of a call; without ``index`` or id where it is None."""
    part: dict[str, Any] = {"function": function}
    if index is not None:
        part["index"] = index
    if call_id is not None:
        part |= {"id": call_id, "type": "function"}
    return {"tool_calls": [part]}


def cut_text(text: str, sizes: Iterator[int]) -> Iterator[str]:
    while text:
        size = next(sizes)
        yield text[:size]
        text = text[size:]


@st.composite
def cut(draw: st.DrawFn, body: dict[str, Any]) -> list[SseEvent]:
    """Return the events of a stream that says what the body says."""
    numbers = draw(st.randoms(use_true_random=False))
    sizes = iter(lambda: numbers.randint(1, 9), 0)
    choice = body["choices"][0]
    message = dict(choice["message"])
    events = [chunk({"role": message.pop("role"), "content": ""})]

    calls = message.pop("tool_calls", ())
    for name, value in message.items():
        if isinstance(value, str):
            events += [chunk({name: part}) for part in cut_text(value, sizes)]
        elif isinstance(value, list):
            events += [chunk({name: [entry]}) for entry in value]
        else:
            events.append(chunk({name: value}))

    for index, whole in enumerate(calls):
        function = whole["function"]
        events.append(chunk(call(index, whole["id"], name="", arguments="")))
        events += [chunk(call(index, name=part)) for part in cut_text(function["name"], sizes)]
        events += [
            chunk(call(index, arguments=part)) for part in cut_text(function["arguments"], sizes)
        ]

    events.append(chunk({}, choice["finish_reason"]))
    events.append(event({**FRAME, "choices": [], "usage": body["usage"]}))
    frame = {"id": body["id"]}
    return [*(event(json.loads(each.data) | frame) for each in events), DONE]


def assembled(events: Iterable[SseEvent]) -> tuple[ChatAssembler, list[ReplyEvent]]:
    assembler = ChatAssembler()
    told = [each for made in events for each in assembler.feed(made)]
    return assembler, told


def body_of(*events: SseEvent) -> Any:
    return json.loads(assembled(events)[0].body())


def message_of(*events: SseEvent) -> Any:
    return body_of(*events)["choices"][0]["message"]


def shape(events: Iterable[ReplyEvent]) -> list[tuple[str, str, str]]:
    return [(each.kind, each.channel, each.text) for each in events]


def plain(event: ReplyEvent) -> Any:
    return json.loads(msgspec.json.encode(event.data))
