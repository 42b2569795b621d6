"""Items of OpenAI Responses, in a request's ``input`` and a response's ``output``
(docs/spec/responses.md section 4).

item                                                      kind     its answer, where the proxy gives
one ────────────────────────────────────────────────────────  ───────
───────────────────────────────────── function_call                                             call
function_call_output custom_tool_call                                          call
custom_tool_call_output local_shell_call, shell_call, apply_patch_call            call     its own
…_output mcp_approval_request                                      call     mcp_approval_response:
not approved computer_call, tool_search_call of the client             call     none: the item
leaves the transcript everything else, unknown types too                        other    none

A ``reasoning`` item belongs to the items behind it, up to the next one: the API takes neither
without the other.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from claw_contract.base import JsonObject
from claw_mediate.core.types import ToolResult
from claw_mediate.dialects.bodies import ABSENT, encode
from claw_mediate.dialects.members import split_array
from claw_mediate.dialects.openai.wire_types import ChatMessage, visible_text

REASONING: Final = "reasoning"
MESSAGE: Final = "message"
IMAGE: Final = "image_generation_call"
FUNCTION: Final = "function_call"
CUSTOM: Final = "custom_tool_call"
REFERENCE: Final = "item_reference"
_SHELL = "shell_call"
_APPROVAL = "mcp_approval_request"
_SEARCH = "tool_search_call"
_CALLS = {
    FUNCTION,
    CUSTOM,
    "local_shell_call",
    _SHELL,
    "apply_patch_call",
    _APPROVAL,
    "computer_call",
    _SEARCH,
}
_HOSTED = {
    *("web_search_call", "file_search_call", "code_interpreter_call", IMAGE),
    *("mcp_call", "mcp_list_tools", "program"),
}
TOLD: Final = ("input_messages", "output_messages")
"""Members of vLLM's responses with all that its model was told, and said, in a form of its own."""
_LOCAL = (None, "local")
"""Types of a shell's environment that is the runner's own."""

type Role = str | None


class _TypedObject(msgspec.Struct):
    type: Any = None


class _NamedTool(msgspec.Struct):
    name: Any = None
    function: Any = None


class Item(ChatMessage):
    """One item. A message may have a role and no type."""

    type: Any = None
    id: Any = None
    call_id: Any = None
    namespace: Any = None
    arguments: msgspec.Raw = msgspec.Raw(b'""')
    status: Any = None
    execution: Any = None
    summary: msgspec.Raw = ABSENT
    environment: msgspec.Raw = ABSENT
    caller: msgspec.Raw = ABSENT
    encrypted_content: Any = None
    tools: Any = None

    @property
    def kind(self) -> str:
        """Return the type; "" for one that is none. An id without type and role is a reference."""
        if self.type is None and not self.role and self.id:
            return REFERENCE
        if self.type is None and self.role is not None:
            return MESSAGE
        return self.type if isinstance(self.type, str) else ""

    @property
    def is_call(self) -> bool:
        """Return whether the runner, or the proxy, must answer the item."""
        if self.kind == _SEARCH:
            return bool(self.execution == "client")
        if self.kind == _SHELL:
            return _type_of(self.environment) in _LOCAL
        return self.kind in _CALLS

    @property
    def is_message(self) -> bool:
        return self.kind == MESSAGE

    @property
    def is_in_summary(self) -> bool:
        """Return whether the item stays where there is room for the calls and how
        each went only.
        """
        return (
            self.is_call or self.is_message or self.kind == "compaction" or self.speaker == "tool"
        )

    @property
    def own_call_id(self) -> Any:
        """Return the id by which the item's answer names it."""
        return self.id if self.kind == _APPROVAL else self.call_id

    @property
    def speaker(self) -> Role:
        """Return ``user``, ``assistant``, ``system``, ``developer``, ``tool``; None
        for an item that says nothing of it.
        """
        if self.is_message:
            return self.role if isinstance(self.role, str) else None
        if self.kind in {REASONING, REFERENCE} or self.kind in _CALLS or self.kind in _HOSTED:
            return "assistant"
        return "tool" if self.kind.endswith(("_output", "_response")) else None


split_items = split_array
item_decoder = msgspec.json.Decoder(Item)
_typed = msgspec.json.Decoder(_TypedObject)
_parts = msgspec.json.Decoder(list[_TypedObject])
_name = msgspec.json.Decoder(str)
_named_tool = msgspec.json.Decoder(_NamedTool)


def read_item(raw: bytes) -> Item:
    return item_decoder.decode(raw)


def check_parts(item: Item) -> None:
    """Check that the parts of a message, or of reasoning, are objects: only such can be streamed.

    Raise ``DecodeError``.
    """
    if item.kind in {MESSAGE, REASONING}:
        for parts in (item.content, item.summary):
            if bytes(parts)[:1] == b"[":
                _parts.decode(parts)


def item_name(item: Item) -> str:
    """Return the name that a call calls; "" where it has none."""
    try:
        return _name.decode(item.name)
    except (msgspec.DecodeError, RecursionError):
        return ""


def tool_name(raw: bytes) -> str | None:
    """Return the name of a declared tool, also in chat's form; "" for one without;
    None for what is no tool.
    """
    try:
        tool = _named_tool.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None
    name = (
        tool.function.get("name")
        if tool.name is None and isinstance(tool.function, dict)
        else tool.name
    )
    return name if isinstance(name, str) else "" if name is None else None


def join_items(items: Iterable[bytes]) -> bytes:
    return b"[" + b",".join(items) + b"]"


def output_text(items: Iterable[Item]) -> str:
    """Return the visible text of all messages together: runners join them."""
    return "".join(visible_text(item) for item in items if item.is_message)


def keep_items(
    raw: Sequence[bytes], views: Sequence[Item], stays: Callable[[int], bool], *, dropped: str = ""
) -> list[bytes]:
    """Return the items without the calls that leave, and without the reasoning that
    led to nothing else.

    ``dropped``: a type of items that leave too.
    """
    backwards: list[bytes] = []
    led_to = remaining = 0
    for index in reversed(range(len(raw))):
        view = views[index]
        if view.kind == REASONING:
            is_orphan = led_to > 0 and remaining == 0
            backwards += [] if is_orphan else [raw[index]]
            led_to = remaining = 0
            continue
        has_left = (view.is_call and not stays(index)) or view.kind == dropped
        if view.is_call or view.is_message or has_left:
            led_to, remaining = led_to + 1, remaining + (not has_left)
        backwards += [] if has_left else [raw[index]]
    return backwards[::-1]


def has_answer(item: Item) -> bool:
    """Return whether a call can be answered in text; one that can't leaves the transcript."""
    return item.kind not in {"computer_call", _SEARCH}


def write_answer(item: Item, result: ToolResult) -> bytes:
    """Return the item that answers a call, in the form of its kind."""
    text, call_id = result.content.decode(), result.call.id
    answer: JsonObject
    match item.kind:
        case "shell_call":
            failed = {"stdout": "", "stderr": text, "outcome": {"type": "exit", "exit_code": 1}}
            answer = {"type": "shell_call_output", "call_id": call_id, "output": [failed]}
        case "local_shell_call":
            answer = {"type": "local_shell_call_output", "id": call_id, "output": text}
        case "apply_patch_call":
            answer = {
                "type": "apply_patch_call_output",
                "call_id": call_id,
                "status": "failed",
                "output": text,
            }
        case "mcp_approval_request":
            answer = {
                "type": "mcp_approval_response",
                "approval_request_id": call_id,
                "approve": False,
                "reason": text,
            }
        case "custom_tool_call":
            answer = {"type": "custom_tool_call_output", "call_id": call_id, "output": text}
        case _:
            answer = {
                "type": "function_call_output",
                "call_id": call_id,
                "output": _output(text, result),
            }
    if _type_of(item.caller) == "program":
        answer["caller"] = msgspec.json.decode(item.caller)
    return encode(answer)


def _output(text: str, result: ToolResult) -> Any:
    if not result.images:
        return text
    urls = [f"data:{image.media_type};base64,{image.data}" for image in result.images]
    return [
        {"type": "input_text", "text": text},
        *({"type": "input_image", "image_url": url} for url in urls),
    ]


def _type_of(raw: msgspec.Raw) -> Any:
    """Return the ``type`` of a member that is an object; None of any other."""
    try:
        return _typed.decode(raw).type
    except (msgspec.DecodeError, RecursionError):
        return None
