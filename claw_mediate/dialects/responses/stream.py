"""A finished response of the Responses API as one well-formed stream.

docs/spec/responses.md section 7. ``sequence_number`` counts all events from 0, and ``output_index``
the items; ids are the same in all events. What we do not know is sent whole. A stream that began
before its response was there keeps the id with which it began.
"""

import hashlib
from collections.abc import Iterator
from itertools import count
from typing import Any, Final

import msgspec

from claw_mediate.dialects import sse
from claw_mediate.dialects.base import Keepalive, RunnerRequest, StreamOpening
from claw_mediate.dialects.members import (
    Members,
    as_raw,
    split_array,
    split_object,
    string_member,
    without_line_breaks,
)

ID_PREFIX = "resp_"
_TERMINAL: Final = {"incomplete": "response.incomplete", "failed": "response.failed"}
_EMPTY: Final[dict[str, Any]] = {
    "output": [],
    "usage": None,
    "error": None,
    "incomplete_details": None,
}
_CODES: Final = {
    "server_error",
    "rate_limit_exceeded",
    "context_length_exceeded",
    "insufficient_quota",
    "invalid_prompt",
}
"""Error codes that runners know. Any other code goes into the message."""
_NO_USAGE: Final = {
    "input_tokens": 0,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 0,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 0,
}

type _Event = dict[str, Any]


def stream(
    body: bytes, _request: RunnerRequest, opening: StreamOpening | None = None
) -> Iterator[bytes]:
    """Yield the events of a response. ``opening``: the head of the stream, if it has begun."""
    response = split_object(without_line_breaks(body))
    if opening is not None:
        response["id"] = msgspec.json.encode(opening.id)
    elif not string_member(response, "id"):
        response["id"] = msgspec.json.encode(ID_PREFIX + hashlib.sha256(body).hexdigest()[:24])

    numbers = count(_events_sent(opening))
    if opening is None:
        started = {**as_raw(response), **_EMPTY, "status": "in_progress"}
        yield _write(numbers, {"type": "response.created", "response": started})
        yield _write(numbers, {"type": "response.in_progress", "response": started})

    for index, item in enumerate(split_array(response["output"])):
        for event in _item_events(split_object(item)):
            kind = event.pop("type")
            yield _write(numbers, {"type": kind, "output_index": index, **event})

    whole: _Event = {"status": "completed", **as_raw(response)}
    if response.get("usage", b"null") == b"null":
        # Strict clients read its numbers.
        whole["usage"] = _NO_USAGE
    status = string_member(response, "status") or "completed"
    yield _write(numbers, {"type": _TERMINAL.get(status, "response.completed"), "response": whole})


def keepalive(note: str, kind: Keepalive, opening: StreamOpening) -> bytes:
    """Return a comment, which every SDK skips.

    Of the native kind: the events that open the stream; later the last of them again.
    """
    if kind == "comment":
        return sse.comment(note)

    numbers = count(_events_sent(opening))
    response = _opened(opening)
    events = b""
    if not opening.beats:
        events += _write(numbers, {"type": "response.created", "response": response})
    events += _write(numbers, {"type": "response.in_progress", "response": response})
    return events


def stream_error(error: bytes, opening: StreamOpening) -> bytes:
    """Return the two events of an error: clients in JavaScript read the first, Codex the second.

    ``response.created`` comes before them unless it was sent already: strict clients expect it
    first.
    """
    details = msgspec.json.decode(error).get("error") or {}
    code = str(details.get("code") or "server_error")
    message = str(details.get("message") or "the request failed")
    if code not in _CODES:
        message = f"{code}: {message}"
        code = "server_error"
    shown = {"code": code, "message": message}

    numbers = count(_events_sent(opening))
    response = _opened(opening)
    failed = {**response, "status": "failed", "error": shown}
    events = b""
    if not opening.beats:
        events += _write(numbers, {"type": "response.created", "response": response})
    events += _write(numbers, {"type": "error", **shown, "param": None})
    events += _write(numbers, {"type": "response.failed", "response": failed})
    return events


def _events_sent(opening: StreamOpening | None) -> int:
    """Return how many events were sent before: the first keepalive is two of them."""
    if opening is None or not opening.beats:
        return 0
    return opening.beats + 1


def _opened(opening: StreamOpening) -> _Event:
    """Return a response as it is when a stream begins."""
    return {
        "id": opening.id,
        "object": "response",
        "created_at": opening.created,
        "model": opening.model,
        "status": "in_progress",
        **_EMPTY,
        **dict.fromkeys(("instructions", "metadata", "temperature", "top_p")),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }


def _write(numbers: Iterator[int], event: _Event) -> bytes:
    kind = event.pop("type")
    data = msgspec.json.encode({"type": kind, "sequence_number": next(numbers), **event})
    return sse.event(data, kind)


def _item_events(item: Members) -> Iterator[_Event]:
    """Yield the events of one item, without their numbers and the item's index."""
    empty: _Event = {}
    parts: Iterator[_Event] = iter(())
    match string_member(item, "type"):
        case "message" if _is_array(item, "content"):
            empty = {"content": []}
            parts = _content_events(item)
        case "reasoning":
            empty = _emptied(item, "summary", "content")
            parts = _reasoning_events(item)
        case "function_call" if string_member(item, "arguments") is not None:
            empty = {"arguments": ""}
            name = {"name": msgspec.Raw(item["name"])} if "name" in item else {}
            parts = _text_events(item, "response.function_call_arguments", "arguments", name)
        case "custom_tool_call" if string_member(item, "input") is not None:
            empty = {"input": ""}
            parts = _text_events(item, "response.custom_tool_call_input", "input", {})

    started: _Event = {**as_raw(item), **empty}
    if "status" in item:
        started["status"] = "in_progress"
    yield {"type": "response.output_item.added", "item": started}

    item_id = string_member(item, "id")
    for event in parts:
        kind = event.pop("type")
        yield {"type": kind, "item_id": item_id, **event}

    yield {"type": "response.output_item.done", "item": as_raw(item)}


def _emptied(item: Members, *names: str) -> _Event:
    """Return those of the members that are arrays, empty."""
    return {name: [] for name in names if _is_array(item, name)}


def _is_array(members: Members, name: str) -> bool:
    return members.get(name, b"")[:1] == b"["


def _array_member(members: Members, name: str) -> list[bytes]:
    """Return the elements of a member; [] if it is no array."""
    return split_array(members[name]) if _is_array(members, name) else []


def _text_events(item: Members, kind: str, member: str, more: _Event) -> Iterator[_Event]:
    """Yield the events of a text. ``more``: members of the last one."""
    text = string_member(item, member) or ""
    for delta in sse.split_text(text):
        yield {"type": f"{kind}.delta", "delta": delta}
    yield {"type": f"{kind}.done", member: text, **more}


def _content_events(item: Members) -> Iterator[_Event]:
    """Yield the events of a message's parts."""
    for index, raw in enumerate(split_array(item["content"])):
        part = split_object(raw)
        place = {"content_index": index}
        kind = string_member(part, "type")
        text = string_member(part, "text")
        refusal = string_member(part, "refusal")

        if kind == "refusal" and refusal is not None:
            started = {**as_raw(part), "refusal": ""}
            yield {"type": "response.content_part.added", **place, "part": started}
            for delta in sse.split_text(refusal):
                yield {"type": "response.refusal.delta", **place, "delta": delta}
            yield {"type": "response.refusal.done", **place, "refusal": refusal}
        elif kind == "output_text" and text is not None:
            started = {**as_raw(part), "text": "", **_emptied(part, "annotations")}
            yield {"type": "response.content_part.added", **place, "part": started}
            for event in _output_text_events(part, text):
                yield {**event, **place}
        else:
            yield {"type": "response.content_part.added", **place, "part": as_raw(part)}

        yield {"type": "response.content_part.done", **place, "part": as_raw(part)}


def _output_text_events(part: Members, text: str) -> Iterator[_Event]:
    for delta in sse.split_text(text):
        yield {"type": "response.output_text.delta", "delta": delta, "logprobs": []}

    for index, annotation in enumerate(_array_member(part, "annotations")):
        yield {
            "type": "response.output_text.annotation.added",
            "annotation_index": index,
            "annotation": msgspec.Raw(annotation),
        }
    yield {"type": "response.output_text.done", "text": text, "logprobs": []}


def _reasoning_events(item: Members) -> Iterator[_Event]:
    """Yield the events of the parts of reasoning: of its summary, then of its content."""
    for index, raw in enumerate(_array_member(item, "summary")):
        part = split_object(raw)
        place = {"summary_index": index}
        text = string_member(part, "text") or ""

        started = {**as_raw(part), "text": ""}
        yield {"type": "response.reasoning_summary_part.added", **place, "part": started}
        for delta in sse.split_text(text):
            yield {"type": "response.reasoning_summary_text.delta", **place, "delta": delta}
        yield {"type": "response.reasoning_summary_text.done", **place, "text": text}
        yield {"type": "response.reasoning_summary_part.done", **place, "part": as_raw(part)}

    for index, raw in enumerate(_array_member(item, "content")):
        part = split_object(raw)
        place = {"content_index": index}
        text = string_member(part, "text") or ""

        started = {**as_raw(part), "text": ""}
        yield {"type": "response.content_part.added", **place, "part": started}
        for delta in sse.split_text(text):
            yield {"type": "response.reasoning_text.delta", **place, "delta": delta}
        yield {"type": "response.reasoning_text.done", **place, "text": text}
        yield {"type": "response.content_part.done", **place, "part": as_raw(part)}
