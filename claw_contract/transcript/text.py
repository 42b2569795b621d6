"""Messages and responses of every dialect as text for people.

They may come from damaged and hostile documents.

Nothing here raises. Unknown values are printed as JSON, and long ones are cut with a mark. No
control character remains that could move a terminal's cursor, reverse a line or hide words.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from claw_contract.sse import SseReader

MAX_TEXT_CHARS = 4000  # Printed characters of one text
_HARMLESS = "\n\u00a0\u202f\u200d"
"""Not printable according to Python: line breaks, non-breaking spaces, and the joiner of emoji."""


def as_object(value: object) -> dict[str, Any]:
    """Return a JSON object, or an empty one for any other value."""
    return value if isinstance(value, dict) else {}


def as_array(value: object) -> list[Any]:
    """Return a JSON array, or an empty one for any other value."""
    return value if isinstance(value, list) else []


def as_line(value: object) -> str:
    """Return a short text on one line, or "" for any other value."""
    if not isinstance(value, str):
        return ""
    return printable(value[:200]).replace("\n", "\\n")


def printable(value: object, max_chars: int = MAX_TEXT_CHARS) -> str:
    r"""Return text, or any other value as JSON, cut and without control characters.

    Line breaks stay.

    >>> print(printable("a" + chr(27) + "[2J"), printable({"a": [1]}))
    a\x1b[2J {"a": [1]}
    """
    text = value if isinstance(value, str) else _json(value)
    shown = "".join(
        char if char.isprintable() or char in _HARMLESS else _escaped(char)
        for char in text[:max_chars]
    )
    if len(text) <= max_chars:
        return shown
    return f"{shown} … ({len(text)} characters)"


def request_messages(body: object) -> list[Any]:
    """Return the messages of a request; those of OpenAI Responses are items, or one text."""
    document = as_object(body)
    responses_input = document.get("input")
    if isinstance(responses_input, str):
        return [{"role": "user", "content": responses_input}]
    return as_array(document.get("messages", responses_input))


def is_models(value: object) -> bool:
    """Return whether a message, or an item, is one of the model's."""
    message = as_object(value)
    kind = message.get("type")
    return (
        message.get("role") == "assistant"
        or kind == "reasoning"
        or (isinstance(kind, str) and kind.endswith("_call"))
    )


def message_lines(value: object) -> Iterator[str]:
    """Yield a text for each part of one message, or item, with who says it."""
    message = as_object(value)
    kind = as_line(message.get("type"))
    who = as_line(message.get("role")) or ("assistant" if is_models(message) else "somebody")
    if who in {"tool", "function"}:
        call = as_line(message.get("tool_call_id")) or as_line(message.get("name")) or "a call"
        who = f"result of {call}"
    if kind.endswith("_output"):
        who = f"result of {as_line(message.get('call_id')) or 'a call'}"

    is_message = kind in {"", "message"}
    for text in _parts(message) if is_message else _item(kind, message):
        yield f"{who}: {text}"


def response_lines(body: object) -> Iterator[str]:
    """Yield the text of a response or an error, which is JSON or the text of a stream."""
    document = as_object(body)
    if isinstance(body, str):
        yield from _stream(body)
    elif document.get("error"):
        yield f"error: {printable(document['error'])}"
    elif isinstance(document.get("choices"), list):
        for choice in document["choices"]:
            message = as_object(as_object(choice).get("message"))
            yield from message_lines({"role": "assistant", **message})
    elif isinstance(document.get("output"), list):
        for item in document["output"]:
            yield from message_lines(item)
    elif isinstance(document.get("content"), list):
        yield from message_lines({"role": "assistant", **document})
    else:
        yield printable(body)


def _parts(message: dict[str, Any]) -> Iterator[str]:
    content = message.get("content")
    for part in content if isinstance(content, list) else [content]:
        if part not in (None, ""):
            yield _part(part)

    if message.get("refusal"):
        yield f"refuses: {printable(message['refusal'])}"

    calls = [*as_array(message.get("tool_calls"))]
    if message.get("function_call"):  # the older form, one call without an id
        calls.append(message["function_call"])
    for call in calls:
        function = as_object(as_object(call).get("function", call))
        yield _call(function.get("name"), function.get("arguments"))


def _item(kind: str, item: dict[str, Any]) -> Iterator[str]:
    """Yield the text of an item of OpenAI Responses that is no message."""
    if kind in {"function_call", "custom_tool_call"}:
        yield _call(item.get("name"), item.get("arguments", item.get("input")))
    elif kind == "reasoning":
        for part in (*as_array(item.get("summary")), *as_array(item.get("content"))):
            yield f"(thinks) {printable(as_object(part).get('text'))}"
    elif kind.endswith("_output"):
        yield printable(item.get("output"))
    else:
        yield f"({kind})"


def _part(part: object) -> str:
    """Return the text of one part of a message's content, in any dialect."""
    block = as_object(part)
    match block.get("type"):
        case "text" | "input_text" | "output_text" | "refusal":
            return printable(block.get("text", block.get("refusal")))
        case "thinking":
            return f"(thinks) {printable(block.get('thinking'))}"
        case "tool_use":
            return _call(block.get("name"), block.get("input"))
        case "tool_result":
            call = as_line(block.get("tool_use_id")) or "a call"
            return f"result of {call}: {printable(block.get('content'))}"
        case str() as kind:
            return f"({as_line(kind)})"
        case _:
            return printable(part)


def _call(name: object, arguments: object) -> str:
    return f"calls {as_line(name) or 'a tool'} {printable(arguments)}"


def _stream(text: str) -> Iterator[str]:
    """Yield the texts of a stream, each joined from its pieces."""
    events = list(_events(text))
    if not events:
        yield printable(text)
        return

    texts: dict[object, list[str]] = {}
    for event in events:
        for place, piece in _pieces(event):
            texts.setdefault(place, []).append(piece)

    for place, pieces in texts.items():
        who = "error" if place == "error" else "assistant"
        yield f"{who}: {printable(''.join(pieces))}"


def _events(text: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON object of each event of a stream.

    History may hold a stream that was cut or damaged: an event without its blank line at the end
    counts, and one whose data is no JSON document is read line by line.
    """
    stream = text.encode(errors="surrogatepass") + b"\n\n"
    reader = SseReader(max_event_bytes=len(stream))
    for event in reader.feed(stream):
        data = event.data.decode(errors="surrogatepass")
        document = _read(data)
        if document:
            yield document
        else:
            yield from filter(None, map(_read, data.split("\n")))


def _pieces(event: dict[str, Any]) -> Iterator[tuple[object, str]]:
    """Yield the texts of an event, each with the place (a part of the answer) that it belongs to.

    Which dialect an event is of need not be known: their members have different names.
    """
    error = event.get("error") or as_object(event.get("response")).get("error")
    if error:
        yield "error", _json(error)

    yield from _chat_pieces(event)
    yield from _responses_pieces(event)
    yield from _anthropic_pieces(event)


def _chat_pieces(event: dict[str, Any]) -> Iterator[tuple[object, str]]:
    """Yield the texts of an event of OpenAI chat completions."""
    for choice in as_array(event.get("choices")):
        delta = as_object(as_object(choice).get("delta"))
        yield from _texts("text", (delta.get("content"), delta.get("refusal")))

        for call in as_array(delta.get("tool_calls")):
            place = ("call", str(as_object(call).get("index")))
            function = as_object(as_object(call).get("function"))
            name = function.get("name")
            if isinstance(name, str) and name:
                yield place, f"calls {name} "
            yield from _texts(place, (function.get("arguments"),))


def _responses_pieces(event: dict[str, Any]) -> Iterator[tuple[object, str]]:
    """Yield the texts of an event of OpenAI Responses."""
    item = as_object(event.get("item"))
    place = ("item", str(event.get("item_id", item.get("id"))))
    name = item.get("name")
    is_new = event.get("type") == "response.output_item.added"
    if is_new and isinstance(name, str) and name:
        yield place, f"calls {name} "
    yield from _texts(place, (event.get("delta"),))


def _anthropic_pieces(event: dict[str, Any]) -> Iterator[tuple[object, str]]:
    """Yield the texts of an event of Anthropic messages."""
    place = ("block", str(event.get("index")))
    block = as_object(event.get("content_block"))
    delta = as_object(event.get("delta"))
    if block.get("type") == "tool_use":
        yield place, f"calls {block.get('name')} "
    values = (
        block.get("text"),
        delta.get("text"),
        delta.get("thinking"),
        delta.get("partial_json"),
    )
    yield from _texts(place, values)


def _texts(place: object, values: Iterable[object]) -> Iterator[tuple[object, str]]:
    """Yield the place with each value that is a text and not empty."""
    for value in values:
        if isinstance(value, str) and value:
            yield place, value


def _read(data: str) -> dict[str, Any]:
    try:
        return as_object(json.loads(data))
    except (ValueError, RecursionError):
        return {}


def _json(value: object) -> str:
    """Return a value as JSON. It may be of a kind that JSON does not know."""
    try:
        return json.dumps(value, ensure_ascii=False)
    except (ValueError, TypeError, RecursionError):
        return f"(a {type(value).__name__} that can't be shown)"


def _escaped(char: str) -> str:
    return ascii(char)[1:-1]
