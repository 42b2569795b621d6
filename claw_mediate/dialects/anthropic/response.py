"""Anthropic messages, the provider's response: its view, and the messages of hidden rounds.

Blocks of every type survive as they came: thinking with its signature, server tools and their results, citations, images,
types that nobody knows yet. Only the calls that leave the transcript are taken out, and blank text, which the API gives now
and then but does not take back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from claw_contract.base import JsonObject
from claw_mediate.core import json_splice, tool_result
from claw_mediate.core.reinjection import summarize_arguments, summarize_result
from claw_mediate.core.tool_catalog import ToolCatalog
from claw_mediate.core.types import ModelResponse, Round, ToolCall, ToolResult
from claw_mediate.dialects.anthropic.wire_types import Block, read_block, visible_text
from claw_mediate.dialects.base import MAX_PARTS, TERMINAL_TEXT, RunnerRequest, UnreadableResponseError
from claw_mediate.dialects.body_edits import Changes, encode


class _Response(msgspec.Struct):
    content: list[Block]
    stop_reason: Any = None
    usage: dict[str, Any] | None = None


_response_decoder = msgspec.json.Decoder(_Response)


def read_response(body: bytes, catalog: ToolCatalog) -> ModelResponse:
    """The view of a response; its ``message`` is the array of content blocks."""
    try:
        json_splice.check_utf8(body)
        view = _response_decoder.decode(body)
        if not all(block.type for block in view.content):
            raise UnreadableResponseError("the provider's response has a block without a type")
        if len(view.content) > MAX_PARTS:
            raise UnreadableResponseError(f"the provider's response holds more than {MAX_PARTS} blocks")
        place = json_splice.find_members(body, ("content", "usage", "stop_reason"))["content"]
        for start, _ in json_splice.element_spans(body, place.start):
            json_splice.find_members(body, ("type", "id", "name", "input", "text"), start)
        calls = _read_calls(view, catalog, hashlib.sha256(body).hexdigest()[:16])
    except json_splice.JsonSpliceError as error:
        raise UnreadableResponseError(f"the provider's response is ambiguous: {error}") from error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise UnreadableResponseError("the provider's response is not a message") from error
    return ModelResponse(body, body[place.start : place.end], calls, view.usage or {})


def write_response(reply: ModelResponse, request: RunnerRequest, usage: JsonObject, *, terminal: bool) -> bytes:
    """Upstream's bytes; ``usage`` is the turn's. A terminal reply is the model's words without its call."""
    del request
    changes: dict[str, bytes | None] = {}
    if usage != reply.usage:
        changes["usage"] = encode(usage)
    if terminal:
        words = [block for block in _blocks_with_calls(reply, ()) if not _is_blank(block)]
        said = any(read_block.decode(block).type == "text" for block in words)
        done = [] if said else [encode({"type": "text", "text": TERMINAL_TEXT})]
        changes |= {"content": _write_array([*words, *done]), "stop_reason": b'"end_turn"'}
    elif (named := _blocks_with_calls(reply, reply.calls)) != _raw_blocks(reply):
        changes["content"] = _write_array(named)  # with the ids that were minted
    return json_splice.edit(reply.body, changes) if changes else reply.body


def write_hidden_rounds(rounds: Sequence[Round], *, replayed: bool) -> tuple[bytes, ...]:
    """Of each round the assistant's message with the calls that were answered, and the user's with their results."""
    messages: list[bytes] = []
    for past in rounds:
        kept = [answer for answer in past.answers if not (replayed and answer.code in tool_result.NOT_REINJECTED)]
        if kept:
            said = _blocks_with_calls(past.reply, [answer.call for answer in kept], taken_back=True)
            messages += [
                b'{"role":"assistant","content":%b}' % _write_array([block for block in said if not _is_blank(block)]),
                encode({"role": "user", "content": [_result_block(answer) for answer in kept]}),
            ]
    return tuple(messages)


def merge_messages(prefill: bytes, message: bytes) -> bytes:
    """An assistant's message that the runner began and the model went on with, as one message."""
    begun = json_splice.Object(prefill).value("content") or b"[]"
    blocks = (
        _write_array([encode({"type": "text", "text": msgspec.json.decode(begun)})]) if begun[:1] == b'"' else begun
    )
    went_on = json_splice.Object(message).value("content") or b"[]"
    content = json_splice.append(blocks, [went_on[start:end] for start, end in json_splice.element_spans(went_on)])
    return b'{"role":"assistant","content":%b}' % content


def response_text(reply: ModelResponse) -> str:
    """The visible text of a reply."""
    return visible_text([read_block.decode(block) for block in _raw_blocks(reply)])


def _read_calls(view: _Response, catalog: ToolCatalog, seed: str) -> tuple[ToolCall, ...]:
    """The calls, each with an id of its own: one that is missing or taken is minted, of letters and digits only."""
    calls: list[ToolCall] = []
    taken: set[str] = set()
    for block in view.content:
        if block.type == "tool_use":
            index = len(calls)
            own = isinstance(block.id, str) and bool(block.id) and block.id not in taken
            # The last block of an answer that ran out of tokens may have been closed for the model.
            cut = view.stop_reason == "max_tokens" and block is view.content[-1]
            name = block.name if isinstance(block.name, str) else ""
            text = bytes(block.input).decode()
            call_id = block.id if own else f"toolu{seed}{index}"
            taken.add(call_id)
            calls.append(catalog.call(call_id, name, text, cut=cut))
    return tuple(calls)


def _raw_blocks(reply: ModelResponse) -> list[bytes]:
    return [reply.message[start:end] for start, end in json_splice.element_spans(reply.message)]


def _blocks_with_calls(reply: ModelResponse, kept: Sequence[ToolCall], *, taken_back: bool = False) -> list[bytes]:
    """The blocks of a reply with exactly the kept calls, each with the id that its answer names."""
    calls = iter(reply.calls)
    ids = {call.id for call in kept}
    blocks: list[bytes] = []
    for raw in _raw_blocks(reply):
        view = read_block.decode(raw)
        if view.type != "tool_use":
            blocks.append(raw)
        elif (call := next(calls)).id in ids:
            changes: Changes = {} if view.id == call.id else {"id": encode(call.id)}
            if taken_back:
                changes |= _resendable_changes(view, call)
            blocks.append(json_splice.edit(raw, changes) if changes else raw)
    return blocks


def _is_blank(block: bytes) -> bool:
    view = read_block.decode(block)
    return view.type == "text" and isinstance(view.text, str) and not view.text.strip()


def _resendable_changes(view: Block, call: ToolCall) -> Changes:
    """What must change for the API to take a call back: its name is of plain characters, its input an object."""
    changes: Changes = {} if call.told_as is None else {"name": encode(call.told_as)}
    if bytes(view.input)[:1] != b"{":
        changes["input"] = b'{"invalid_json":%b}' % view.input
    return changes


def _result_block(answer: ToolResult) -> JsonObject:
    block: JsonObject = {"type": "tool_result", "tool_use_id": answer.call.id, "content": answer.content.decode()}
    return block if answer.ok else {**block, "is_error": True}


def _write_array(blocks: Sequence[bytes]) -> bytes:
    return b"[" + b",".join(blocks) + b"]"


_THOUGHT = ("thinking", "redacted_thinking")


def summarize(messages: bytes) -> bytes:
    """Hidden messages with their calls and how each went; what was said, sent and answered is left out.

    What was thought before a call stays: it is signed, and the API takes the call with all of it or not at all.
    """
    array = b"[%b]" % messages
    return b",".join(_summarize_message(array[start:end]) for start, end in json_splice.element_spans(array))


def _summarize_message(message: bytes) -> bytes:
    read = json_splice.Object(message)
    content = read.value("content") or b"[]"
    blocks = [_summarize_block(content[start:end]) for start, end in json_splice.element_spans(content)]
    return read.edit({"content": b"[%b]" % b",".join(filter(None, blocks))})


def _summarize_block(block: bytes) -> bytes:
    view = read_block.decode(block)
    if view.type == "tool_use":
        less = summarize_arguments(bytes(view.input).decode())
        return block if less is None else json_splice.edit(block, {"input": encode(less)})
    if view.type == "tool_result":
        told = msgspec.json.decode(json_splice.Object(block).value("content") or b'""', type=str)
        return json_splice.edit(block, {"content": encode(summarize_result(told))})
    return block if view.type in _THOUGHT else b""
