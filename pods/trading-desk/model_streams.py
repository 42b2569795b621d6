"""The scripted model's replies as streams of events, word by word, on each protocol."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

type Json = dict[str, Any]


def words(text: str) -> list[str]:
    """Return the words of a text, each with the space behind it."""
    return re.findall(r"\S+\s*", text)


def completion_events(completion: Json, asked: Json) -> Iterator[bytes]:
    """Yield the chunks of a chat completion. ``asked``: the request."""
    choice = completion["choices"][0]
    message = choice["message"]
    head = {name: completion[name] for name in ("id", "created", "model")}
    head["object"] = "chat.completion.chunk"

    def chunk(delta: Json, finish_reason: str | None = None) -> bytes:
        part = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        return _data({**head, "choices": [part]})

    yield chunk({"role": "assistant", "content": ""})
    for word in words(message["content"] or ""):
        yield chunk({"content": word})
    for index, call in enumerate(message.get("tool_calls", [])):
        yield chunk({"tool_calls": [{"index": index, **call}]})
    yield chunk({}, choice["finish_reason"])

    if (asked.get("stream_options") or {}).get("include_usage"):
        yield _data({**head, "choices": [], "usage": completion["usage"]})
    yield b"data: [DONE]\n\n"


def message_events(message: Json, _asked: Json) -> Iterator[bytes]:
    """Yield the events of an Anthropic message."""
    started = {**message, "content": [], "stop_reason": None}
    yield _event({"type": "message_start", "message": started})

    for index, block in enumerate(message["content"]):
        yield from _block_events(index, block)

    delta = {name: message[name] for name in ("stop_reason", "stop_sequence")}
    yield _event({"type": "message_delta", "delta": delta, "usage": message["usage"]})
    yield _event({"type": "message_stop"})


def _block_events(index: int, block: Json) -> Iterator[bytes]:
    place = {"index": index}
    if block["type"] == "text":
        empty: Json = {"type": "text", "text": ""}
        deltas = [{"type": "text_delta", "text": word} for word in words(block["text"])]
    else:
        empty = {**block, "input": {}}
        deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]

    yield _event({"type": "content_block_start", **place, "content_block": empty})
    for delta in deltas:
        yield _event({"type": "content_block_delta", **place, "delta": delta})
    yield _event({"type": "content_block_stop", **place})


def response_events(response: Json, _asked: Json) -> Iterator[bytes]:
    """Yield the events of a response of OpenAI Responses."""
    begun = {**response, "status": "in_progress", "output": [], "usage": None}
    events = [("response.created", {"response": begun})]
    for index, item in enumerate(response["output"]):
        events += _item_events(index, item)
    events.append(("response.completed", {"response": response}))

    for number, (name, members) in enumerate(events):
        yield _event({"type": name, "sequence_number": number, **members})


def _item_events(index: int, item: Json) -> Iterator[tuple[str, Json]]:
    place = {"output_index": index, "item_id": item["id"]}
    begun = {**item, "status": "in_progress"}
    begun |= {"content": []} if item["type"] == "message" else {"arguments": ""}
    yield "response.output_item.added", {"output_index": index, "item": begun}

    if item["type"] == "message":
        (part,) = item["content"]
        place["content_index"] = 0
        yield "response.content_part.added", {**place, "part": {**part, "text": ""}}
        for word in words(part["text"]):
            yield "response.output_text.delta", {**place, "delta": word, "logprobs": []}
        yield "response.output_text.done", {**place, "text": part["text"], "logprobs": []}
        yield "response.content_part.done", {**place, "part": part}
    else:
        arguments = item["arguments"]
        yield "response.function_call_arguments.delta", {**place, "delta": arguments}
        done = {**place, "name": item["name"], "arguments": arguments}
        yield "response.function_call_arguments.done", done

    yield "response.output_item.done", {"output_index": index, "item": item}


def _event(data: Json) -> bytes:
    return b"event: " + data["type"].encode() + b"\n" + _data(data)


def _data(data: Json) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"
