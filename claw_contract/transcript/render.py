"""A transcript of one line of history, for a terminal or a browser (docs/spec/inspect.md). Pure.

    turn …                        agent, time, outcome and cost
    runner → cllama               the request
    cllama → openai gpt           the tools offered to the model
    model → cllama                each call with its result: who ran it, or why nobody did
    cllama → runner               the answer

A line of a call that the runner made itself has only its head and that call.

A line may be damaged, hostile, or of another version: unreadable members are left out, and nothing
here raises. Text of peers is behind a bar, so that it cannot be mistaken for ours.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from claw_contract.interventions import CALL_INTERVENTIONS, CODES_NOT_RUN, ROUND_INTERVENTIONS
from claw_contract.transcript import text
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
    return "\n".join(
        [*_head(entry), "", *_request(entry), *_offer(entry), *_rounds(entry), *_response(entry)]
    )


def render_headline(line: object) -> str:
    """Return the turn in one line."""
    entry = as_object(line)
    outcome = f"turn {as_line(entry.get('turn_id')) or '?'} · {_status(entry)}"
    return " · ".join(
        filter(None, (outcome, _labelled(entry, "claw_id", "agent "), as_line(entry.get("ts"))))
    )


def _provider(entry: dict[str, Any]) -> str:
    """Return the provider and model that answered, or "" if neither is known."""
    provider = as_line(entry.get("effective_provider"))
    model = as_line(entry.get("effective_model"))
    return f"{provider} {model}".strip()


def _head(entry: dict[str, Any]) -> Iterator[str]:
    yield render_headline(entry)
    provider = _provider(entry)
    yield " · ".join(
        filter(
            None,
            (
                as_line(entry.get("path")),
                _labelled(entry, "requested_model", "asked for "),
                f"answered by {provider}" if provider else "",
                "as a stream" if entry.get("stream") is True else "",
                "goes on with an earlier attempt" if entry.get("resumed") is True else "",
                _labelled(entry, "digest", "pod ")[: len("pod ") + _DIGEST],
            ),
        )
    )
    usage = as_object(entry.get("usage"))
    cached = _number(usage, "cached_tokens")
    cost = usage.get("reported_cost_usd")
    yield " · ".join(
        filter(
            None,
            (
                _many(_number(usage, "total_rounds"), "model call"),
                f"{_number(usage, 'prompt_tokens')} tokens in"
                + (f" ({cached} cached)" if cached else ""),
                f"{_number(usage, 'completion_tokens')} out",
                f"{_number(entry, 'latency_ms')} ms" if "latency_ms" in entry else "",
                f"${cost:.6f}" if isinstance(cost, int | float) and 0 <= cost < _MAX_NUMBER else "",
            ),
        )
    )


def _request(entry: dict[str, Any]) -> Iterator[str]:
    """Yield the runner's messages since the model's last one."""
    yield "runner → cllama"
    body = entry.get("request_original")
    messages = text.request_messages(body)
    if not messages:
        yield from _barred([_cut_body(body)])
        return
    others = [
        number
        for number, one in enumerate(messages)
        if text.is_models(one) or as_object(one).get("role") in ("system", "developer")
    ]
    first = others[-1] + 1 if others else 0
    first = max(
        first if first < len(messages) else len(messages) - 1, len(messages) - _MAX_MESSAGES
    )
    if first:
        yield from _barred([f"({_many(first, 'earlier message')})"])
    yield from _barred(line for one in messages[first:] for line in text.message_lines(one))


def _offer(entry: dict[str, Any]) -> Iterator[str]:
    provider = _provider(entry)
    yield f"cllama → {provider or 'model'}"
    tools = [as_line(name) for name in as_array(entry.get("tools_offered")) if as_line(name)]
    yield f"  offers {', '.join(tools)}" if tools else "  offers no tools of services"
    for one in as_array(entry.get("tools_withheld")):
        tool = as_object(one)
        name, reason = as_line(tool.get("name")) or as_line(one), as_line(tool.get("reason"))
        yield f"  withholds {name}" + (f": {reason}" if reason else "")
    before, after = (
        text.request_messages(entry.get(name)) for name in ("request_original", "request_effective")
    )
    more = len(after) - len(before)
    if more > 0:
        yield f"  and {_many(more, 'message')} that the runner did not send"


def _rounds(entry: dict[str, Any]) -> Iterator[str]:
    for one in map(as_object, as_array(entry.get("tool_trace"))):
        usage = as_object(one.get("round_usage"))
        tokens = [f"{_number(usage, name)} {name}" for name in _TOKENS if name in usage]
        about = [f"round {_number(one, 'round')}", f"{_number(one, 'wall_time_ms')} ms", *tokens]
        yield f"\n── {' · '.join(about)}"
        calls = [as_object(call) for call in as_array(one.get("tool_calls"))]
        codes = {_code(call) for call in calls}
        yield from (
            f"  intervention: {name}" for code, name in ROUND_INTERVENTIONS.items() if code in codes
        )
        for call in calls:
            yield from _call(call, "model")


def _native_calls(entry: dict[str, Any]) -> Iterator[str]:
    for one in map(as_object, as_array(entry.get("tool_trace"))):
        for call in as_array(one.get("tool_calls")):
            yield from _call(as_object(call), "runner")


def _call(call: dict[str, Any], caller: str) -> Iterator[str]:
    name, code, service = (
        as_line(call.get("name")) or "a tool",
        _code(call),
        as_line(call.get("service")),
    )
    yield f"{caller} → cllama: {name}"
    yield from _barred([text.printable(call.get("arguments"))])
    result = as_object(call.get("result"))
    status = _number(call, "status_code")
    details = [
        f"{_number(call, 'latency_ms')} ms",
        *([f"HTTP {status}"] if status else []),
        *_mcp(call),
        code or "ok",
    ]
    if call.get("ran") is False or code in CODES_NOT_RUN:
        yield f"cllama → {caller}: {code}; nothing ran"
        if code in CALL_INTERVENTIONS:
            yield f"  intervention: {CALL_INTERVENTIONS[code]}:{name}"
    else:
        yield f"cllama → {service or 'service'} → {caller}: {' · '.join(details)}"
    if call.get("duplicate") is True:
        yield f"  a repeat of the call of round {_number(call, 'duplicate_of_round')}"
    yield from _barred(
        [text.printable(result.get("data", result.get("error", call.get("result"))))]
    )


def _mcp(call: dict[str, Any]) -> Iterator[str]:
    """Yield the protocol version, the server and the session of a call over MCP."""
    record = as_object(call.get("mcp"))
    for name, before in (("protocol", "MCP "), ("server", ""), ("session", "session ")):
        if label := _labelled(record, name, before):
            yield label


def _response(entry: dict[str, Any]) -> Iterator[str]:
    response = as_object(entry.get("response"))
    yield f"\ncllama → runner: {_status(entry)}"
    body = response.get("json", response.get("text"))
    if body is None or _is_cut(body):
        yield from _barred([_cut_body(body)])
        return
    yield from _barred(text.response_lines(body))


def _cut_body(body: object) -> str:
    if body in (None, ""):
        return "(nothing)"
    if not _is_cut(body):
        return text.printable(body)
    cut = as_object(body)
    return (
        f"(the beginning of {_number(cut, 'original_bytes')} bytes) "
        f"{text.printable(cut.get('head'))}"
    )


def _is_cut(body: object) -> bool:
    return as_object(body).get("truncated") is True


def _status(entry: dict[str, Any]) -> str:
    code = _number(entry, "status_code")
    return " ".join(
        filter(
            None,
            (as_line(entry.get("status")) or "?", str(code or ""), as_line(entry.get("error"))),
        )
    )


def _code(call: dict[str, Any]) -> str:
    if call.get("status") == "ok":
        return ""
    return as_line(as_object(as_object(call.get("result")).get("error")).get("code")) or "error"


def _barred(texts: Iterable[str]) -> Iterator[str]:
    for each in texts:
        yield from (_BAR + line for line in each.split("\n"))


def _labelled(entry: dict[str, Any], name: str, before: str) -> str:
    return before + as_line(entry[name]) if as_line(entry.get(name)) else ""


def _number(values: dict[str, Any], name: str) -> int:
    value = values.get(name)
    return value if type(value) is int and abs(value) < _MAX_NUMBER else 0


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
