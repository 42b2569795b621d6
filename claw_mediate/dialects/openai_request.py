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


def read_request(body: bytes) -> RunnerRequest:
    """The view of a runner's request."""
    try:
        body.decode()
        view = _read_request.decode(body)
    except UnicodeDecodeError as error:
        raise UnreadableRequestError("the request is not a chat completion: it is not UTF-8") from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise UnreadableRequestError(f"the request is not a chat completion: {error}") from error
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
    """The body for the provider, but for the rounds of this turn. Managed tools stand behind the runner's own."""
    spans = {member.name: (member.start, member.end) for member in wire.members(request.body)}
    changes: dict[str, bytes | None] = {
        "tools": wire.appended(_value(request.body, spans, "tools"), map(_wire_tool, catalog.offered)),
        "stream_options": None,
    }
    if woven:
        changes["messages"] = _weave(_value(request.body, spans, "messages"), woven)
    if "stream" in spans:
        changes["stream"] = b"false"
    try:
        base = wire.edited(request.body, changes)
        choice = _presented_choice(request.choice, catalog)
        as_asked = base if choice is None else wire.edited(base, {"tool_choice": json.dumps(choice).encode()})
        released = wire.edited(base, {"tool_choice": b'"auto"'}) if _forces(request.choice) else as_asked
        forbidden = wire.edited(base, {"tool_choice": b'"none"'})
    except wire.RepeatedMemberError as error:
        raise UnreadableRequestError(str(error)) from error
    return {ToolUse.AS_ASKED: as_asked, ToolUse.RELEASED: released, ToolUse.FORBIDDEN: forbidden}


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


def _value(body: bytes, spans: Mapping[str, tuple[int, int]], name: str) -> bytes:
    start, end = spans.get(name, (0, 0))
    value = body[start:end]
    return b"[]" if value in (b"", b"null") else value


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
