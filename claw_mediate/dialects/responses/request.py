"""OpenAI Responses, the runner's request: its view, and the edited body for the provider.

docs/spec/responses.md section 3.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache, partial
from itertools import takewhile
from typing import Annotated, Any

import msgspec

from claw_contract.base import JsonObject
from claw_mediate.core import json_splice
from claw_mediate.core.json_outline import decode_request_outline, outline_request
from claw_mediate.core.json_pieces import contains, join_pieces
from claw_mediate.core.session_id import SessionHints
from claw_mediate.core.tool_catalog import OfferedTool, ToolCatalog
from claw_mediate.core.types import ToolUse
from claw_mediate.core.weave import NO_WEAVES, Weaves
from claw_mediate.dialects.base import (
    RunnerRequest,
    UnreadableRequestError,
    WriteRequest,
)
from claw_mediate.dialects.bodies import (
    ABSENT,
    Changes,
    append_text,
    array_member,
    decode_request,
    encode,
    insert_messages,
    request_writer,
)
from claw_mediate.dialects.kept import KeptReferences
from claw_mediate.dialects.openai.wire_types import SYSTEM, visible_text
from claw_mediate.dialects.responses import kept
from claw_mediate.dialects.responses.anchors import read_evidence
from claw_mediate.dialects.responses.items import (
    REFERENCE,
    Item,
    item_decoder,
    join_items,
    split_items,
)
from claw_mediate.dialects.responses.resent import find_resent_items

_CODEX_TURN = "x-codex-turn-metadata"
"""The member of ``client_metadata`` in which Codex describes its turn, as JSON."""


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
    text: Any = None

    @property
    def messages(self) -> list[Item]:
        """The items of ``input``. A text is one message of the user's."""
        if isinstance(self.input, str):
            return [Item(role="user", content=msgspec.Raw(encode(self.input)))]
        return self.input or []


_read_request = msgspec.json.Decoder(_Request)
_id_decoder: msgspec.json.Decoder[str] = msgspec.json.Decoder(_Id)
_READ = frozenset(_Request.__struct_fields__)
"""Members that are read.

If one stood twice, the provider could read another of the two than we.
"""
_NAMING = ("previous_response_id", "conversation")
_KEPT_ELSEWHERE = (b'"file_id"', b'"vector_store_ids"')
"""Members whose ids only one provider knows, anywhere in the body.

They are never found in a text, whose quotes are escaped.
"""


def read_request(body: bytes) -> RunnerRequest:
    """Return the view of a runner's request. Raises ``UnreadableRequestError``."""
    view = decode_request(_read_request, body, "Responses request")
    outline = outline_request(body).text
    _check_named_once(outline)

    items = view.messages
    previous = view.previous_response_id or ""
    conversation = _conversation_id(bytes(view.conversation))

    # What the provider keeps may bring tools with it, and no other provider has it.
    needs_kept = bool(previous or conversation) or view.prompt is not None
    loads_tools = any(
        tool.type == "tool_search" or tool.defer_loading is True for tool in view.tools or ()
    )
    is_bound = (
        needs_kept
        or any(item.kind == REFERENCE for item in items)
        or any(contains(outline, name) for name in _KEPT_ELSEWHERE)
    )

    return RunnerRequest(
        body=body,
        model=view.model,
        stream=view.stream is True,
        buffered_reason="structured_output" if _wants_json(view.text) else None,
        declared_tools=tuple(_declared_names(view)),
        declares_elsewhere=needs_kept or loads_tools,
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


def _wants_json(text: Any) -> bool:
    """Return True if the answer is to be JSON. ``text``: that member of a request."""
    form = text.get("format") if isinstance(text, dict) else None
    return isinstance(form, dict) and form.get("type") in {"json_schema", "json_object"}


def _check_named_once(body: bytes) -> None:
    """Raise ``RepeatedMemberError`` if a request names twice what the provider keeps.

    The provider could go on from the other one.
    """
    # Quick, and enough for most bodies: they have no escapes, and a name at most once.
    has_escapes = b"\\u" in body
    if has_escapes or any(body.count(b'"%b"' % name.encode()) > 1 for name in _NAMING):
        json_splice.find_members(body, _NAMING)


def _conversation_id(named: bytes) -> str:
    """Return the id of a conversation, given as a text or as an object with ``id``; "" for null.

    Raises ``UnreadableRequestError``, ``RepeatedMemberError``.
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


def _go_on_from(body: bytes, previous: str, first_items: bytes) -> bytes:
    """Return the body with these members (``KeptReferences.go_on_from``)."""
    parsed = json_splice.Object(body)
    changes: Changes = {}
    if previous:
        changes["previous_response_id"] = encode(previous)
    if first_items:
        own_items = split_items(_input_items(parsed.value("input")))
        changes["input"] = join_items([first_items, *own_items])
    return parsed.edit(changes)


def _input_items(raw: bytes | None) -> bytes:
    """Return the items of an ``input``, as an array. A text is one message of the user's."""
    if raw is None or raw == b"null":
        return b"[]"
    if raw[:1] == b'"':
        return join_pieces([b'[{"role":"user","content":', raw, b"}]"])
    return raw


def _find_bypass(view: _Request) -> str | None:
    """Return the reason why a request gets no tools, or None (docs/spec/responses.md section 1)."""
    if view.background is True:
        return "background_not_mediated"

    if view.tool_choice == "none":
        return "tool_choice_none"

    if view.generate is False:
        return "no_generation"

    goes_on = bool(view.previous_response_id) or bytes(view.conversation) != b"null"
    if view.input is None and not goes_on:
        return "no_input"

    # The template may have tools of its own, and ``tools`` would replace them.
    if view.prompt is not None and view.tools is None:
        return "prompt_template"

    return None


def _find_side_request(view: _Request) -> str | None:
    """Return the rule of a request that the runner's program marks as its own (section 9)."""
    if view.messages and view.messages[-1].kind == "compaction_trigger":
        return "compaction-trigger"

    if not isinstance(view.client_metadata, dict):
        return None
    text = view.client_metadata.get(_CODEX_TURN)
    if not isinstance(text, str):
        return None

    try:
        turn = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return None
    return "codex-compaction" if turn.get("request_kind") == "compaction" else None


def _system_texts(view: _Request) -> Iterator[str]:
    if isinstance(view.instructions, str) and view.instructions:
        yield view.instructions
    for item in takewhile(lambda item: item.speaker in SYSTEM, view.messages):
        yield visible_text(item)


def _declared_names(view: _Request) -> Iterator[str]:
    """Yield the names of the runner's tools, of the request itself and of its items."""
    yield from _names(view.tools or ())

    for item in view.messages:
        has_tools = item.kind in {"tool_search_output", "additional_tools"}
        if has_tools and isinstance(item.tools, list):
            tools = [tool for tool in item.tools if isinstance(tool, dict)]
            yield from _names(msgspec.convert(tool, _Tool) for tool in tools)


def _names(tools: Iterable[_Tool]) -> Iterator[str]:
    """Yield the names of tools and namespaces, and of the tools in them."""
    for tool in tools:
        if isinstance(tool.name, str) and tool.name:
            yield tool.name

        if not isinstance(tool.tools, list):
            continue
        for inner in tool.tools:
            name = inner.get("name") if isinstance(inner, dict) else None
            if isinstance(name, str) and name:
                yield name


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

    own_tools = array_member(body, "tools")
    own_types = (_type(tool) for tool in split_items(own_tools))
    is_programmatic = "programmatic_tool_calling" in own_types  # Read up to the first one
    managed = [_wire_tool(tool, is_programmatic) for tool in catalog.offered]
    changes: Changes = {"tools": json_splice.append(own_tools, managed)}
    if request.is_live:
        changes["stream"] = b"true"
    else:
        changes["stream_options"] = None
        if body.value("stream") is not None:
            changes["stream"] = b"false"

    # Rounds need a member that they can go into, even if the runner has none.
    raw_input = body.value("input")
    if raw_input is None:
        body = json_splice.Object(body.edit({"input": b"[]"}))
    own_items = _input_items(raw_input)
    items = insert_messages(own_items, weaves)
    changes["input"] = items

    # The input of a conversation stays in it for good, but instructions hold for one request. So
    # there the context never goes into a message.
    system_items = b"[]" if request.keeps_rounds else items
    changes |= _add_context(body, system_items, context)

    choices: dict[ToolUse, Changes] = {
        ToolUse.AS_REQUESTED: _choice_as_requested(request.tool_choice, catalog),
        ToolUse.RELEASED: _released_choice(request.tool_choice, catalog),
        ToolUse.FORBIDDEN: {"tool_choice": b'"none"'},
    }

    # With its first request, a conversation gets the runner's input. Later ones of this turn send
    # only what is new.
    later_changes = {**changes, "input": b"[]"} if request.keeps_rounds else changes
    write_later = request_writer(body, later_changes, choices, "input")

    # Does the turn's first request have another form than the later ones?
    was_array = own_items is raw_input
    is_extended = changes["input"] is not own_items
    if not was_array and not is_extended:
        # A text stays a text, and an absent input absent, until something is added to it.
        first_changes = {**changes, "input": raw_input}
    elif request.keeps_rounds:
        first_changes = changes
    else:
        return write_later

    def write(use: ToolUse, hidden: Sequence[bytes] = ()) -> list[bytes]:
        if hidden:
            return write_later(use, hidden)
        return [body.edit(first_changes | choices[use])]

    return write


def add_context(request: RunnerRequest, context: str) -> bytes:
    """Return the body with text at the end of its system prompt. Raises ``JsonSpliceError``."""
    body = json_splice.Object(request.body)

    items = body.value("input") or b"[]"
    if items[:1] != b"[" or request.keeps_rounds:
        items = b"[]"
    return body.edit(_add_context(body, items, context))


def _add_context(body: json_splice.Object, items: bytes, context: str) -> Changes:
    """Return the changes that add text to the system prompt.

    It goes to the end of the instructions, or, if there are none, of the last of the system
    messages with which ``items`` begin.
    """
    if not context:
        return {}

    instructions = body.value("instructions")
    if instructions not in (None, b"null", b'""') and instructions[:1] == b'"':
        return {"instructions": append_text(instructions, context)}

    raw = split_items(items)
    leading = list(takewhile(_is_system, raw))
    if not leading:
        return {"instructions": encode(context)}

    message = json_splice.Object(leading[-1])
    content = message.value("content") or b'""'
    longer = message.edit({"content": _append_text(content, context)})
    return {"input": join_items([*leading[:-1], longer, *raw[len(leading) :]])}


def _is_system(item: bytes) -> bool:
    return decode_request_outline(item_decoder, item).speaker in SYSTEM


def _append_text(content: bytes, text: str) -> bytes:
    """Append text to a message's content, whose parts have a type of their own in this protocol."""
    if content[:1] == b"[":
        return json_splice.append(content, [encode({"type": "input_text", "text": text})])
    return append_text(content, text)


@lru_cache(maxsize=4096)
def _wire_tool(offered: OfferedTool, is_programmatic: bool) -> bytes:
    tool: JsonObject = {
        "type": "function",
        "name": offered.alias,
        "description": offered.description,
        "parameters": offered.schema,
        # The default is true, with which the API refuses schemas outside of its strict subset.
        "strict": False,
    }
    if is_programmatic:
        # A program of the provider's must not call a managed tool.
        tool["allowed_callers"] = ["direct"]
    return encode(tool)


def _choice_as_requested(choice: JsonObject | str | None, catalog: ToolCatalog) -> Changes:
    """Return the change of a choice that names managed tools by their canonical names.

    The provider knows their aliases only. Any other choice stays in the runner's bytes.
    """
    if not isinstance(choice, dict):
        return {}

    by_alias = _choice_by_alias(choice, catalog)
    return {} if by_alias == choice else {"tool_choice": encode(by_alias)}


def _released_choice(choice: JsonObject | str | None, catalog: ToolCatalog) -> Changes:
    """Return the change that releases a forced choice; {} for any other.

    If it allowed some tools only, the others stay forbidden.
    """
    if not isinstance(choice, dict):
        return {"tool_choice": b'"auto"'} if choice == "required" else {}

    if choice.get("type") != "allowed_tools":
        return {"tool_choice": b'"auto"'}

    released = _choice_by_alias({**choice, "mode": "auto"}, catalog)
    return {"tool_choice": encode(released)}


def _choice_by_alias(choice: JsonObject, catalog: ToolCatalog) -> JsonObject:
    """Return the choice with aliases in place of canonical names."""
    if choice.get("type") != "allowed_tools" or not isinstance(choice.get("tools"), list):
        return _tool_by_alias(choice, catalog)

    tools = [
        _tool_by_alias(tool, catalog) if isinstance(tool, dict) else tool
        for tool in choice["tools"]
    ]
    return {**choice, "tools": tools}


def _tool_by_alias(named: JsonObject, catalog: ToolCatalog) -> JsonObject:
    if named.get("type") != "function":
        return named

    name = named.get("name")
    alias = catalog.find_alias(name) if isinstance(name, str) else None
    return named if alias is None else {**named, "name": alias}


def _type(tool: bytes) -> Any:
    return msgspec.json.decode(tool, type=_Tool).type
