"""Anthropic messages, the runner's request: its view, and the edited body for the provider."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from claw_contract.base import JsonObject
from claw_mediate.core import json_splice
from claw_mediate.core.continuity import calls_key, text_key
from claw_mediate.core.json_pieces import copy_span
from claw_mediate.core.session_id import SessionHints
from claw_mediate.core.tool_catalog import OfferedTool, ToolCatalog
from claw_mediate.core.types import ToolUse
from claw_mediate.core.weave import NO_WEAVES, Weaves
from claw_mediate.dialects.base import RunnerRequest, WriteRequest
from claw_mediate.dialects.bodies import (
    ABSENT,
    Changes,
    SplitRequest,
    add_messages,
    append_text,
    array_member,
    decode_or_none,
    decode_request,
    encode,
    evidence_reader,
    insert_messages,
    request_writer,
)


class ContentBlock(msgspec.Struct):
    """An element of a message's ``content``."""

    type: str = ""
    text: Any = None
    id: Any = None
    name: Any = None
    input: msgspec.Raw = msgspec.Raw(b"{}")
    signature: Any = None
    data: Any = None

    @property
    def signed_by(self) -> str:
        """The signature, or the data, that tells a block of thinking; "" for other blocks."""
        by = {"thinking": self.signature, "redacted_thinking": self.data}.get(self.type)
        return by if isinstance(by, str) else ""


type Content = str | list[ContentBlock] | None


class _ReadMessage(NamedTuple):
    """A message. ``content`` is None if it is absent, or of a form that we do not know."""

    role: Any
    content: Content


read_content: msgspec.json.Decoder[Content] = msgspec.json.Decoder(Content.__value__)
read_block = msgspec.json.Decoder(ContentBlock)


def visible_text(content: Content) -> str:
    """Return the visible text of a content. Thinking is not part of it."""
    return "".join(text_blocks(content))


def text_blocks(content: Content) -> Sequence[str]:
    """Return the visible texts of a content: a string is one, and each text block is one."""
    if isinstance(content, str):
        return [content]

    return [
        block.text
        for block in content or ()
        if block.type == "text" and isinstance(block.text, str)
    ]


def call_ids(content: Content) -> Sequence[str]:
    """Return the ids of the calls in a content; "" for a call without one."""
    if not isinstance(content, list):
        return ()

    return [
        block.id if isinstance(block.id, str) else ""
        for block in content
        if block.type == "tool_use"
    ]


def signatures(content: Content) -> Sequence[str]:
    """Return what makes the thinking of a content known."""
    if not isinstance(content, list):
        return ()

    return [block.signed_by for block in content if block.signed_by]


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
    output_config: Any = None
    output_format: Any = None  # Its older form


_read_request = msgspec.json.Decoder(_Request)
_READ = frozenset(_Request.__struct_fields__)
"""Members that are read.

If one stood twice, the provider could read another of the two than we.
"""


def read_request(body: bytes) -> RunnerRequest:
    """Return the view of a runner's request, also of one that counts tokens.

    Raises ``UnreadableRequestError``.
    """
    view = decode_request(_read_request, body, "messages request")

    messages = [
        _ReadMessage(sent.role, decode_or_none(read_content, sent.content))
        for sent in view.messages
    ]
    names = [tool.name for tool in view.tools or ()]
    choice = view.tool_choice
    forbids_tools = choice is not None and choice.get("type") == "none"

    # A message with results only is the user's, too.
    user_messages = [message for message in messages if message.role == "user"]
    user_texts = ["\n".join(text_blocks(message.content)) for message in user_messages]

    return RunnerRequest(
        body=body,
        model=view.model,
        stream=view.stream is True,
        include_usage=True,
        declared_tools=tuple(name for name in names if isinstance(name, str) and name),
        bypass="tool_choice_none" if forbids_tools else None,
        tool_choice=choice,
        load_evidence=evidence_reader(messages, _text_parts, _key, _signatures),
        session_hints=SessionHints(view.metadata),
        user_texts=tuple(filter(None, user_texts)),
        system="\n".join(text_blocks(decode_or_none(read_content, view.system))),
        max_tokens=view.max_tokens if type(view.max_tokens) is int else None,
        prefill_text=_prefill(messages),
        buffered_reason="structured_output" if _wants_structured_output(view) else None,
    )


def _wants_structured_output(view: _Request) -> bool:
    """Return True if the answer is to be JSON, which a runner parses as it comes."""
    config = view.output_config
    asked = config.get("format") if isinstance(config, dict) else None
    return asked is not None or view.output_format is not None


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

    managed = map(_wire_tool, catalog.offered)
    changes: Changes = {"tools": json_splice.append(array_member(body, "tools"), managed)}
    if weaves:
        changes["messages"] = insert_messages(array_member(body, "messages"), weaves)
    if context:
        changes |= _system_with_context(body, context)
    if request.is_live:
        changes["stream"] = b"true"
    elif body.value("stream") is not None:
        changes["stream"] = b"false"

    choices: dict[ToolUse, Changes] = {
        ToolUse.AS_REQUESTED: _choice_as_requested(request.tool_choice, catalog),
        ToolUse.RELEASED: _released_choice(request.tool_choice),
        ToolUse.FORBIDDEN: {"tool_choice": b'{"type":"none"}'},
    }
    add = add_messages if request.prefill_text is None else _continue_prefill
    return request_writer(body, changes, choices, add=add)


def add_context(request: RunnerRequest, context: str) -> bytes:
    """Return the body with text at the end of its system prompt. Raises ``JsonSpliceError``."""
    body = json_splice.Object(request.body)
    return body.edit(_system_with_context(body, context))


def _system_with_context(body: json_splice.Object, context: str) -> Changes:
    return {"system": append_text(body.value("system") or b'""', context)}


def _continue_prefill(request: SplitRequest, hidden: Sequence[bytes]) -> list[bytes]:
    """Return the pieces of a request whose last message, an assistant's, the runner began.

    The first hidden message continues that one, because roles must alternate.
    """
    if not hidden:
        return add_messages(request, ())

    whole_head, tail = request
    head, prefill = _split_prefill(whole_head)
    first, *rest = hidden
    return add_messages((head, tail), [_merge_messages(prefill, first), *rest])


def _split_prefill(whole_head: bytes) -> tuple[bytes, bytes]:
    """Return the part of a request before its last message, and that message."""
    # The head ends within ``messages``, right after the last of them.
    closed = b"%b]}" % whole_head
    found = json_splice.find_members(closed, ["messages"])["messages"]
    messages = copy_span(closed, found.start, found.end)
    last_start, _ = json_splice.element_spans(messages)[-1]
    start = found.start + last_start

    head = whole_head[:start].rstrip(b" \t\r\n,")
    return head, whole_head[start:]


def _merge_messages(prefill: bytes, message: bytes) -> bytes:
    """Return ``prefill``, an assistant's message that the runner began, with its continuation."""
    began = json_splice.Object(prefill).value("content") or b"[]"
    if began[:1] == b'"':
        began = b"[%b]" % encode({"type": "text", "text": msgspec.json.decode(began)})

    continued = json_splice.Object(message).value("content") or b"[]"
    spans = json_splice.element_spans(continued)
    content = json_splice.append(began, [continued[start:end] for start, end in spans])
    return b'{"role":"assistant","content":%b}' % content


@lru_cache(maxsize=4096)
def _wire_tool(offered: OfferedTool) -> bytes:
    return encode(
        {"name": offered.alias, "description": offered.description, "input_schema": offered.schema}
    )


def _choice_as_requested(choice: JsonObject | str | None, catalog: ToolCatalog) -> Changes:
    """Return the change of a choice that names a managed tool by its canonical name.

    The provider knows its alias only.
    """
    if not isinstance(choice, dict):
        return {}

    name = choice.get("name")
    alias = catalog.find_alias(name) if isinstance(name, str) else None
    if alias is None:
        return {}

    return {"tool_choice": encode({**choice, "name": alias})}


def _released_choice(choice: JsonObject | str | None) -> Changes:
    """Return the change that releases a forced choice; {} for any other."""
    if not isinstance(choice, dict) or choice.get("type") not in {"any", "tool"}:
        return {}

    released: JsonObject = {"type": "auto"}
    if "disable_parallel_tool_use" in choice:
        released["disable_parallel_tool_use"] = choice["disable_parallel_tool_use"]
    return {"tool_choice": encode(released)}


def _text_parts(message: _ReadMessage) -> Sequence[str]:
    return text_blocks(message.content)


def _signatures(message: _ReadMessage) -> Sequence[str]:
    return signatures(message.content)


def _prefill(messages: Sequence[_ReadMessage]) -> str | None:
    """Return the text of an assistant's message at the end, which the model is to continue."""
    if not messages:
        return None

    last = messages[-1]
    if last.role != "assistant" or last.content is None:
        return None
    return visible_text(last.content)


def _key(message: _ReadMessage, text: str) -> str:
    ids = call_ids(message.content)
    return calls_key(ids) if ids else text_key(text)
