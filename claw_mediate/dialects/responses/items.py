"""Items of OpenAI Responses, in a request's ``input`` and a response's ``output``.

docs/spec/responses.md section 4.

    item                                          kind     its answer, if the proxy gives one
    ────────────────────────────────────────────  ───────  ────────────────────────────────────────
    function_call                                 call     function_call_output
    custom_tool_call                              call     custom_tool_call_output
    local_shell_call, shell_call,                 call     its own …_output
      apply_patch_call
    mcp_approval_request                          call     mcp_approval_response: not approved
    computer_call, the client's tool_search_call  call     none: the item leaves the transcript
    everything else, unknown types too            other    none

A ``reasoning`` item belongs to the items after it, up to the next one: the API accepts neither
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
    "web_search_call",
    "file_search_call",
    "code_interpreter_call",
    IMAGE,
    "mcp_call",
    "mcp_list_tools",
    "program",
}
"""Items of tools that the provider runs."""
TOLD: Final = ("input_messages", "output_messages")
"""Members of vLLM's responses, in a form of its own, with everything its model read and wrote."""
_ID_PREFIXES = {FUNCTION: "fc", MESSAGE: "msg", REASONING: "rs"}
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
        """The type; "" for one that is no text.

        An item without type is a message if it has a role, and a reference if it has only an id.
        """
        if self.type is None and not self.role and self.id:
            return REFERENCE
        if self.type is None and self.role is not None:
            return MESSAGE
        return self.type if isinstance(self.type, str) else ""

    @property
    def is_call(self) -> bool:
        """True if the runner, or the proxy, must answer the item."""
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
        """True if the item stays in a summary: a call, an answer, a message or a compaction."""
        return (
            self.is_call or self.is_message or self.kind == "compaction" or self.speaker == "tool"
        )

    @property
    def own_call_id(self) -> Any:
        """The id by which the answer to the item names it."""
        return self.id if self.kind == _APPROVAL else self.call_id

    @property
    def speaker(self) -> Role:
        """``user``, ``assistant``, ``system``, ``developer`` or ``tool``, by who made the item.

        None if the item does not say so.
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
    """Raise ``DecodeError`` unless the parts of a message, or of reasoning, are objects.

    No others can be streamed.
    """
    if item.kind not in {MESSAGE, REASONING}:
        return

    for parts in (item.content, item.summary):
        if bytes(parts)[:1] == b"[":
            _parts.decode(parts)


def item_name(item: Item) -> str:
    """Return the name of the tool that a call names; "" if it names none."""
    try:
        return _name.decode(item.name)
    except (msgspec.DecodeError, RecursionError):
        return ""


def tool_name(raw: bytes) -> str | None:
    """Return the name of a declared tool; "" if it has none, None if it is no tool.

    The tool may have the form of chat completions.
    """
    try:
        tool = _named_tool.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None

    name = tool.name
    if name is None and isinstance(tool.function, dict):
        name = tool.function.get("name")

    if name is None:
        return ""
    return name if isinstance(name, str) else None


def signatures(item: Item) -> Sequence[str]:
    """Return what makes an item of reasoning known: its id, and its encrypted content.

    Some runners drop the one, some the other. () for other items.
    """
    if item.kind != REASONING:
        return ()
    return [each for each in (item.id, item.encrypted_content) if isinstance(each, str) and each]


def mint_item_id(kind: str, seed: str, index: int) -> str:
    """Return an id, of letters and digits, for an item of this type that has none of its own."""
    return f"{_ID_PREFIXES.get(kind, 'item')}{seed}{index}"


def join_items(items: Iterable[bytes]) -> bytes:
    """Return the array of these items."""
    return b"[" + b",".join(items) + b"]"


def output_text(items: Iterable[Item]) -> str:
    """Return the visible text of all messages together: runners join them."""
    return "".join(visible_text(item) for item in items if item.is_message)


def keep_items(
    raw: Sequence[bytes], views: Sequence[Item], stays: Callable[[int], bool], *, dropped: str = ""
) -> list[bytes]:
    """Return the items without the calls that must leave (``kept_places``)."""
    return [raw[index] for index in kept_places(views, stays, dropped=dropped)]


def kept_places(
    views: Sequence[Item], stays: Callable[[int], bool], *, dropped: str = ""
) -> list[int]:
    """Return the indexes of the items without the calls that must leave.

    ``stays`` is asked for each call, by its index. ``dropped``: a type of items that leave, too.
    Reasoning leaves if everything it led to does.
    """
    # From the last item to the first, because what reasoning led to comes after it.
    kept: list[int] = []
    has_lost_result = False  # True if something that the reasoning before led to has left
    has_kept_result = False  # True if something that it led to stays

    for index in reversed(range(len(views))):
        view = views[index]
        if view.kind == REASONING:
            is_orphan = has_lost_result and not has_kept_result
            if not is_orphan:
                kept.append(index)
            has_lost_result = False
            has_kept_result = False
            continue

        leaves = (view.is_call and not stays(index)) or view.kind == dropped
        if leaves:
            has_lost_result = True
            continue

        if view.is_call or view.is_message:
            has_kept_result = True
        kept.append(index)

    return kept[::-1]


def has_answer(item: Item) -> bool:
    """Return True if a call can be answered in text. One that can't leaves the transcript."""
    return item.kind not in {"computer_call", _SEARCH}


def write_answer(item: Item, result: ToolResult) -> bytes:
    """Return the item that answers a call, in the form of its kind."""
    text = result.content.decode()
    call_id = result.call.id

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

    # A program of the provider's made the call, and the answer goes to it.
    if _type_of(item.caller) == "program":
        answer["caller"] = msgspec.json.decode(item.caller)
    return encode(answer)


def _output(text: str, result: ToolResult) -> Any:
    if not result.images:
        return text

    parts = [{"type": "input_text", "text": text}]
    for image in result.images:
        url = f"data:{image.media_type};base64,{image.data}"
        parts.append({"type": "input_image", "image_url": url})
    return parts


def _type_of(raw: msgspec.Raw) -> Any:
    """Return the ``type`` of a member that is an object; None for any other."""
    try:
        return _typed.decode(raw).type
    except (msgspec.DecodeError, RecursionError):
        return None
