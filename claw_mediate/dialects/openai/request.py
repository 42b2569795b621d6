"""OpenAI chat completions, the runner's request: its view, and the edited body for the provider."""

from collections.abc import Sequence
from functools import lru_cache, partial
from itertools import takewhile
from typing import Any

import msgspec

from claw_contract.base import JsonObject
from claw_mediate.core import json_splice
from claw_mediate.core.continuity import calls_key, text_key
from claw_mediate.core.json_outline import decode_request_outline
from claw_mediate.core.json_pieces import copy_span
from claw_mediate.core.session_id import SessionHints
from claw_mediate.core.tool_catalog import OfferedTool, ToolCatalog
from claw_mediate.core.types import ToolUse
from claw_mediate.dialects.base import Additions, RequestVariants, RunnerRequest
from claw_mediate.dialects.bodies import (
    Changes,
    append_text,
    array_member,
    decode_request,
    encode,
    evidence_reader,
    insert_messages,
    request_variants,
)
from claw_mediate.dialects.openai.functions import (
    function_key,
    functions_as_tool_messages,
    functions_as_tools,
)
from claw_mediate.dialects.openai.wire_types import (
    SYSTEM,
    Message,
    function_call,
    read_message,
    text_parts,
    tool_calls,
    visible_text,
)


class _NamedTool(msgspec.Struct):
    name: Any = None


class _Tool(msgspec.Struct):
    name: Any = None
    function: _NamedTool | None = None
    custom: _NamedTool | None = None


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
_READ = frozenset(_Request.__struct_fields__)
"""Members that are read: one that stands twice could mean another thing to the provider."""


def read_request(body: bytes) -> RunnerRequest:
    view = decode_request(_read_request, body, "chat completion")
    choice = _tool_choice(view)
    return RunnerRequest(
        body=body,
        model=view.model,
        stream=view.stream is True,
        include_usage=bool(view.stream_options and view.stream_options.include_usage is True),
        declared_tools=tuple(
            filter(None, map(_tool_name, (*(view.tools or ()), *(view.functions or ()))))
        ),
        bypass=_bypass(view, choice),
        tool_choice=choice,
        load_evidence=evidence_reader(view.messages, text_parts, _key),
        session_hints=SessionHints(view.metadata, view.prompt_cache_key),
        user_texts=tuple(
            visible_text(message, "\n") for message in view.messages if message.role == "user"
        ),
        system="\n".join(
            map(visible_text, takewhile(lambda message: message.role in SYSTEM, view.messages))
        ),
        max_tokens=_integer(view.max_completion_tokens) or _integer(view.max_tokens),
        uses_functions=bool(view.functions) and not view.tools,
    )


def _tool_choice(view: _Request) -> JsonObject | str | None:
    if view.tool_choice is None and isinstance(view.function_call, dict):
        return {"type": "function", "function": view.function_call}
    return view.function_call if view.tool_choice is None else view.tool_choice


def _bypass(view: _Request, choice: JsonObject | str | None) -> str | None:
    if choice == "none":
        return "tool_choice_none"
    return "several_choices_not_mediated" if view.n not in (None, 1) else None


def _integer(number: object) -> int | None:
    return number if type(number) is int else None


def _tool_name(tool: _Tool) -> str | None:
    inner = tool.function or tool.custom
    name = inner.name if inner and inner.name else tool.name
    return name if isinstance(name, str) else None


def _key(message: Message, text: str) -> str:
    if calls := tool_calls(message):
        return calls_key(call.id if isinstance(call.id, str) else "" for call in calls)
    function = function_call(message)
    return function_key(function) if function else text_key(text)


def build_request(
    request: RunnerRequest, catalog: ToolCatalog, additions: Additions
) -> RequestVariants:
    """Return the body for the provider without the rounds of this turn.

    Managed tools stand behind the runner's own.
    """
    # A member that is read and stands twice is refused: two parsers could disagree about which one
    # is meant.
    body = json_splice.Object(request.body, unique=_READ)
    own = array_member(body, "tools")
    messages = array_member(body, "messages")
    functions = functions_as_tools(array_member(body, "functions"))
    changes: Changes = {
        "tools": json_splice.append(own, [*functions, *map(_wire_tool, catalog.offered)]),
        "functions": None,
        "function_call": None,
        "stream_options": None,
    }
    if (
        edited := _edit_messages(messages, additions, functions_as_tool_messages(messages))
    ) != messages:
        changes["messages"] = edited
    if body.value("stream") is not None:
        changes["stream"] = b"false"
    as_requested = _choice_as_requested(body, request.tool_choice, catalog)
    choices: dict[ToolUse, Changes] = {
        ToolUse.AS_REQUESTED: as_requested,
        ToolUse.RELEASED: _released_choice(request.tool_choice, catalog) or as_requested,
        ToolUse.FORBIDDEN: {"tool_choice": b'"none"'},
    }
    return request_variants(body, changes, choices.__getitem__)


def add_context(request: RunnerRequest, context: str) -> bytes:
    body = json_splice.Object(request.body)
    return body.edit(
        {"messages": _edit_messages(array_member(body, "messages"), Additions(context=context))}
    )


@lru_cache(maxsize=4096)
def _wire_tool(offered: OfferedTool) -> bytes:
    function = {
        "name": offered.alias,
        "description": offered.description,
        "parameters": offered.schema,
    }
    return encode({"type": "function", "function": function})


def _edit_messages(
    messages: bytes, additions: Additions, cuts: Sequence[tuple[int, int, bytes]] = ()
) -> bytes:
    """Insert hidden rounds in their places, and the context at the end of the last
    system message, or in one of its own.
    """
    if not additions.context:
        return insert_messages(messages, additions.insertions, *cuts)
    places = json_splice.element_spans(messages)
    system = list(takewhile(partial(_is_system, messages), places))
    if system:
        start, end = system[-1]
        message = json_splice.Object(copy_span(messages, start, end))
        content = message.value("content") or b'""'
        longer = message.edit({"content": append_text(content, additions.context)})
        return insert_messages(messages, additions.insertions, (start, end, longer), *cuts)
    first = encode({"role": "system", "content": additions.context})
    if not places:
        return b"[%b]" % first
    hidden = [additions.insertions[0]] if 0 in additions.insertions else []
    return insert_messages(
        messages, {**additions.insertions, 0: b",".join([first, *hidden])}, *cuts
    )


def _is_system(messages: bytes, place: tuple[int, int]) -> bool:
    return decode_request_outline(read_message, copy_span(messages, *place)).role in SYSTEM


def _choice_as_requested(
    body: json_splice.Object, choice: JsonObject | str | None, catalog: ToolCatalog
) -> Changes:
    """Return the change of a choice that names managed tools canonically, to their
    aliases; else the runner's bytes stay.
    """
    if isinstance(choice, dict) and (named := _choice_by_alias(choice, catalog)) != choice:
        return {"tool_choice": encode(named)}
    is_given = body.value("tool_choice") not in (None, b"null")
    return {} if is_given or choice is None else {"tool_choice": encode(choice)}


def _released_choice(choice: JsonObject | str | None, catalog: ToolCatalog) -> Changes:
    """Return the change that releases a forced choice; tools that it left out stay left out.

    Empty for other choices.
    """
    if not isinstance(choice, dict):
        return {"tool_choice": b'"auto"'} if choice == "required" else {}
    allowed = choice.get("allowed_tools")
    if not isinstance(allowed, dict):
        return {"tool_choice": b'"auto"'}
    if allowed.get("mode") == "auto":
        return {}
    return {
        "tool_choice": encode(
            _choice_by_alias({**choice, "allowed_tools": {**allowed, "mode": "auto"}}, catalog)
        )
    }


def _choice_by_alias(choice: JsonObject, catalog: ToolCatalog) -> JsonObject:
    allowed = choice.get("allowed_tools")
    if not isinstance(allowed, dict) or not isinstance(allowed.get("tools"), list):
        return _tool_by_alias(choice, catalog)
    tools = [
        _tool_by_alias(tool, catalog) if isinstance(tool, dict) else tool
        for tool in allowed["tools"]
    ]
    return {**choice, "allowed_tools": {**allowed, "tools": tools}}


def _tool_by_alias(named: JsonObject, catalog: ToolCatalog) -> JsonObject:
    function = named.get("function")
    name = function.get("name") if isinstance(function, dict) else None
    alias = catalog.find_alias(name) if isinstance(name, str) else None
    if alias is None or not isinstance(function, dict):
        return named
    return {**named, "function": {**function, "name": alias}}
