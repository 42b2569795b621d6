"""A transcript of one line of history, for a terminal or a browser (docs/spec/inspect.md). Pure.

    turn …                        agent, time, outcome and cost
    runner → cllama               the request
    cllama → openai gpt           the tools offered to the model
    ── round 1                    what its reply showed the runner, in a live turn
    model → cllama                each call with its result: who ran it, or why nobody did
    cllama → runner               the answer

The transcript of a call that the runner made at the broker has only the head and that call.

A line may be damaged, hostile, or of another version: unreadable members are left out, and nothing
here raises. Text of peers stands after a bar, so that it cannot be mistaken for ours.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from claw_contract.interventions import CALL_INTERVENTIONS, CODES_NOT_RUN, ROUND_INTERVENTIONS
from claw_contract.transcript import text
from claw_contract.transcript.shown import AnswerParts, ShownSize, cut_answer
from claw_contract.transcript.text import as_array, as_line, as_object

_BAR = "  │ "
_DIGEST = 12  # Printed characters of a pod's digest
_MAX_MESSAGES = 20  # Printed messages of the runner: the last ones
_MAX_NUMBER = 10**15  # Python refuses to print integers that are too long
_TOKENS = ("prompt_tokens", "completion_tokens", "input_tokens", "output_tokens")


def render_transcript(line: object) -> str:
    """Return the transcript of one line of history, which is parsed JSON."""
    entry = as_object(line)
    if not entry:
        return "this is not a line of history"
    if entry.get("delivery") == "native":
        return "\n".join([*_head(entry), "", *_native_calls(entry)])

    shown = _cut_shown(entry)
    lines = [
        *_head(entry),
        "",
        *_request(entry),
        *_offer(entry),
        *_rounds(entry, shown.rounds),
        *_response(entry, shown.rest),
    ]
    return "\n".join(lines)


def render_headline(line: object) -> str:
    """Return the turn in one line."""
    entry = as_object(line)
    turn = as_line(entry.get("turn_id")) or "?"
    return _join(
        f"turn {turn} · {_status(entry)}",
        _labelled(entry, "claw_id", "agent "),
        as_line(entry.get("ts")),
    )


def _provider(entry: dict[str, Any]) -> str:
    """Return the provider and model that answered, or "" if neither is known."""
    provider = as_line(entry.get("effective_provider"))
    model = as_line(entry.get("effective_model"))
    return f"{provider} {model}".strip()


def _head(entry: dict[str, Any]) -> Iterator[str]:
    yield render_headline(entry)

    provider = _provider(entry)
    digest = as_line(entry.get("digest"))[:_DIGEST]
    yield _join(
        as_line(entry.get("path")),
        _labelled(entry, "requested_model", "asked for "),
        f"answered by {provider}" if provider else "",
        "as a stream" if entry.get("stream") is True else "",
        "goes on with an earlier attempt" if entry.get("resumed") is True else "",
        f"pod {digest}" if digest else "",
    )

    usage = as_object(entry.get("usage"))
    tokens_in = f"{_number(usage, 'prompt_tokens')} tokens in"
    cached = _number(usage, "cached_tokens")
    if cached:
        tokens_in += f" ({cached} cached)"

    cost = usage.get("reported_cost_usd")
    has_cost = isinstance(cost, int | float) and 0 <= cost < _MAX_NUMBER
    yield _join(
        _many(_number(usage, "total_rounds"), "model call"),
        tokens_in,
        f"{_number(usage, 'completion_tokens')} out",
        f"{_number(entry, 'latency_ms')} ms" if "latency_ms" in entry else "",
        f"${cost:.6f}" if has_cost else "",
    )


def _request(entry: dict[str, Any]) -> Iterator[str]:
    """Yield the runner's messages since the model's last one."""
    yield "runner → cllama"
    body = entry.get("request_original")
    messages = text.request_messages(body)
    if not messages:
        yield from _barred([_cut_body(body)])
        return

    first = _first_new_message(messages)
    if first:
        yield from _barred([f"({_many(first, 'earlier message')})"])
    for message in messages[first:]:
        yield from _barred(text.message_lines(message))


def _first_new_message(messages: list[Any]) -> int:
    """Return the index of the first message to print: after the model's last one.

    At least one message is printed, and at most ``_MAX_MESSAGES``.
    """
    first = 0
    for index, message in enumerate(messages):
        is_instruction = as_object(message).get("role") in ("system", "developer")
        if is_instruction or text.is_models(message):
            first = index + 1

    if first == len(messages):
        first -= 1
    return max(first, len(messages) - _MAX_MESSAGES)


def _offer(entry: dict[str, Any]) -> Iterator[str]:
    """Yield the tools that the model was offered, and what else its request was given."""
    yield f"cllama → {_provider(entry) or 'model'}"

    tools = [as_line(name) for name in as_array(entry.get("tools_offered")) if as_line(name)]
    yield f"  offers {', '.join(tools)}" if tools else "  offers no tools of services"

    for withheld in as_array(entry.get("tools_withheld")):
        tool = as_object(withheld)
        name = as_line(tool.get("name")) or as_line(withheld)
        reason = as_line(tool.get("reason"))
        yield f"  withholds {name}: {reason}" if reason else f"  withholds {name}"

    before = text.request_messages(entry.get("request_original"))
    after = text.request_messages(entry.get("request_effective"))
    if len(after) > len(before):
        yield f"  and {_many(len(after) - len(before), 'message')} that the runner did not send"


def _cut_shown(entry: dict[str, Any]) -> AnswerParts:
    """Return what the rounds showed of the answer, and the rest of it.

    Of a turn without an answer that is the text which was shown, also by its last reply.
    """
    response = as_object(entry.get("response"))
    answer = response.get("shown", response.get("json", response.get("text")))
    trace = map(as_object, as_array(entry.get("tool_trace")))
    sizes = [
        ShownSize(max(_number(past, "shown"), 0), max(_number(past, "shown_reasoning"), 0))
        for past in trace
    ]
    return cut_answer(answer, sizes)


def _rounds(entry: dict[str, Any], shown: Sequence[Sequence[Any]]) -> Iterator[str]:
    trace = map(as_object, as_array(entry.get("tool_trace")))
    for past, parts in zip(trace, shown, strict=True):
        usage = as_object(past.get("round_usage"))
        number = f"round {_number(past, 'round')}"
        time = f"{_number(past, 'wall_time_ms')} ms"
        tokens = [f"{_number(usage, name)} {name}" for name in _TOKENS if name in usage]
        characters = _number(past, "shown") + _number(past, "shown_reasoning")
        count = [f"{_many(characters, 'character')} shown"] if characters else []
        yield f"\n── {' · '.join([number, time, *tokens, *count])}"
        yield from _shown(parts)

        calls = [as_object(call) for call in as_array(past.get("tool_calls"))]
        codes = {_code(call) for call in calls}
        for code, name in ROUND_INTERVENTIONS.items():
            if code in codes:
                yield f"  intervention: {name}"
        for call in calls:
            yield from _call(call, "model")


def _native_calls(entry: dict[str, Any]) -> Iterator[str]:
    for past in map(as_object, as_array(entry.get("tool_trace"))):
        for call in as_array(past.get("tool_calls")):
            yield from _call(as_object(call), "runner")


def _call(call: dict[str, Any], caller: str) -> Iterator[str]:
    name = as_line(call.get("name")) or "a tool"
    code = _code(call)
    yield f"{caller} → cllama: {name}"
    yield from _barred([text.printable(call.get("arguments"))])

    if call.get("ran") is False or code in CODES_NOT_RUN:
        yield f"cllama → {caller}: {code}; nothing ran"
        if code in CALL_INTERVENTIONS:
            yield f"  intervention: {CALL_INTERVENTIONS[code]}:{name}"
    else:
        service = as_line(call.get("service")) or "service"
        status = _number(call, "status_code")
        time = f"{_number(call, 'latency_ms')} ms"
        http = f"HTTP {status}" if status else ""
        yield f"cllama → {service} → {caller}: {_join(time, http, *_mcp(call), code or 'ok')}"

    if call.get("duplicate") is True:
        yield f"  a repeat of the call of round {_number(call, 'duplicate_of_round')}"

    shown = call.get("result")
    result = as_object(shown)
    if "data" in result:
        shown = result["data"]
    elif "error" in result:
        shown = result["error"]
    yield from _barred([text.printable(shown)])


def _mcp(call: dict[str, Any]) -> Iterator[str]:
    """Yield the protocol version, the server and the session of a call over MCP."""
    record = as_object(call.get("mcp"))
    for name, before in (("protocol", "MCP "), ("server", ""), ("session", "session ")):
        if label := _labelled(record, name, before):
            yield label


def _shown(parts: Iterable[Any]) -> Iterator[str]:
    """Yield what the runner was shown, in the words of its messages or items."""
    for part in parts:
        yield from _barred(text.message_lines({**as_object(part), "role": "shown"}))


def _response(entry: dict[str, Any], rest: object) -> Iterator[str]:
    """Yield the runner's response. ``rest``: what the rounds had not shown of it before."""
    response = as_object(entry.get("response"))
    yield f"\ncllama → runner: {_status(entry)}"
    body = response.get("json", response.get("text"))
    if "shown" in response:
        if isinstance(rest, str):
            yield from _shown([{"content": rest}])
        else:
            yield from _barred([f"shown: {_cut_body(rest)}"])
    else:
        body = rest

    if body is None or _is_cut(body):
        yield from _barred([_cut_body(body)])
        return
    yield from _barred(text.response_lines(body))


def _cut_body(body: object) -> str:
    """Return a body as text, or the beginning that history has of it."""
    if body in (None, ""):
        return "(nothing)"
    if not _is_cut(body):
        return text.printable(body)

    cut = as_object(body)
    size = _number(cut, "original_bytes")
    return f"(the beginning of {size} bytes) {text.printable(cut.get('head'))}"


def _is_cut(body: object) -> bool:
    return as_object(body).get("truncated") is True


def _status(entry: dict[str, Any]) -> str:
    status = as_line(entry.get("status")) or "?"
    code = str(_number(entry, "status_code") or "")
    error = as_line(entry.get("error"))
    return " ".join(filter(None, (status, code, error)))


def _code(call: dict[str, Any]) -> str:
    """Return the code of a call's error, or "" if it succeeded."""
    if call.get("status") == "ok":
        return ""
    error = as_object(as_object(call.get("result")).get("error"))
    return as_line(error.get("code")) or "error"


def _barred(texts: Iterable[str]) -> Iterator[str]:
    for each in texts:
        yield from (_BAR + line for line in each.split("\n"))


def _join(*parts: str) -> str:
    """Return the parts that are not empty, with dots between them."""
    return " · ".join(filter(None, parts))


def _labelled(entry: dict[str, Any], name: str, before: str) -> str:
    return before + as_line(entry[name]) if as_line(entry.get(name)) else ""


def _number(values: dict[str, Any], name: str) -> int:
    value = values.get(name)
    return value if type(value) is int and abs(value) < _MAX_NUMBER else 0


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
