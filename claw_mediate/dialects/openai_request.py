"""OpenAI chat completions, the runner's request: its view, and the edited body for the provider."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import takewhile
from typing import Any

import msgspec

from claw_contract.base import JsonObject
from claw_mediate import wire
from claw_mediate.catalog import Catalog, Offered
from claw_mediate.continuity import calls_anchor, text_anchor
from claw_mediate.dialects.base import MOST_MESSAGES, Additions, Offers, RunnerRequest, UnreadableRequestError
from claw_mediate.dialects.edits import Changes, array, compact, offers, weave, with_text
from claw_mediate.dialects.openai_views import Function, Message, read_message, tool_calls, visible_text
from claw_mediate.talk import ToolUse


class _Tool(msgspec.Struct):
    name: str | None = None
    function: Function | None = None
    custom: Function | None = None


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class _Request(msgspec.Struct):
    messages: list[Message]
    model: str = ""
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    tools: list[_Tool] | None = None
    tool_choice: str | dict[str, Any] | None = None
    functions: list[_Tool] | None = None
    n: int | None = None
    max_tokens: Any = None
    max_completion_tokens: Any = None


_read_request = msgspec.json.Decoder(_Request)


_READ = frozenset(_Request.__struct_fields__)
_SYSTEM = ("system", "developer")


def read_request(body: bytes) -> RunnerRequest:
    """The view of a runner's request."""
    try:
        body.decode()
        view = _read_request.decode(body)
    except UnicodeDecodeError as error:
        raise UnreadableRequestError("the request is not a chat completion: it is not UTF-8") from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise UnreadableRequestError(f"the request is not a chat completion: {error}") from error
    if len(view.messages) > MOST_MESSAGES:
        raise UnreadableRequestError(f"the request has more than {MOST_MESSAGES} messages")
    declared = tuple(name for tool in (*(view.tools or ()), *(view.functions or ())) if (name := _tool_name(tool)))
    return RunnerRequest(
        body=body,
        model=view.model,
        stream=view.stream is True,
        include_usage=bool(view.stream_options and view.stream_options.include_usage),
        declared=declared,
        bypass=_bypass(view),
        choice=view.tool_choice,
        anchors=_anchors(view.messages),
        said=tuple(visible_text(message) for message in view.messages if message.role == "user"),
        system="\n".join(map(visible_text, takewhile(lambda message: message.role in _SYSTEM, view.messages))),
        most_tokens=_count(view.max_completion_tokens) or _count(view.max_tokens),
    )


def offer(request: RunnerRequest, catalog: Catalog, additions: Additions) -> Offers:
    """The body for the provider, but for the rounds of this turn. Managed tools stand behind the runner's own.

    A member that counts and stands twice is refused: two parsers could disagree about which one is meant.
    """
    try:
        wire.once(request.body, _READ)
        body = wire.Object(request.body)
        changes: Changes = {
            "tools": wire.appended(array(body, "tools"), map(_wire_tool, catalog.offered)),
            "stream_options": None,
        }
        if additions.woven or additions.context:
            changes["messages"] = _messages(array(body, "messages"), additions)
        if body.value("stream") is not None:
            changes["stream"] = b"false"
        choice = _presented_choice(request.choice, catalog)
        as_asked: Changes = {} if choice is None else {"tool_choice": compact(choice)}
        choices: dict[ToolUse, Changes] = {
            ToolUse.AS_ASKED: as_asked,
            ToolUse.RELEASED: {"tool_choice": b'"auto"'} if _forces(request.choice) else as_asked,
            ToolUse.FORBIDDEN: {"tool_choice": b'"none"'},
        }
        return offers(body, changes, choices.__getitem__)
    except wire.WireError as error:
        raise UnreadableRequestError(str(error)) from error


def with_context(request: RunnerRequest, context: str) -> bytes:
    """The request with text at the end of its system prompt, and nothing else changed."""
    try:
        body = wire.Object(request.body)
        return body.edited({"messages": _messages(array(body, "messages"), Additions(context=context))})
    except wire.WireError as error:
        raise UnreadableRequestError(str(error)) from error


def _count(number: object) -> int | None:
    return number if type(number) is int else None


def _bypass(view: _Request) -> str | None:
    if view.tool_choice == "none":
        return "tool_choice_none"
    if view.n is not None and view.n > 1:
        return "several_choices_not_mediated"
    if view.functions:
        return "legacy_functions_not_mediated"
    return None


def _tool_name(tool: _Tool) -> str | None:
    inner = tool.function or tool.custom
    return inner.name if inner and inner.name else tool.name


def _wire_tool(offered: Offered) -> bytes:
    function = {"name": offered.alias, "description": offered.description, "parameters": offered.schema}
    return compact({"type": "function", "function": function})


def _messages(messages: bytes, additions: Additions) -> bytes:
    """With hidden rounds in their places, and the context at the end of the last system message, or in one of its own."""
    if not additions.context:
        return weave(messages, additions.woven)
    places = wire.elements(messages)
    system = list(takewhile(partial(_is_system, messages), places))
    if not system:
        first = compact({"role": "system", "content": additions.context})
        return (
            weave(messages, additions.woven, (places[0][0], places[0][0], first + b",")) if places else b"[%b]" % first
        )
    start, end = system[-1]
    message = messages[start:end]
    content = wire.Object(message).value("content") or b'""'
    longer = wire.edited(message, {"content": with_text(content, additions.context)})
    return weave(messages, additions.woven, (start, end, longer))


def _is_system(messages: bytes, place: tuple[int, int]) -> bool:
    return read_message.decode(messages[slice(*place)]).role in _SYSTEM


def _presented_choice(choice: JsonObject | str | None, catalog: Catalog) -> JsonObject | None:
    """A choice that names a managed tool canonically names its alias; None: leave the runner's bytes alone."""
    function = choice.get("function") if isinstance(choice, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    alias = catalog.alias(name) if isinstance(name, str) else None
    if alias is None or not isinstance(choice, dict) or not isinstance(function, dict):
        return None
    return {**choice, "function": {**function, "name": alias}}


def _forces(choice: JsonObject | str | None) -> bool:
    if isinstance(choice, dict):
        allowed = choice.get("allowed_tools")
        return not (isinstance(allowed, dict) and allowed.get("mode") == "auto")
    return choice == "required"


def _anchors(messages: Sequence[Message]) -> dict[int, str]:
    anchors: dict[int, str] = {}
    said: list[str] = []
    for index, message in enumerate(messages):
        if message.role == "user":
            said.append(visible_text(message))
        elif message.role == "assistant" and (made := tool_calls(message)):
            anchors[index] = calls_anchor(call.id if isinstance(call.id, str) else "" for call in made)
        elif message.role == "assistant":
            anchors[index] = text_anchor(visible_text(message), said)
    return anchors
