"""What was said in a request or a response of either dialect, as text to be read. For damaged and hostile documents too.

Nothing here raises, whatever it is given; what is not known is shown as JSON, what is long is cut with a mark, and no
control character is left that could move a terminal's cursor, turn a line around or hide words.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

MAX_TEXT_CHARS = 4000
"""Characters of one text that are shown."""
_KEPT = "\n\u00a0\u202f\u200d"
"""Not printable to Python, and harmless: line breaks, spaces that don't break, and what joins the parts of an emoji."""


def as_object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def as_array(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def as_line(value: object) -> str:
    """A short value on one line; "" for what is no text."""
    return printable(value[:200]).replace("\n", "\\n") if isinstance(value, str) else ""


def printable(value: object, most: int = MAX_TEXT_CHARS) -> str:
    r"""Text, or any other value as JSON, cut and without control characters. Lines stay lines.

    >>> print(shown("a" + chr(27) + "[2J"), shown({"a": [1]}))
    a\x1b[2J {"a": [1]}
    """
    text = value if isinstance(value, str) else _json(value)
    more = f" … ({len(text)} characters)" if len(text) > most else ""
    return "".join(char if char.isprintable() or char in _KEPT else _escaped(char) for char in text[:most]) + more


def message_lines(value: object) -> Iterator[str]:
    """One message, a line or more for each of its parts."""
    said = as_object(value)
    who = as_line(said.get("role")) or "somebody"
    if who in {"tool", "function"}:
        who = f"result of {as_line(said.get('tool_call_id')) or as_line(said.get('name')) or 'a call'}"
    for text in _parts(said):
        yield f"{who}: {text}"


def response_lines(body: object) -> Iterator[str]:
    """The answer of a model or an error, as JSON or as the text of a stream."""
    document = as_object(body)
    if isinstance(body, str):
        yield from _stream(body)
    elif "error" in document:
        yield f"error: {printable(document['error'])}"
    elif isinstance(document.get("choices"), list):
        for choice in document["choices"]:
            yield from message_lines({"role": "assistant", **as_object(as_object(choice).get("message"))})
    elif isinstance(document.get("content"), list):
        yield from message_lines({"role": "assistant", **document})
    else:
        yield printable(body)


def _parts(said: dict[str, Any]) -> Iterator[str]:
    content = said.get("content")
    for part in content if isinstance(content, list) else [content]:
        if part not in (None, ""):
            yield _part(part)
    if said.get("refusal"):
        yield f"refuses: {printable(said['refusal'])}"
    for call in (*as_array(said.get("tool_calls")), *([said["function_call"]] if said.get("function_call") else ())):
        function = as_object(as_object(call).get("function", call))
        yield _call(function.get("name"), function.get("arguments"))


def _part(part: object) -> str:
    block = as_object(part)
    match block.get("type"):
        case "text" | "refusal":
            return printable(block.get("text", block.get("refusal")))
        case "thinking":
            return f"(thinks) {printable(block.get('thinking'))}"
        case "tool_use":
            return _call(block.get("name"), block.get("input"))
        case "tool_result":
            return f"result of {as_line(block.get('tool_use_id')) or 'a call'}: {printable(block.get('content'))}"
        case str() as kind:
            return f"({as_line(kind)})"
        case _:
            return printable(part)


def _call(name: object, arguments: object) -> str:
    return f"calls {as_line(name) or 'a tool'} {printable(arguments)}"


def _stream(text: str) -> Iterator[str]:
    """The events of a stream put together; what is no stream as it is."""
    events = [event for line in text.splitlines() if line.startswith("data:") and (event := _read(line[5:]))]
    if not events:
        yield printable(text)
        return
    said: dict[object, list[str]] = {}
    for event in events:
        for place, piece in _pieces(event):
            said.setdefault(place, []).append(piece)
    for place, pieces in said.items():
        yield f"{'error' if place == 'error' else 'assistant'}: {printable(''.join(pieces))}"


def _pieces(event: dict[str, Any]) -> Iterator[tuple[object, str]]:
    """What an event adds, by where it belongs."""
    if "error" in event:
        yield "error", _json(event["error"])
    for choice in as_array(event.get("choices")):  # OpenAI
        delta = as_object(as_object(choice).get("delta"))
        yield from _texts("text", (delta.get("content"), delta.get("refusal")))
        for call in as_array(delta.get("tool_calls")):
            function = as_object(as_object(call).get("function"))
            place = ("call", str(as_object(call).get("index")))
            yield from ((place, f"calls {name} ") for _, name in _texts(place, (function.get("name"),)))
            yield from _texts(place, (function.get("arguments"),))
    place = ("block", str(event.get("index")))  # Anthropic
    block, delta = as_object(event.get("content_block")), as_object(event.get("delta"))
    if block.get("type") == "tool_use":
        yield place, f"calls {block.get('name')} "
    yield from _texts(place, (block.get("text"), delta.get("text"), delta.get("thinking"), delta.get("partial_json")))


def _texts(place: object, values: Iterable[object]) -> Iterator[tuple[object, str]]:
    yield from ((place, value) for value in values if isinstance(value, str) and value)


def _read(data: str) -> dict[str, Any]:
    try:
        return as_object(json.loads(data))
    except (ValueError, RecursionError):
        return {}


def _json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (ValueError, TypeError, RecursionError):
        return f"(a {type(value).__name__} that can't be shown)"


def _escaped(char: str) -> str:
    return ascii(char)[1:-1]
