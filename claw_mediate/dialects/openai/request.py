"""OpenAI chat completions, the runner's request: its view."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

import msgspec

from claw_contract.base import JsonObject
from claw_mediate.core.continuity import calls_key, text_key
from claw_mediate.core.session_id import SessionHints
from claw_mediate.dialects.base import RunnerRequest
from claw_mediate.dialects.decode import evidence_of, read
from claw_mediate.dialects.openai.functions import function_key
from claw_mediate.dialects.openai.wire_types import SYSTEM, Message, function_call, text_parts, tool_calls, visible_text


class _Named(msgspec.Struct):
    name: Any = None


class _Tool(msgspec.Struct):
    name: Any = None
    function: _Named | None = None
    custom: _Named | None = None


class _StreamOptions(msgspec.Struct):
    include_usage: Any = None


class _Request(msgspec.Struct):
    messages: list[Message]
    model: str = ""
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    tools: list[_Tool] | None = None
    tool_choice: str | dict[str, Any] | None = None
    functions: list[_Tool] | None = None
    function_call: str | dict[str, Any] | None = None
    n: Any = None
    max_tokens: Any = None
    max_completion_tokens: Any = None
    metadata: Any = None
    prompt_cache_key: Any = None


_read_request = msgspec.json.Decoder(_Request)
READ = frozenset(_Request.__struct_fields__)
"""Members that count: one that stands twice could mean another thing to the provider."""


def read_request(body: bytes) -> RunnerRequest:
    """The view of a runner's request. Raises ``UnreadableRequestError``."""
    view = read(_read_request, body, "chat completion")
    choice = _choice(view)
    return RunnerRequest(
        body=body,
        model=view.model,
        stream=view.stream is True,
        include_usage=bool(view.stream_options and view.stream_options.include_usage is True),
        declared=tuple(filter(None, map(_tool_name, (*(view.tools or ()), *(view.functions or ()))))),
        bypass=_bypass(view, choice),
        choice=choice,
        read_evidence=evidence_of(view.messages, text_parts, _key),
        session=SessionHints(view.metadata, view.prompt_cache_key),
        said=tuple(visible_text(message, "\n") for message in view.messages if message.role == "user"),
        system="\n".join(map(visible_text, takewhile(lambda message: message.role in SYSTEM, view.messages))),
        most_tokens=_count(view.max_completion_tokens) or _count(view.max_tokens),
        legacy=bool(view.functions) and not view.tools,
    )


def _choice(view: _Request) -> JsonObject | str | None:
    """The choice of tools, also where it is told as one of functions."""
    if view.tool_choice is None and isinstance(view.function_call, dict):
        return {"type": "function", "function": view.function_call}
    return view.function_call if view.tool_choice is None else view.tool_choice


def _bypass(view: _Request, choice: JsonObject | str | None) -> str | None:
    if choice == "none":
        return "tool_choice_none"
    return "several_choices_not_mediated" if view.n not in (None, 1) else None


def _count(number: object) -> int | None:
    return number if type(number) is int else None


def _tool_name(tool: _Tool) -> str | None:
    inner = tool.function or tool.custom
    name = inner.name if inner and inner.name else tool.name
    return name if isinstance(name, str) else None


def _key(message: Message, text: str) -> str:
    if made := tool_calls(message):
        return calls_key(call.id if isinstance(call.id, str) else "" for call in made)
    function = function_call(message)
    return function_key(function) if function else text_key(text)
