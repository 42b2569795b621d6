"""OpenAI chat completions, the runner's request: its view, and the edited body for the provider."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from claw_contract.base import JsonObject
from claw_mediate import wire
from claw_mediate.catalog import Catalog, Offered
from claw_mediate.continuity import calls_anchor, text_anchor
from claw_mediate.dialects.base import RunnerRequest, UnreadableRequestError
from claw_mediate.dialects.openai_views import Function, Message, visible_text
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


_read_request = msgspec.json.Decoder(_Request)


_READ = frozenset(_Request.__struct_fields__)
MOST_MESSAGES = 50_000
"""More is no conversation."""


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
    )


def offer(request: RunnerRequest, catalog: Catalog, woven: Mapping[int, bytes]) -> Mapping[ToolUse, bytes]:
    """The body for the provider, but for the rounds of this turn. Managed tools stand behind the runner's own.

    A member that counts and stands twice is refused: two parsers could disagree about which one is meant.
    """
    try:
        wire.once(request.body, _READ)
        body = wire.Object(request.body)
        changes: dict[str, bytes | None] = {
            "tools": wire.appended(_array(body, "tools"), map(_wire_tool, catalog.offered)),
            "stream_options": None,
        }
        if woven:
            changes["messages"] = _weave(_array(body, "messages"), woven)
        if body.value("stream") is not None:
            changes["stream"] = b"false"
        choice = _presented_choice(request.choice, catalog)
        as_asked = {} if choice is None else {"tool_choice": json.dumps(choice).encode()}
        released = {"tool_choice": b'"auto"'} if _forces(request.choice) else as_asked
        return {
            ToolUse.AS_ASKED: body.edited(changes | as_asked),
            ToolUse.RELEASED: body.edited(changes | released),
            ToolUse.FORBIDDEN: body.edited(changes | {"tool_choice": b'"none"'}),
        }
    except wire.WireError as error:
        raise UnreadableRequestError(str(error)) from error


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
    return json.dumps({"type": "function", "function": function}, ensure_ascii=False, separators=(",", ":")).encode()


def _array(body: wire.Object, name: str) -> bytes:
    value = body.value(name)
    return b"[]" if value in (None, b"null") else value or b"[]"


def _weave(messages: bytes, woven: Mapping[int, bytes]) -> bytes:
    """Hidden messages go right before the message at their index."""
    places = wire.elements(messages)
    return wire.spliced(messages, [(places[i][0], places[i][0], hidden + b",") for i, hidden in woven.items()])


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
        elif message.role == "assistant" and message.tool_calls:
            anchors[index] = calls_anchor(call.id or "" for call in message.tool_calls)
        elif message.role == "assistant":
            anchors[index] = text_anchor(visible_text(message), said)
    return anchors


def users_said(body: bytes) -> list[str]:
    """The texts of the users' messages of a request: what tells equal answers apart."""
    messages = _read_request.decode(body).messages
    return [visible_text(message) for message in messages if message.role == "user"]
