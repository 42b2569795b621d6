"""Refusals of OpenAI for Responses requests, in its words (reported, or measured
at the API by others).

Rules look at the whole context: what the provider has kept of earlier responses, and behind it the
items of this request.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from tests.wires import Body

_MAX_LENGTH = 64
_MAX_TOOLS = 128
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_PREFIXES = {"message": "msg", "reasoning": "rs", "function_call": "fc", "custom_tool_call": "ctc"}
"""With what the id of an item begins."""
_CALLS = {"function_call", "custom_tool_call", "local_shell_call", "shell_call", "apply_patch_call"}


class RefusedError(Exception):
    """A request that the API refuses; ``body`` is what it says."""

    def __init__(
        self, message: str, *, code: str | None = None, param: str | None = None, status: int = 400
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body: Body = {
            "error": {
                "message": message,
                "type": "invalid_request_error",
                "param": param,
                "code": code,
            }
        }


def kind_of(item: Body) -> str:
    """Return the type of an item; a message may have none."""
    return str(item.get("type") or "message")


def check_members(request: Body) -> None:
    """Check the members beside the items."""
    if request.get("previous_response_id") and request.get("conversation"):
        raise RefusedError(
            "Mutually exclusive parameters: 'previous_response_id' and 'conversation'.",
            param="conversation",
        )
    if "stream_options" in request and not request.get("stream"):
        raise RefusedError(
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
            param="stream_options",
        )
    tools = request.get("tools") or []
    if len(tools) > _MAX_TOOLS:
        raise RefusedError(
            f"Invalid 'tools': array too long. Expected an array with maximum length {_MAX_TOOLS}.",
            param="tools",
        )
    names = [tool["name"] for tool in tools if "name" in tool]
    for index, name in enumerate(names):
        if not _NAME.fullmatch(name) or name in names[:index]:
            raise RefusedError(
                f"Invalid 'tools[{index}].name': {name!r}.", param=f"tools[{index}].name"
            )
    choice = request.get("tool_choice")
    if isinstance(choice, dict) and "name" in choice and choice["name"] not in names:
        raise RefusedError(
            f"Tool choice '{choice['name']}' not found in 'tools' parameter.", param="tool_choice"
        )


def check_items(items: Sequence[Body]) -> None:
    """Check each item of ``input`` by itself."""
    for index, item in enumerate(items):
        for name in ("id", "call_id"):
            value = item.get(name)
            if value is not None and not 0 < len(value) <= _MAX_LENGTH:
                raise RefusedError(
                    f"Invalid 'input[{index}].{name}': string too long. Expected a string with "
                    f"maximum length {_MAX_LENGTH}, "
                    f"but got a string with length {len(value)} instead.",
                    param=f"input[{index}].{name}",
                )
        prefix = _PREFIXES.get(kind_of(item), "")
        if not (item.get("id") or prefix).startswith(prefix):
            raise RefusedError(
                (
                    f"Invalid 'input[{index}].id': '{item['id']}'. Expected an ID that begins "
                    f"with '{prefix}'."
                ),
                param=f"input[{index}].id",
            )


def check_context(
    context: Sequence[Body], kept: Mapping[str, Body], sealed: Collection[str]
) -> None:
    """Check all items that the model would read.

    ``kept``: the items that the provider has stored, by id. ``sealed``: the encrypted contents that
    it has made.
    """
    ids = [item["id"] for item in context if item.get("id")]
    for item_id in ids:
        if ids.count(item_id) > 1:
            raise RefusedError(
                f"Duplicate item found with id {item_id}. Remove duplicate items from "
                "your input and try again."
            )
    _check_calls(context)
    for item, behind in zip(context, [*context[1:], {}], strict=True):
        if kind_of(item) == "reasoning":
            _check_reasoning(item, behind, kept, sealed)
    _check_required(context, kept)


def _check_calls(context: Sequence[Body]) -> None:
    unanswered: list[str] = []
    for item in context:
        kind = kind_of(item)
        if kind in _CALLS:
            unanswered.append(item["call_id"])
        elif kind.endswith("_call_output"):
            call_id = item["id"] if kind == "local_shell_call_output" else item["call_id"]
            if call_id not in unanswered:
                raise RefusedError(
                    f"No tool call found for function call output with call_id {call_id}.",
                    param="input",
                )
            unanswered.remove(call_id)
    if unanswered:
        raise RefusedError(
            f"No tool output found for function call {unanswered[0]}.", param="input"
        )


def _check_reasoning(
    item: Body, behind: Body, kept: Mapping[str, Body], sealed: Collection[str]
) -> None:
    content = item.get("encrypted_content")
    if content and content not in sealed:
        raise RefusedError(
            "The encrypted content could not be verified.", code="invalid_encrypted_content"
        )
    if not content and item.get("id") not in kept:
        raise RefusedError(
            f"Item with id '{item.get('id')}' not found. Items are not persisted when `store` is "
            "set to false. "
            "Try again with `store` set to true, or remove this item from your input.",
            param="input",
            status=404,
        )
    if kind_of(behind) not in {"reasoning", *_CALLS} and behind.get("role") != "assistant":
        raise RefusedError(
            (
                f"Item '{item.get('id')}' of type 'reasoning' was provided without its "
                "required following item."
            ),
            param="input",
        )


def _check_required(context: Sequence[Body], kept: Mapping[str, Body]) -> None:
    """Check that a stored item stands with the reasoning that led to it, which is
    the one right before it in ``kept``.
    """
    ids = {item.get("id") for item in context}
    needed: str | None = None
    for item_id, item in kept.items():
        if kind_of(item) == "reasoning":
            needed = item_id
        elif item_id in ids and needed is not None and needed not in ids:
            raise RefusedError(
                (
                    f"Item '{item_id}' of type '{kind_of(item)}' was provided without its "
                    f"required 'reasoning' item: '{needed}'."
                ),
                param="input",
            )
