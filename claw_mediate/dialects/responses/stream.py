"""A finished response of the Responses API as one well-formed stream
(docs/spec/responses.md section 7).

``sequence_number`` counts every event from 0, ``output_index`` the items; ids are the same in all
events. What we do not know travels whole. A stream that began before its response was there keeps
the id with which it began.
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
"""Error codes that runners know. Any other one is told in the message."""
_NO_USAGE: Final = {
    "input_tokens": 0,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 0,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 0,
}

type _Event = dict[str, Any]


def stream(
    body: bytes, request: RunnerRequest, opening: StreamOpening | None = None
) -> Iterator[bytes]:
    del request
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
    status = string_member(response, "status") or "completed"
    whole: _Event = {"status": "completed", **as_raw(response)}
    if response.get("usage", b"null") == b"null":  # Strict clients read its numbers
        whole["usage"] = _NO_USAGE
    yield _write(numbers, {"type": _TERMINAL.get(status, "response.completed"), "response": whole})


def keepalive(note: str, kind: Keepalive, opening: StreamOpening) -> bytes:
    """Return a comment, which every SDK skips; native: the events that open the
    stream, or the last of them again.
    """
    if kind == "comment":
        return sse.comment(note)
    numbers, response = count(_events_sent(opening)), _opened(opening)
    names = (
        ["response.in_progress"] if opening.beats else ["response.created", "response.in_progress"]
    )
    return b"".join(_write(numbers, {"type": name, "response": response}) for name in names)


def stream_error(error: bytes, opening: StreamOpening) -> bytes:
    """Return the two events of an error: JavaScript's clients read the first, Codex the second.

    ``response.created`` stands before them where it was not sent yet: strict clients read nothing
    else first.
    """
    details = msgspec.json.decode(error).get("error") or {}
    code, message = (
        str(details.get("code") or "server_error"),
        str(details.get("message") or "the request failed"),
    )
    if code not in _CODES:
        code, message = "server_error", f"{code}: {message}"
    told = {"code": code, "message": message}
    numbers, response = count(_events_sent(opening)), _opened(opening)
    events: list[_Event] = (
        [] if opening.beats else [{"type": "response.created", "response": response}]
    )
    events.append({"type": "error", **told, "param": None})
    events.append(
        {"type": "response.failed", "response": {**response, "status": "failed", "error": told}}
    )
    return b"".join(_write(numbers, event) for event in events)


def _events_sent(opening: StreamOpening | None) -> int:
    return opening.beats + 1 if opening is not None and opening.beats else 0


def _opened(opening: StreamOpening) -> _Event:
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
    return sse.event(
        msgspec.json.encode({"type": kind, "sequence_number": next(numbers), **event}), kind
    )


def _item_events(item: Members) -> Iterator[_Event]:
    """Yield the events of one item, without what all have in common."""
    item_id = string_member(item, "id")
    empty: _Event
    match string_member(item, "type"):
        case "message" if _is_array(item.get("content")):
            empty, own = {"content": []}, _content_events(item)
        case "reasoning":
            empty, own = _emptied(item, "summary", "content"), _reasoning_events(item)
        case "function_call" if string_member(item, "arguments") is not None:
            name = {"name": msgspec.Raw(item["name"])} if "name" in item else {}
            empty, own = (
                {"arguments": ""},
                _text_events(item, "response.function_call_arguments", "arguments", name),
            )
        case "custom_tool_call" if string_member(item, "input") is not None:
            empty, own = (
                {"input": ""},
                _text_events(item, "response.custom_tool_call_input", "input", {}),
            )
        case _:
            empty, own = {}, iter(())
    begun = {"status": "in_progress"} if "status" in item else {}
    yield {"type": "response.output_item.added", "item": {**as_raw(item), **empty, **begun}}
    for event in own:
        kind = event.pop("type")
        yield {"type": kind, "item_id": item_id, **event}
    yield {"type": "response.output_item.done", "item": as_raw(item)}


def _emptied(item: Members, *names: str) -> _Event:
    return {name: [] for name in names if _is_array(item.get(name))}


def _is_array(raw: bytes | None) -> bool:
    return raw is not None and raw[:1] == b"["


def _text_events(item: Members, kind: str, member: str, more: _Event) -> Iterator[_Event]:
    whole = string_member(item, member) or ""
    for piece in sse.split_text(whole):
        yield {"type": f"{kind}.delta", "delta": piece}
    yield {"type": f"{kind}.done", member: whole, **more}


def _content_events(item: Members) -> Iterator[_Event]:
    for index, raw in enumerate(split_array(item["content"])):
        part, place = split_object(raw), {"content_index": index}
        kind = string_member(part, "type")
        text = string_member(part, "text")
        refusal = string_member(part, "refusal")
        if kind == "refusal" and refusal is not None:
            yield {
                "type": "response.content_part.added",
                **place,
                "part": {**as_raw(part), "refusal": ""},
            }
            for piece in sse.split_text(refusal):
                yield {"type": "response.refusal.delta", **place, "delta": piece}
            yield {"type": "response.refusal.done", **place, "refusal": refusal}
        elif kind == "output_text" and text is not None:
            empty = {**as_raw(part), "text": "", **_emptied(part, "annotations")}
            yield {"type": "response.content_part.added", **place, "part": empty}
            yield from ({**each, **place} for each in _output_text_events(part, text))
        else:
            yield {"type": "response.content_part.added", **place, "part": as_raw(part)}
        yield {"type": "response.content_part.done", **place, "part": as_raw(part)}


def _output_text_events(part: Members, text: str) -> Iterator[_Event]:
    for piece in sse.split_text(text):
        yield {"type": "response.output_text.delta", "delta": piece, "logprobs": []}
    annotations = split_array(part["annotations"]) if _is_array(part.get("annotations")) else []
    for index, annotation in enumerate(annotations):
        yield {
            "type": "response.output_text.annotation.added",
            "annotation_index": index,
            "annotation": msgspec.Raw(annotation),
        }
    yield {"type": "response.output_text.done", "text": text, "logprobs": []}


def _reasoning_events(item: Members) -> Iterator[_Event]:
    for index, raw in enumerate(
        split_array(item["summary"]) if _is_array(item.get("summary")) else []
    ):
        part, place = split_object(raw), {"summary_index": index}
        text = string_member(part, "text") or ""
        yield {
            "type": "response.reasoning_summary_part.added",
            **place,
            "part": {**as_raw(part), "text": ""},
        }
        for piece in sse.split_text(text):
            yield {"type": "response.reasoning_summary_text.delta", **place, "delta": piece}
        yield {"type": "response.reasoning_summary_text.done", **place, "text": text}
        yield {"type": "response.reasoning_summary_part.done", **place, "part": as_raw(part)}
    for index, raw in enumerate(
        split_array(item["content"]) if _is_array(item.get("content")) else []
    ):
        part, place = split_object(raw), {"content_index": index}
        text = string_member(part, "text") or ""
        yield {"type": "response.content_part.added", **place, "part": {**as_raw(part), "text": ""}}
        for piece in sse.split_text(text):
            yield {"type": "response.reasoning_text.delta", **place, "delta": piece}
        yield {"type": "response.reasoning_text.done", **place, "text": text}
        yield {"type": "response.content_part.done", **place, "part": as_raw(part)}
