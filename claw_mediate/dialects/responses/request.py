"""OpenAI Responses, the runner's request: its view, and the edited body for the provider
(docs/spec/responses.md section 3).
"""

from collections.abc import Iterator, Sequence
from functools import cache, lru_cache, partial
from itertools import takewhile
from typing import Annotated, Any

import msgspec
from msgspec.structs import replace

from claw_contract.base import JsonObject
from claw_mediate.core import json_splice
from claw_mediate.core.json_outline import decode_request_outline, outline_request
from claw_mediate.core.json_pieces import contains, join_pieces
from claw_mediate.core.session_id import SessionHints
from claw_mediate.core.tool_catalog import OfferedTool, ToolCatalog
from claw_mediate.core.types import ToolUse
from claw_mediate.dialects.base import (
    Additions,
    ProviderRequest,
    RequestVariants,
    RunnerRequest,
    UnreadableRequestError,
)
from claw_mediate.dialects.bodies import (
    ABSENT,
    Changes,
    append_text,
    array_member,
    decode_request,
    encode,
    insert_messages,
    request_variants,
)
from claw_mediate.dialects.kept import KeptReferences
from claw_mediate.dialects.openai.wire_types import SYSTEM, visible_text
from claw_mediate.dialects.responses import kept
from claw_mediate.dialects.responses.anchors import read_evidence
from claw_mediate.dialects.responses.items import Item, item_decoder, join_items, split_items
from claw_mediate.dialects.responses.resent import find_resent_items

_COMPACTION_TURN = "x-codex-turn-metadata"


class _Tool(msgspec.Struct):
    type: Any = None
    name: Any = None
    tools: Any = None
    defer_loading: Any = None


_Id = Annotated[str, msgspec.Meta(min_length=1)]


class _Conversation(msgspec.Struct):
    id: _Id


class _Request(msgspec.Struct):
    input: str | list[Item] | None = None
    model: str = ""
    stream: bool | None = None
    instructions: Any = None
    tools: list[_Tool] | None = None
    tool_choice: str | dict[str, Any] | None = None
    store: Any = None
    previous_response_id: str | None = None
    conversation: msgspec.Raw = ABSENT
    prompt: Any = None
    background: Any = None
    generate: Any = None
    max_output_tokens: Any = None
    metadata: Any = None
    client_metadata: Any = None
    prompt_cache_key: Any = None

    @property
    def messages(self) -> list[Item]:
        """Return the items; a text is one message of the user's."""
        if isinstance(self.input, str):
            return [Item(role="user", content=msgspec.Raw(encode(self.input)))]
        return self.input or []


_read_request = msgspec.json.Decoder(_Request)
_id_decoder: msgspec.json.Decoder[str] = msgspec.json.Decoder(_Id)
_READ = frozenset(_Request.__struct_fields__)
"""Members that are read: one that stands twice could mean another thing to the provider."""
_NAMING = ("previous_response_id", "conversation")
_KEPT_ELSEWHERE = (b'"file_id"', b'"vector_store_ids"')
"""Members whose ids only one provider knows, anywhere in the body.

No text holds them, for its quotes are escaped.
"""


def read_request(body: bytes) -> RunnerRequest:
    view = decode_request(_read_request, body, "Responses request")
    outline = outline_request(body).text
    _check_named_once(outline)
    items = view.messages
    previous = view.previous_response_id or ""
    conversation = _conversation_id(bytes(view.conversation))

    leans = bool(previous or conversation) or view.prompt is not None
    is_bound = leans or _refers(items) or any(contains(outline, name) for name in _KEPT_ELSEWHERE)

    return RunnerRequest(
        body=body,
        model=view.model,
        stream=view.stream is True,
        declared_tools=tuple(_declared_names(view)),
        declares_elsewhere=leans
        or any(
            tool.type == "tool_search" or tool.defer_loading is True for tool in view.tools or ()
        ),
        bypass=_find_bypass(view),
        tool_choice=view.tool_choice,
        load_evidence=cache(partial(read_evidence, items)),
        load_resent=partial(find_resent_items, body, items),
        session_hints=SessionHints(
            view.metadata, view.prompt_cache_key, view.client_metadata, conversation
        ),
        user_texts=tuple(visible_text(item, "\n") for item in items if item.speaker == "user"),
        system="\n".join(_system_texts(view)),
        max_tokens=view.max_output_tokens if type(view.max_output_tokens) is int else None,
        side_request=_find_side_request(view),
        kept=KeptReferences(
            form=kept,
            go_on_from=partial(_go_on_from, body),
            previous_response=previous,
            conversation=conversation,
            keeps_response=view.store is not False,
            instructions_length=len(view.instructions) if isinstance(view.instructions, str) else 0,
            is_bound=is_bound,
        ),
    )


def _check_named_once(body: bytes) -> None:
    """Raise ``RepeatedMemberError`` where what the provider keeps is named twice:
    it could go on from the other one.
    """
    # A name is spelled with escapes, or not; most bodies have neither escapes nor the name twice.
    if b"\\u" in body or any(body.count(b'"%b"' % name.encode()) > 1 for name in _NAMING):
        json_splice.find_members(body, _NAMING)


def _conversation_id(named: bytes) -> str:
    """Return the id of a conversation, which is a text, or an object with an
    ``id``; "" for null.
    """
    if named == b"null":
        return ""
    try:
        if named[:1] != b"{":
            return _id_decoder.decode(named)
        json_splice.find_members(named, ("id",))
        return msgspec.json.decode(named, type=_Conversation).id
    except msgspec.DecodeError as error:
        raise UnreadableRequestError(
            f"the request is not a Responses request: its conversation has no id: {error}"
        ) from error


def _refers(items: Sequence[Item]) -> bool:
    """Return whether an item is one that the provider keeps, and the runner names
    by its id only.
    """
    return any(item.kind == "item_reference" for item in items)


def _go_on_from(body: bytes, previous: str, first_items: bytes) -> bytes:
    parsed = json_splice.Object(body)
    changes: Changes = {"previous_response_id": encode(previous)} if previous else {}
    if first_items:
        own_items = split_items(_input_items(parsed.value("input")))
        changes["input"] = join_items([first_items, *own_items])
    return parsed.edit(changes)


def _input_items(raw: bytes | None) -> bytes:
    """Return the items of an ``input``: none where there is none, and a text as one
    message of the user's.
    """
    if raw is None or raw == b"null":
        return b"[]"
    return join_pieces([b'[{"role":"user","content":', raw, b"}]"]) if raw[:1] == b'"' else raw


def _find_bypass(view: _Request) -> str | None:
    """Return why a request gets no tools (docs/spec/responses.md section 1)."""
    rules = {
        "background_not_mediated": view.background is True,
        "tool_choice_none": view.tool_choice == "none",
        "no_generation": view.generate is False,
        "no_input": view.input is None
        and not (view.previous_response_id or bytes(view.conversation) != b"null"),
        "prompt_template": view.prompt is not None and view.tools is None,
    }
    return next((name for name, holds in rules.items() if holds), None)


def _find_side_request(view: _Request) -> str | None:
    """Return the rule of a request that a runner's program marks as its own
    housekeeping (section 9).
    """
    if view.messages and view.messages[-1].kind == "compaction_trigger":
        return "compaction-trigger"
    told = (
        view.client_metadata.get(_COMPACTION_TURN)
        if isinstance(view.client_metadata, dict)
        else None
    )
    try:
        turn = msgspec.json.decode(told, type=dict[str, Any]) if isinstance(told, str) else {}
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        turn = {}
    return "codex-compaction" if turn.get("request_kind") == "compaction" else None


def _system_texts(view: _Request) -> Iterator[str]:
    if isinstance(view.instructions, str) and view.instructions:
        yield view.instructions
    yield from map(visible_text, takewhile(lambda item: item.speaker in SYSTEM, view.messages))


def _declared_names(view: _Request) -> Iterator[str]:
    """Yield the names of the runner's tools: those of the request, of its
    namespaces, and those that items brought.
    """
    yield from _names(view.tools or ())
    for item in view.messages:
        if item.kind in {"tool_search_output", "additional_tools"} and isinstance(item.tools, list):
            yield from _names(
                msgspec.convert(each, _Tool) for each in item.tools if isinstance(each, dict)
            )


def _names(tools: Any) -> Iterator[str]:
    for tool in tools:
        if isinstance(tool.name, str) and tool.name:
            yield tool.name
        for inner in tool.tools if isinstance(tool.tools, list) else ():
            name = inner.get("name") if isinstance(inner, dict) else None
            if isinstance(name, str) and name:
                yield name


def build_request(
    request: RunnerRequest, catalog: ToolCatalog, additions: Additions
) -> RequestVariants:
    """Return the body for the provider without the rounds of this turn.

    Managed tools stand behind the runner's own.
    """
    body = json_splice.Object(request.body, unique=_READ)
    own = array_member(body, "tools")
    is_programmatic = any(_type(tool) == "programmatic_tool_calling" for tool in split_items(own))
    changes: Changes = {
        "tools": json_splice.append(
            own, [_wire_tool(tool, is_programmatic) for tool in catalog.offered]
        ),
        "stream_options": None,
    }
    if body.value("stream") is not None:
        changes["stream"] = b"false"
    raw = body.value("input")
    if raw is None:
        body = json_splice.Object(body.edit({"input": b"[]"}))
    own_items = _input_items(raw)
    items = insert_messages(own_items, additions.insertions)
    # What stands in the input of a conversation stays in it for good; instructions hold for one
    # request.
    changes |= {
        "input": items,
        **_add_context(body, b"[]" if request.keeps_rounds else items, additions.context),
    }
    choices: dict[ToolUse, Changes] = {
        ToolUse.AS_REQUESTED: _choice_as_requested(request.tool_choice, catalog),
        ToolUse.RELEASED: _released_choice(request.tool_choice, catalog),
        ToolUse.FORBIDDEN: {"tool_choice": b'"none"'},
    }
    # A text stays a text, and what is absent absent, as long as nothing is put behind it.
    stays = own_items is not raw and changes["input"] is own_items
    # A conversation has the runner's input from the first call on; behind it only what is new is
    # sent.
    extended = {**changes, "input": b"[]"} if request.keeps_rounds else changes
    variants = request_variants(body, extended, choices.__getitem__, "input")
    if not stays and not request.keeps_rounds:
        return variants
    first = {**changes, "input": raw} if stays else changes

    def build(use: ToolUse) -> ProviderRequest:
        return replace(variants(use), unextended=body.edit(first | choices[use]))

    return build


def add_context(request: RunnerRequest, context: str) -> bytes:
    body = json_splice.Object(request.body)
    raw = body.value("input") or b"[]"
    return body.edit(
        _add_context(body, raw if raw[:1] == b"[" and not request.keeps_rounds else b"[]", context)
    )


def _add_context(body: json_splice.Object, items: bytes, context: str) -> Changes:
    """Return the changes that put text at the end of the instructions, or of the
    last leading system message.
    """
    if not context:
        return {}
    instructions = body.value("instructions")
    if instructions not in (None, b"null", b'""') and instructions[:1] == b'"':
        return {"instructions": append_text(instructions, context)}
    raw = split_items(items)
    leading = list(
        takewhile(lambda item: decode_request_outline(item_decoder, item).speaker in SYSTEM, raw)
    )
    if not leading:
        return {"instructions": encode(context)}
    message = json_splice.Object(leading[-1])
    content = message.value("content") or b'""'
    longer = message.edit({"content": _append_text(content, context)})
    return {"input": join_items([*leading[:-1], longer, *raw[len(leading) :]])}


def _append_text(content: bytes, text: str) -> bytes:
    if content[:1] == b"[":
        return json_splice.append(content, [encode({"type": "input_text", "text": text})])
    return append_text(content, text)


@lru_cache(maxsize=4096)
def _wire_tool(offered: OfferedTool, is_programmatic: bool) -> bytes:
    # Without ``strict`` the API takes it for true, and refuses schemas that are not of its strict
    # subset.
    tool: JsonObject = {
        "type": "function",
        "name": offered.alias,
        "description": offered.description,
        "parameters": offered.schema,
        "strict": False,
    }
    return encode({**tool, "allowed_callers": ["direct"]} if is_programmatic else tool)


def _choice_as_requested(choice: JsonObject | str | None, catalog: ToolCatalog) -> Changes:
    """Return the change of a choice that names managed tools canonically, to their
    aliases; else the runner's bytes stay.
    """
    if isinstance(choice, dict) and (named := _choice_by_alias(choice, catalog)) != choice:
        return {"tool_choice": encode(named)}
    return {}


def _released_choice(choice: JsonObject | str | None, catalog: ToolCatalog) -> Changes:
    """Return the change that releases a forced choice; tools that it left out stay left out.

    Empty for other choices.
    """
    if not isinstance(choice, dict):
        return {"tool_choice": b'"auto"'} if choice == "required" else {}
    if choice.get("type") != "allowed_tools":
        return {"tool_choice": b'"auto"'}
    return {"tool_choice": encode(_choice_by_alias({**choice, "mode": "auto"}, catalog))}


def _choice_by_alias(choice: JsonObject, catalog: ToolCatalog) -> JsonObject:
    if choice.get("type") != "allowed_tools" or not isinstance(choice.get("tools"), list):
        return _tool_by_alias(choice, catalog)
    tools = [
        _tool_by_alias(tool, catalog) if isinstance(tool, dict) else tool
        for tool in choice["tools"]
    ]
    return {**choice, "tools": tools}


def _tool_by_alias(named: JsonObject, catalog: ToolCatalog) -> JsonObject:
    name = named.get("name") if named.get("type") == "function" else None
    alias = catalog.find_alias(name) if isinstance(name, str) else None
    return named if alias is None else {**named, "name": alias}


def _type(tool: bytes) -> Any:
    return msgspec.json.decode(tool, type=_Tool).type
