"""OpenAI Responses, as a runner's SDK and the provider see them.

A runner keeps an answer as several items; here they travel as one message, ``{"items": […]}``,
until a request is written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from tests.wires import Body, MadeCall, ReplyContent, in_halves, in_words, responses_rules
from tests.wires.responses_rules import items_of

PATH = "/v1/responses"
MODEL = "gpt-test"
TRANSCRIPT = "input"

check = responses_rules.check


def response(*output: Body, **more: Any) -> Body:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "model": MODEL,
        "output": list(output),
        "parallel_tool_calls": True,
        "store": False,
        "usage": {
            "input_tokens": 10,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 5,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 15,
        },
        **more,
    }


def message(text: str, item_id: str = "msg_1") -> Body:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {
        "type": "message",
        "id": item_id,
        "role": "assistant",
        "status": "completed",
        "content": content,
    }


COMPUTER_CALL: Body = {
    "type": "computer_call",
    "id": "cu_1",
    "call_id": "call_c",
    "action": {"type": "click"},
    "status": "completed",
}
LOCAL_SHELL_CALL: Body = {
    "type": "local_shell_call",
    "id": "ls_1",
    "call_id": "call_l",
    "action": {"command": ["ls"]},
    "status": "completed",
}


def function_call(call_id: str, name: str, arguments: str) -> Body:
    item = {
        "type": "function_call",
        "id": f"fc_{call_id}",
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
    }
    return {**item, "status": "completed"}


def reasoning(thought: str) -> Body:
    summary = [{"type": "summary_text", "text": thought}]
    return {
        "type": "reasoning",
        "id": "rs_1",
        "summary": summary,
        "encrypted_content": f"sealed+{thought}==",
    }


def request(messages: Sequence[Body], native: Sequence[str], *, stream: bool, more: Body) -> Body:
    body: Body = {"model": MODEL, "input": items_of(messages), "store": False, **more}
    if native:
        functions = [
            {"type": "function", "name": name, "parameters": {}, "strict": False} for name in native
        ]
        body["tools"] = [*more.get("tools", ()), *functions]
    return body | ({"stream": True} if stream else {})


def user(words: str) -> Body:
    return {"role": "user", "content": words}


def results(given: Sequence[tuple[str, str]]) -> list[Body]:
    return [
        {"type": "function_call_output", "call_id": call_id, "output": output}
        for call_id, output in given
    ]


def choice(word: str, *, parallel: bool | None = None) -> Body:
    named = word if word in {"auto", "required", "none"} else {"type": "function", "name": word}
    return {"tool_choice": named, **({} if parallel is None else {"parallel_tool_calls": parallel})}


def foreign(name: str) -> Body:
    return {"type": "custom", "name": name}


def picture(words: str) -> Body:
    image = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}
    return {"role": "user", "content": [{"type": "input_text", "text": words}, image]}


def echoes(message: Body) -> dict[str, Body]:
    items = message["items"]
    forms = {
        "as it came": items,
        "without ids and status": [_without(item, "id", "status") for item in items],
        "without what it thought": [item for item in items if item["type"] != "reasoning"],
    }
    if [item["type"] for item in items] == ["message"]:
        forms["as text"] = [{"role": "assistant", "content": items[0]["content"][0]["text"]}]
    return {name: {"items": each} for name, each in forms.items()}


def _without(item: Body, *names: str) -> Body:
    return {name: value for name, value in item.items() if name not in names}


def reply(
    text: str, calls: Sequence[MadeCall], more: Body, *, thought: str = "", cut: bool = False
) -> bytes:
    made = [function_call(call.id, call.name, call.arguments) for call in calls]
    output = [*([reasoning(thought)] if thought else []), *([message(text)] if text else []), *made]
    cut_off = (
        {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
        if cut
        else {}
    )
    return json.dumps(response(*output, **cut_off, **more)).encode()


def streamed(body: bytes) -> bytes:
    whole = json.loads(body)
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    events: list[Body] = [
        {"type": f"response.{step}", "response": begun} for step in ("created", "in_progress")
    ]
    for index, item in enumerate(whole["output"]):
        begins, parts = _begin(item)
        steps = [
            {"type": "response.output_item.added", "item": begins},
            *parts,
            {"type": "response.output_item.done", "item": item},
        ]
        events += [{**step, "output_index": index} for step in steps]
    events.append({"type": f"response.{whole['status']}", "response": whole})

    return b"".join(
        f"event: {event['type']}\ndata: {json.dumps({**event, 'sequence_number': number})}\n\n".encode()
        for number, event in enumerate(events)
    )


def _begin(item: Body) -> tuple[Body, list[Body]]:
    """Return an item as its stream begins it, and the events that complete it."""
    match item["type"]:
        case "message":
            parts = [
                event
                for index, part in enumerate(item["content"])
                for event in _part_events(item, index, part)
            ]
            return {**item, "status": "in_progress", "content": []}, parts
        case "function_call":
            kind = "response.function_call_arguments"
            named = {"item_id": item.get("id")}
            deltas = in_halves(item["arguments"])
            return {**item, "status": "in_progress", "arguments": ""}, [
                *({"type": f"{kind}.delta", **named, "delta": each} for each in deltas),
                {"type": f"{kind}.done", **named, "arguments": item["arguments"]},
            ]
        case "reasoning":
            parts = [
                event
                for index, part in enumerate(item["summary"])
                for event in _summary_events(item, index, part)
            ]
            return {**item, "summary": []}, parts
        case _:
            return item, []


def _part_events(item: Body, index: int, part: Body) -> list[Body]:
    if part["type"] != "output_text":
        place = {"item_id": item.get("id"), "content_index": index}
        return [
            {"type": "response.content_part.added", **place, "part": part},
            {"type": "response.content_part.done", **place, "part": part},
        ]

    place = {"item_id": item.get("id"), "content_index": index}
    kind = "response.output_text"
    return [
        {"type": "response.content_part.added", **place, "part": {**part, "text": ""}},
        *(
            {"type": f"{kind}.delta", **place, "delta": word, "logprobs": []}
            for word in in_words(part["text"])
        ),
        {"type": f"{kind}.done", **place, "text": part["text"], "logprobs": []},
        {"type": "response.content_part.done", **place, "part": part},
    ]


def _summary_events(item: Body, index: int, part: Body) -> list[Body]:
    place = {"item_id": item.get("id"), "summary_index": index}
    kind = "response.reasoning_summary"
    return [
        {"type": f"{kind}_part.added", **place, "part": {**part, "text": ""}},
        *(
            {"type": f"{kind}_text.delta", **place, "delta": word}
            for word in in_words(part["text"])
        ),
        {"type": f"{kind}_text.done", **place, "text": part["text"]},
        {"type": f"{kind}_part.done", **place, "part": part},
    ]


def ended(body: bytes) -> str:
    document = json.loads(body)
    reason: str = (document.get("incomplete_details") or {}).get("reason") or document["status"]
    return reason


def error(code: str, message: str) -> Body:
    return {"error": {"message": message, "type": "api_error", "param": None, "code": code}}


def said(body: bytes) -> ReplyContent:
    document = json.loads(body)
    output = document["output"]
    assert document["object"] == "response"
    texts = [
        part.get("text", "")
        for item in output
        if item["type"] == "message"
        for part in item["content"]
    ]
    calls = [
        MadeCall(item["call_id"], item["name"], item["arguments"])
        for item in output
        if item["type"] == "function_call"
    ]
    thoughts = [
        part["text"] for item in output if item["type"] == "reasoning" for part in item["summary"]
    ]
    return ReplyContent("".join(texts), tuple(calls), "".join(thoughts))


def kept(body: bytes) -> Body:
    output = json.loads(body)["output"]
    assert all(isinstance(item["id"], str) and item["id"] for item in output), (
        "strict clients refuse an item without an id"
    )
    return {"items": output}


def usage(body: bytes) -> tuple[int, int]:
    tokens = json.loads(body)["usage"]
    assert tokens["total_tokens"] == tokens["input_tokens"] + tokens["output_tokens"]
    return tokens["input_tokens"], tokens["output_tokens"]


def assembled(stream: bytes) -> bytes:
    events = list(_events(stream))
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    created, in_progress, *between, last = events
    assert (created["type"], in_progress["type"]) == ("response.created", "response.in_progress")
    assert created["response"] == in_progress["response"]
    assert (created["response"]["output"], created["response"]["status"]) == ([], "in_progress")
    assert last["type"] in {"response.completed", "response.incomplete"}
    body = last["response"]
    assert {event["response"]["id"] for event in (created, in_progress, last)} == {body["id"]}
    items: list[Body] = []
    is_open = False
    while between and between[0]["type"] == "response.in_progress":
        del between[0]
    for event in between:
        kind = event["type"].removeprefix("response.")
        assert is_open == (kind != "output_item.added"), "one item at a time"
        if kind == "output_item.added":
            items.append(event["item"])
            is_open = True
        assert event["output_index"] == len(items) - 1, "indexes without gaps"
        if kind == "output_item.done":
            _check_done(items[-1], event["item"])
            items[-1], is_open = event["item"], False
        elif kind != "output_item.added":
            assert event["item_id"] == items[-1]["id"]
            _grow(items[-1], kind, event)
    assert not is_open
    assert items == body["output"]
    return json.dumps(body).encode()


def _events(stream: bytes) -> Iterator[Body]:
    """Yield the events of a stream without comments; each one's name must be its type."""
    assert stream.endswith(b"\n\n")
    assert b"[DONE]" not in stream
    for block in stream.removesuffix(b"\n\n").split(b"\n\n"):
        lines = [line for line in block.split(b"\n") if not line.startswith(b":")]
        if lines:
            name, data = lines
            event = json.loads(data.removeprefix(b"data: "))
            assert name == f"event: {event['type']}".encode()
            yield event


_DELTAS = {
    "output_text.delta": ("content", "content_index", "text"),
    "refusal.delta": ("content", "content_index", "refusal"),
    "reasoning_text.delta": ("content", "content_index", "text"),
    "reasoning_summary_text.delta": ("summary", "summary_index", "text"),
}
"""The member of a part that a delta makes longer: the list of parts, the member
with its place in it, the text.
"""
_PARTS = {
    "content_part": ("content", "content_index", "part"),
    "reasoning_summary_part": ("summary", "summary_index", "part"),
    "output_text.annotation": ("annotations", "annotation_index", "annotation"),
}
_WHOLE = {"function_call_arguments": "arguments", "custom_tool_call_input": "input"}


def _grow(item: Body, kind: str, event: Body) -> None:
    """Add an event to its item, as SDKs do: a delta to what began empty, a part at its place."""
    name, _, step = kind.rpartition(".")
    if kind in _DELTAS:
        parts, place, text = _DELTAS[kind]
        item[parts][event[place]][text] += event["delta"]
    elif name in _WHOLE and step == "delta":
        item[_WHOLE[name]] += event["delta"]
    elif name in _WHOLE:
        assert item[_WHOLE[name]] == event[_WHOLE[name]]
    elif name in _PARTS and step == "added":
        parts, place, member = _PARTS[name]
        holder = item["content"][event["content_index"]] if member == "annotation" else item
        assert event[place] == len(holder[parts])
        holder[parts].append(event[member])
    elif name in _PARTS:
        parts, place, member = _PARTS[name]
        assert item[parts][event[place]] == event[member]
    else:
        parts, place, text = _DELTAS[f"{name}.delta"]
        assert item[parts][event[place]][text] == event[text]


def _check_done(grown: Body, done: Body) -> None:
    """Check that an item's last event says what its parts said.

    Only the last event has what tells how the item ended, and its encrypted content: what the
    first one has of that is not the item's.
    """
    ends = {name: done[name] for name in ("status", "encrypted_content") if name in done}
    begun = {name: value for name, value in grown.items() if name != "encrypted_content"}
    assert {**begun, **ends} == done


def stream_error(stream: bytes) -> bytes | None:
    events = list(_events(stream))
    errors = [event for event in events if event["type"] == "error"]
    if not errors:
        return None
    assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]
    assert events[0]["type"] == "response.created"
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    failed = events[-1]["response"]
    assert failed["status"] == "failed"
    assert failed["error"] == {name: errors[0][name] for name in ("code", "message")}
    code, words = errors[0]["code"], errors[0]["message"]
    if (
        code == "server_error" and ": " in words
    ):  # The API's clients know few codes: ours stands in the message
        code, _, words = words.partition(": ")
    return json.dumps(error(code, words)).encode()


def code(error: bytes) -> str | None:
    told = json.loads(error)["error"]
    assert told.keys() >= {"message", "type", "code", "param"}
    assert told["message"]
    return told["code"]


def parts(messages: Sequence[Body]) -> list[str]:
    found: list[str] = []
    was_assistant = False
    for item in items_of(messages):
        kind = responses_rules.speaker(item)
        if kind != "assistant" or not was_assistant:
            found.append(kind)
        was_assistant = kind == "assistant"
    return found


def answers(messages: Sequence[Body]) -> list[tuple[str, str]]:
    return [
        (item["call_id"], item["output"])
        for item in items_of(messages)
        if item.get("type") == "function_call_output"
    ]


def called(request: Body) -> list[str]:
    return [item["name"] for item in request["input"] if item.get("type") == "function_call"]


def tools(request: Body) -> dict[str, str]:
    return {
        tool["name"]: tool.get("description", "")
        for tool in request.get("tools", ())
        if "name" in tool
    }


def chosen(request: Body) -> tuple[str | None, bool | None]:
    word = request.get("tool_choice")
    if isinstance(word, dict):
        word = word["mode"] if word["type"] == "allowed_tools" else word["name"]
    return word, request.get("parallel_tool_calls")
