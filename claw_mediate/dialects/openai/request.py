"""OpenAI chat completions, the runner's request: its view, and the edited body for the provider."""

from collections.abc import Sequence
from functools import lru_cache, partial
from itertools import takewhile
from typing import Any

import msgspec
from msgspec.structs import replace

from claw_contract.base import JsonObject
from claw_mediate.core import json_splice
from claw_mediate.core.continuity import calls_key, text_key
from claw_mediate.core.json_outline import decode_request_outline
from claw_mediate.core.json_pieces import contains, copy_span
from claw_mediate.core.session_id import SessionHints
from claw_mediate.core.tool_catalog import OfferedTool, ToolCatalog
from claw_mediate.core.types import ToolUse
from claw_mediate.core.weave import NO_WEAVES, Insert, Weaves, join_messages
from claw_mediate.dialects.base import (
    BufferedReason,
    RunnerRequest,
    WriteRequest,
)
from claw_mediate.dialects.bodies import (
    Changes,
    append_text,
    array_member,
    decode_request,
    encode,
    evidence_reader,
    insert_messages,
    request_writer,
)
from claw_mediate.dialects.openai.functions import (
    function_key,
    functions_as_tool_messages,
    functions_as_tools,
)
from claw_mediate.dialects.openai.wire_types import (
    SYSTEM,
    ChatMessage,
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
    messages: list[ChatMessage]
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
    response_format: Any = None
    modalities: Any = None


_STRUCTURED = ("json_schema", "json_object")
"""Response formats whose text is one JSON document."""
_STREAM_OPTIONS = "stream_options"
_INCLUDE_USAGE = "include_usage"

_read_request = msgspec.json.Decoder(_Request)
_READ = frozenset(_Request.__struct_fields__)
"""Members that are read.

If one stood twice, the provider could read another of the two than we.
"""


def read_request(body: bytes) -> RunnerRequest:
    """Return the view of a runner's request. Raises ``UnreadableRequestError``."""
    view = decode_request(_read_request, body, "chat completion")

    choice = _tool_choice(view)
    options = view.stream_options
    declared = map(_tool_name, (*(view.tools or ()), *(view.functions or ())))
    user_messages = [message for message in view.messages if message.role == "user"]
    system_messages = takewhile(lambda message: message.role in SYSTEM, view.messages)

    return RunnerRequest(
        body=body,
        model=view.model,
        stream=view.stream is True,
        include_usage=options is not None and options.include_usage is True,
        declared_tools=tuple(filter(None, declared)),
        bypass=_bypass(view, choice),
        tool_choice=choice,
        load_evidence=evidence_reader(view.messages, text_parts, _key),
        session_hints=SessionHints(view.metadata, view.prompt_cache_key),
        user_texts=tuple(visible_text(message, "\n") for message in user_messages),
        system="\n".join(map(visible_text, system_messages)),
        max_tokens=_integer(view.max_completion_tokens) or _integer(view.max_tokens),
        uses_functions=_uses_functions(view),
        buffered_reason=_buffered_reason(view),
    )


def _uses_functions(view: _Request) -> bool:
    return bool(view.functions) and not view.tools


def _buffered_reason(view: _Request) -> BufferedReason | None:
    """Return the reason why a stream can't be told while it comes."""
    form = view.response_format
    if isinstance(form, dict) and form.get("type") in _STRUCTURED:
        return "structured_output"
    if _uses_functions(view):
        return "legacy_functions"
    if isinstance(view.modalities, list) and "audio" in view.modalities:
        return "audio"
    return None


def _tool_choice(view: _Request) -> JsonObject | str | None:
    """Return the tool choice; that of functions, in the form of tools."""
    if view.tool_choice is not None:
        return view.tool_choice

    if isinstance(view.function_call, dict):
        return {"type": "function", "function": view.function_call}
    return view.function_call


def _bypass(view: _Request, choice: JsonObject | str | None) -> str | None:
    if choice == "none":
        return "tool_choice_none"
    if view.n not in (None, 1):
        return "several_choices_not_mediated"
    return None


def _integer(number: object) -> int | None:
    return number if type(number) is int else None


def _tool_name(tool: _Tool) -> str | None:
    inner = tool.function or tool.custom
    name = inner.name if inner and inner.name else tool.name
    return name if isinstance(name, str) else None


def _key(message: ChatMessage, text: str) -> str:
    calls = tool_calls(message)
    if calls:
        return calls_key(call.id if isinstance(call.id, str) else "" for call in calls)

    function = function_call(message)
    return function_key(function) if function else text_key(text)


def build_request(
    request: RunnerRequest,
    catalog: ToolCatalog,
    weaves: Weaves = NO_WEAVES,
    context: str = "",
) -> WriteRequest:
    """Return the writer of the request with the managed tools after the runner's own.

    Raises ``JsonSpliceError``, also if a member of ``_READ`` is repeated.
    """
    body = json_splice.Object(request.body, unique=_READ)

    functions = functions_as_tools(array_member(body, "functions"))
    managed = map(_wire_tool, catalog.offered)
    changes: Changes = {
        "tools": json_splice.append(array_member(body, "tools"), [*functions, *managed]),
        "functions": None,
        "function_call": None,
        _STREAM_OPTIONS: None,
    }

    messages = array_member(body, "messages")
    edited = _edit_messages(messages, weaves, context, functions_as_tool_messages(messages))
    if edited != messages:
        changes["messages"] = edited

    if request.is_live:
        changes |= {"stream": b"true", _STREAM_OPTIONS: _with_usage(body.value(_STREAM_OPTIONS))}
    elif body.value("stream") is not None:
        changes["stream"] = b"false"

    as_requested = _choice_as_requested(body, request.tool_choice, catalog)
    choices: dict[ToolUse, Changes] = {
        ToolUse.AS_REQUESTED: as_requested,
        ToolUse.RELEASED: _released_choice(request.tool_choice, catalog) or as_requested,
        ToolUse.FORBIDDEN: {"tool_choice": b'"none"'},
    }
    return request_writer(body, changes, choices)


def _with_usage(options: bytes | None) -> bytes:
    """Return the options of a stream that ask for its usage, and keep the runner's others."""
    runners = b"{}" if options in (None, b"null") else options
    return json_splice.edit(runners, {_INCLUDE_USAGE: b"true"})


def without_stream_usage(body: bytes) -> bytes:
    """Return the request without the question for a stream's usage, which some providers refuse.

    Without the options it says what it said before, if it had no others. Raise
    ``JsonSpliceError``.
    """
    request = json_splice.Object(body)
    options = request.value(_STREAM_OPTIONS)
    if options is None or options[:1] != b"{":
        return body

    others = json_splice.edit(options, {_INCLUDE_USAGE: None})
    is_empty = not json_splice.list_members(others)
    return request.edit({_STREAM_OPTIONS: None if is_empty else others})


def refuses_stream_usage(error: bytes) -> bool:
    """Return True if a provider's error of status 400 or 422 is about the options of a stream.

    Mistral refuses them as ``extra_forbidden`` (BerriAI/litellm#11696, openai/openai-agents#442).
    """
    return contains(error, _STREAM_OPTIONS.encode())


def add_context(request: RunnerRequest, context: str) -> bytes:
    """Return the body with text at the end of its system prompt. Raises ``JsonSpliceError``."""
    body = json_splice.Object(request.body)
    messages = array_member(body, "messages")
    return body.edit({"messages": _edit_messages(messages, NO_WEAVES, context)})


@lru_cache(maxsize=4096)
def _wire_tool(offered: OfferedTool) -> bytes:
    function = {
        "name": offered.alias,
        "description": offered.description,
        "parameters": offered.schema,
    }
    return encode({"type": "function", "function": function})


def _edit_messages(
    messages: bytes, weaves: Weaves, context: str, cuts: Sequence[tuple[int, int, bytes]] = ()
) -> bytes:
    """Insert the hidden rounds, and add the context to the system prompt.

    The context goes to the end of the last system message, or into a message of its own, which is
    the first one then. ``cuts`` are other edits of the same array.
    """
    if not context:
        return insert_messages(messages, weaves, *cuts)

    spans = json_splice.element_spans(messages)
    system_spans = list(takewhile(partial(_is_system, messages), spans))
    if system_spans:
        start, end = system_spans[-1]
        message = json_splice.Object(copy_span(messages, start, end))
        content = message.value("content") or b'""'
        longer = message.edit({"content": append_text(content, context)})
        return insert_messages(messages, weaves, (start, end, longer), *cuts)

    first = encode({"role": "system", "content": context})
    if not spans:
        return b"[%b]" % first

    insertions = dict(weaves)
    weave = insertions.get(0, Insert(b""))
    insertions[0] = replace(weave, hidden=join_messages((first, weave.hidden)))
    return insert_messages(messages, insertions, *cuts)


def _is_system(messages: bytes, place: tuple[int, int]) -> bool:
    return decode_request_outline(read_message, copy_span(messages, *place)).role in SYSTEM


def _choice_as_requested(
    body: json_splice.Object, choice: JsonObject | str | None, catalog: ToolCatalog
) -> Changes:
    """Return the change of a choice that names managed tools by their canonical names.

    The provider knows their aliases only. Any other choice stays in the runner's bytes; that of
    functions becomes one of tools.
    """
    if isinstance(choice, dict):
        by_alias = _choice_by_alias(choice, catalog)
        if by_alias != choice:
            return {"tool_choice": encode(by_alias)}

    is_there = body.value("tool_choice") not in (None, b"null")
    if is_there or choice is None:
        return {}
    return {"tool_choice": encode(choice)}


def _released_choice(choice: JsonObject | str | None, catalog: ToolCatalog) -> Changes:
    """Return the change that releases a forced choice; {} for any other.

    If it allowed some tools only, the others stay forbidden.
    """
    if not isinstance(choice, dict):
        return {"tool_choice": b'"auto"'} if choice == "required" else {}

    allowed = choice.get("allowed_tools")
    if not isinstance(allowed, dict):
        return {"tool_choice": b'"auto"'}
    if allowed.get("mode") == "auto":
        return {}

    released = {**choice, "allowed_tools": {**allowed, "mode": "auto"}}
    return {"tool_choice": encode(_choice_by_alias(released, catalog))}


def _choice_by_alias(choice: JsonObject, catalog: ToolCatalog) -> JsonObject:
    """Return the choice with aliases in place of canonical names."""
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
    if not isinstance(function, dict):
        return named

    name = function.get("name")
    alias = catalog.find_alias(name) if isinstance(name, str) else None
    if alias is None:
        return named

    return {**named, "function": {**function, "name": alias}}
