"""OpenAI chat completions, the runner's request: edited for the provider, and never rebuilt (spec section 3)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from itertools import takewhile

from claw_contract.base import JsonObject
from claw_mediate.core import json_splice
from claw_mediate.core.talk import ToolUse
from claw_mediate.core.tool_catalog import Catalog, Offered
from claw_mediate.dialects.base import Additions, Offers, RunnerRequest, UnreadableRequestError
from claw_mediate.dialects.body_edits import Changes, array, compact, offers, weave, with_text
from claw_mediate.dialects.openai import functions as legacy
from claw_mediate.dialects.openai.request import READ
from claw_mediate.dialects.openai.wire_types import SYSTEM, read_message


def offer(request: RunnerRequest, catalog: Catalog, additions: Additions) -> Offers:
    """The body for the provider, but for the rounds of this turn. Managed tools stand behind the runner's own.

    A member that counts and stands twice is refused: two parsers could disagree about which one is meant.
    """
    try:
        body = json_splice.Object(request.body, once=READ)
        own = array(body, "tools")
        messages = array(body, "messages")
        functions = legacy.as_tools(array(body, "functions"))
        changes: Changes = {
            "tools": json_splice.appended(own, [*functions, *map(_wire_tool, catalog.offered)]),
            "functions": None,
            "function_call": None,
            "stream_options": None,
        }
        if (edited := _messages(messages, additions, legacy.as_tool_messages(messages))) != messages:
            changes["messages"] = edited
        if body.value("stream") is not None:
            changes["stream"] = b"false"
        as_asked = _as_asked(body, request.choice, catalog)
        choices: dict[ToolUse, Changes] = {
            ToolUse.AS_ASKED: as_asked,
            ToolUse.RELEASED: _released(request.choice, catalog) or as_asked,
            ToolUse.FORBIDDEN: {"tool_choice": b'"none"'},
        }
        return offers(body, changes, choices.__getitem__)
    except json_splice.WireError as error:
        raise UnreadableRequestError(str(error)) from error


def with_context(request: RunnerRequest, context: str) -> bytes:
    """The request with text at the end of its system prompt, and nothing else changed."""
    try:
        body = json_splice.Object(request.body)
        return body.edited({"messages": _messages(array(body, "messages"), Additions(context=context))})
    except json_splice.WireError as error:
        raise UnreadableRequestError(str(error)) from error


@lru_cache(maxsize=4096)
def _wire_tool(offered: Offered) -> bytes:
    function = {"name": offered.alias, "description": offered.description, "parameters": offered.schema}
    return compact({"type": "function", "function": function})


def _messages(messages: bytes, additions: Additions, cuts: Sequence[tuple[int, int, bytes]] = ()) -> bytes:
    """With hidden rounds in their places, and the context at the end of the last system message, or in one of its own."""
    if not additions.context:
        return weave(messages, additions.woven, *cuts)
    places = json_splice.elements(messages)
    system = list(takewhile(partial(_is_system, messages), places))
    if system:
        start, end = system[-1]
        content = json_splice.Object(messages[start:end]).value("content") or b'""'
        longer = json_splice.edited(messages[start:end], {"content": with_text(content, additions.context)})
        return weave(messages, additions.woven, (start, end, longer), *cuts)
    first = compact({"role": "system", "content": additions.context})
    if not places:
        return b"[%b]" % first
    hidden = [additions.woven[0]] if 0 in additions.woven else []
    return weave(messages, {**additions.woven, 0: b",".join([first, *hidden])}, *cuts)


def _is_system(messages: bytes, place: tuple[int, int]) -> bool:
    return read_message.decode(messages[slice(*place)]).role in SYSTEM


def _as_asked(body: json_splice.Object, choice: JsonObject | str | None, catalog: Catalog) -> Changes:
    """A choice that names managed tools canonically names their aliases; else the runner's bytes stay, where it has any."""
    if isinstance(choice, dict) and (named := _by_alias(choice, catalog)) != choice:
        return {"tool_choice": compact(named)}
    told = body.value("tool_choice") not in (None, b"null")
    return {} if told or choice is None else {"tool_choice": compact(choice)}


def _released(choice: JsonObject | str | None, catalog: Catalog) -> Changes:
    """A choice that forced a call no longer does; tools that it left out stay left out. Empty where it forced none."""
    if not isinstance(choice, dict):
        return {"tool_choice": b'"auto"'} if choice == "required" else {}
    allowed = choice.get("allowed_tools")
    if not isinstance(allowed, dict):
        return {"tool_choice": b'"auto"'}
    if allowed.get("mode") == "auto":
        return {}
    return {"tool_choice": compact(_by_alias({**choice, "allowed_tools": {**allowed, "mode": "auto"}}, catalog))}


def _by_alias(choice: JsonObject, catalog: Catalog) -> JsonObject:
    """A choice with the aliases of the managed tools that it names, one or a list of them."""
    allowed = choice.get("allowed_tools")
    if not isinstance(allowed, dict) or not isinstance(allowed.get("tools"), list):
        return _aliased(choice, catalog)
    tools = [_aliased(tool, catalog) if isinstance(tool, dict) else tool for tool in allowed["tools"]]
    return {**choice, "allowed_tools": {**allowed, "tools": tools}}


def _aliased(named: JsonObject, catalog: Catalog) -> JsonObject:
    function = named.get("function")
    name = function.get("name") if isinstance(function, dict) else None
    alias = catalog.alias(name) if isinstance(name, str) else None
    if alias is None or not isinstance(function, dict):
        return named
    return {**named, "function": {**function, "name": alias}}
