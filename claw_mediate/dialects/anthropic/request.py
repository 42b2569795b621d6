"""Anthropic messages, the runner's request: its view, and the edited body for the provider."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from claw_contract.base import JsonObject
from claw_mediate.core import json_splice
from claw_mediate.core.continuity import calls_key, text_key
from claw_mediate.core.session_id import SessionHints
from claw_mediate.core.tool_catalog import OfferedTool, ToolCatalog
from claw_mediate.core.types import ToolUse
from claw_mediate.dialects.base import Additions, ProviderRequest, RequestVariants, RunnerRequest
from claw_mediate.dialects.bodies import (
    ABSENT,
    Changes,
    append_text,
    array_member,
    decode_or_none,
    decode_request,
    encode,
    evidence_reader,
    insert_messages,
    request_variants,
)


class Block(msgspec.Struct):
    type: str = ""
    text: Any = None
    id: Any = None
    name: Any = None
    input: msgspec.Raw = msgspec.Raw(b"{}")


type Content = str | list[Block] | None


class Message(NamedTuple):
    """A message. ``content`` is None where it is absent, or of a form that we do not know."""

    role: Any
    content: Content


read_content: msgspec.json.Decoder[Content] = msgspec.json.Decoder(Content.__value__)
read_block = msgspec.json.Decoder(Block)


def visible_text(content: Content) -> str:
    """Return the visible text of a content: a string, blocks, or nothing.

    Thinking is not part of it.
    """
    return "".join(text_blocks(content))


def text_blocks(content: Content) -> Sequence[str]:
    """Return the same, block by block."""
    if isinstance(content, str):
        return [content]
    return [
        block.text
        for block in content or ()
        if block.type == "text" and isinstance(block.text, str)
    ]


def call_ids(content: Content) -> Sequence[str]:
    if not isinstance(content, list):
        return ()
    return [
        block.id if isinstance(block.id, str) else ""
        for block in content
        if block.type == "tool_use"
    ]


class _SentMessage(msgspec.Struct):
    role: Any = ""
    content: msgspec.Raw = ABSENT


class _Tool(msgspec.Struct):
    name: Any = None


class _Request(msgspec.Struct):
    messages: list[_SentMessage]
    model: str = ""
    stream: bool | None = None
    system: msgspec.Raw = ABSENT
    tools: list[_Tool] | None = None
    tool_choice: dict[str, Any] | None = None
    max_tokens: Any = None
    metadata: Any = None


_read_request = msgspec.json.Decoder(_Request)
_READ = frozenset(_Request.__struct_fields__)


def read_request(body: bytes) -> RunnerRequest:
    """Return the view of a runner's request, also of one that counts tokens.

    Raises ``UnreadableRequestError``.
    """
    view = decode_request(_read_request, body, "messages request")
    messages = [
        Message(sent.role, decode_or_none(read_content, sent.content)) for sent in view.messages
    ]
    choice = view.tool_choice
    return RunnerRequest(
        body=body,
        model=view.model,
        stream=view.stream is True,
        include_usage=True,
        declared_tools=tuple(
            tool.name for tool in view.tools or () if isinstance(tool.name, str) and tool.name
        ),
        bypass="tool_choice_none" if choice is not None and choice.get("type") == "none" else None,
        tool_choice=choice,
        load_evidence=evidence_reader(messages, _text_parts, _key),
        session_hints=SessionHints(view.metadata),
        user_texts=tuple(
            filter(
                None,
                ("\n".join(text_blocks(one.content)) for one in messages if one.role == "user"),
            )
        ),
        system="\n".join(text_blocks(decode_or_none(read_content, view.system))),
        max_tokens=view.max_tokens if type(view.max_tokens) is int else None,
        prefill_text=_prefill(messages),
    )


def build_request(
    request: RunnerRequest, catalog: ToolCatalog, additions: Additions
) -> RequestVariants:
    """Return the body for the provider without the rounds of this turn.

    Managed tools stand behind the runner's own.
    """
    # A member that is read and stands twice is refused: two parsers could disagree about which one
    # is meant.
    body = json_splice.Object(request.body, unique=_READ)
    changes: Changes = {
        "tools": json_splice.append(array_member(body, "tools"), map(_wire_tool, catalog.offered))
    }
    if additions.insertions:
        changes["messages"] = insert_messages(array_member(body, "messages"), additions.insertions)
    if additions.context:
        changes |= _system_with_context(body, additions.context)
    if body.value("stream") is not None:
        changes["stream"] = b"false"
    choices: dict[ToolUse, Changes] = {
        ToolUse.AS_REQUESTED: _choice_as_requested(request.tool_choice, catalog),
        ToolUse.RELEASED: _released_choice(request.tool_choice),
        ToolUse.FORBIDDEN: {"tool_choice": b'{"type":"none"}'},
    }
    variants = request_variants(body, changes, choices.__getitem__)
    return (
        (lambda use: _split_prefill(variants(use)))
        if request.prefill_text is not None
        else variants
    )


def add_context(request: RunnerRequest, context: str) -> bytes:
    body = json_splice.Object(request.body)
    return body.edit(_system_with_context(body, context))


def _system_with_context(body: json_splice.Object, context: str) -> Changes:
    return {"system": append_text(body.value("system") or b'""', context)}


def _split_prefill(request: ProviderRequest) -> ProviderRequest:
    """Split off the assistant's message that the runner began: hidden rounds begin
    with it, since roles must take turns.
    """
    start = json_splice.element_spans(
        b"%b]" % request.head,
        json_splice.find_members(b"%b]}" % request.head, ["messages"])["messages"].start,
    )[-1][0]
    return ProviderRequest(
        request.head[:start].rstrip(b" \t\r\n,"), request.tail, prefill=request.head[start:]
    )


@lru_cache(maxsize=4096)
def _wire_tool(offered: OfferedTool) -> bytes:
    return encode(
        {"name": offered.alias, "description": offered.description, "input_schema": offered.schema}
    )


def _choice_as_requested(choice: JsonObject | str | None, catalog: ToolCatalog) -> Changes:
    name = choice.get("name") if isinstance(choice, dict) else None
    alias = catalog.find_alias(name) if isinstance(name, str) else None
    return (
        {}
        if alias is None or not isinstance(choice, dict)
        else {"tool_choice": encode({**choice, "name": alias})}
    )


def _released_choice(choice: JsonObject | str | None) -> Changes:
    if not isinstance(choice, dict) or choice.get("type") not in {"any", "tool"}:
        return {}
    kept = {name: value for name, value in choice.items() if name == "disable_parallel_tool_use"}
    return {"tool_choice": encode({"type": "auto", **kept})}


def _text_parts(message: Message) -> Sequence[str]:
    return text_blocks(message.content)


def _prefill(messages: Sequence[Message]) -> str | None:
    if not messages or messages[-1].role != "assistant" or messages[-1].content is None:
        return None
    return visible_text(messages[-1].content)


def _key(message: Message, text: str) -> str:
    ids = call_ids(message.content)
    return calls_key(ids) if ids else text_key(text)
