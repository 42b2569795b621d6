"""A provider's response of Anthropic messages, and its messages in the transcript.

Blocks of every type stay as they came: thinking with its signature, server tools and their results,
citations, images, types that nobody knows yet. Only the calls that leave the transcript are taken
out, and blank text, which the API gives now and then but does not accept in a request.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from claw_contract.base import JsonObject
from claw_mediate.core import json_splice, tool_result
from claw_mediate.core.continuity import calls_key, text_key
from claw_mediate.core.reinjection import summarize_arguments, summarize_result
from claw_mediate.core.tool_catalog import ToolCatalog
from claw_mediate.core.types import ModelResponse, Round, ToolCall, ToolResult
from claw_mediate.dialects.anthropic.request import ContentBlock, read_block, visible_text
from claw_mediate.dialects.base import (
    MAX_PARTS,
    TERMINAL_TEXT,
    RunnerRequest,
    UnreadableResponseError,
)
from claw_mediate.dialects.bodies import Changes, encode, seed_of, unique_ids
from claw_mediate.dialects.members import split_array
from claw_state.continuity import Anchor


def response_anchor(response: ModelResponse, request: RunnerRequest, *, terminal: bool) -> Anchor:
    """Return the anchor of a response: by its native calls, else by its text.

    The text begins with what the runner began of it.
    """
    if response.calls and not terminal:
        key = calls_key(call.id for call in response.calls)
        return Anchor(key, request.evidence.before)

    text = response_text(response)
    if terminal and not text.strip():
        text = TERMINAL_TEXT
    return Anchor(text_key((request.prefill_text or "") + text), request.evidence.before)


def error_body(body: bytes) -> bytes | None:
    """Return a provider's error body, ``{"type": "error", "error": …}``, in one line.

    None for any other body.
    """
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None

    if not isinstance(document, dict) or not isinstance(document.get("error"), dict):
        return None

    return msgspec.json.encode({**document, "type": "error"})


class _Response(msgspec.Struct):
    content: list[ContentBlock]
    stop_reason: Any = None
    usage: dict[str, Any] | None = None


class _RawResponse(msgspec.Struct):
    content: msgspec.Raw


_THINKING = ("thinking", "redacted_thinking")
_READ_MEMBERS = ("content", "usage", "stop_reason")
_BLOCK_MEMBERS = ("type", "id", "name", "input", "text")
_READ_MARKS = json_splice.marks(_READ_MEMBERS)
_BLOCK_MARKS = json_splice.marks(_BLOCK_MEMBERS)

_response_decoder = msgspec.json.Decoder(_Response)
_raw_response_decoder = msgspec.json.Decoder(_RawResponse)


def read_response(body: bytes, catalog: ToolCatalog) -> ModelResponse:
    """Return the view of a response; its ``message`` is the array of content blocks.

    Raises ``UnreadableResponseError``.
    """
    try:
        json_splice.check_utf8(body)
        view = _response_decoder.decode(body)
        if not all(block.type for block in view.content):
            raise UnreadableResponseError("the provider's response has a block without a type")
        if len(view.content) > MAX_PARTS:
            raise UnreadableResponseError(
                f"the provider's response holds more than {MAX_PARTS} blocks"
            )

        content = _find_content(body)
        calls = _read_calls(view, catalog, body)
    except json_splice.JsonSpliceError as error:
        raise UnreadableResponseError(f"the provider's response is ambiguous: {error}") from error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise UnreadableResponseError("the provider's response is not a message") from error

    return ModelResponse(body, content, calls, view.usage or {})


def _find_content(body: bytes) -> bytes:
    """Return the array of blocks.

    Raises ``RepeatedMemberError`` for a member that is read here and stands twice.
    """
    if json_splice.stand_once(_READ_MARKS, body):
        content = bytes(_raw_response_decoder.decode(body).content)
    else:
        found = json_splice.find_members(body, _READ_MEMBERS)["content"]
        content = body[found.start : found.end]

    for block in split_array(content):
        if not json_splice.stand_once(_BLOCK_MARKS, block):
            json_splice.find_members(block, _BLOCK_MEMBERS)

    return content


def keep_calls(response: ModelResponse, catalog: ToolCatalog, count: int) -> ModelResponse:
    """Return a message with its first calls only (``Dialect.keep_calls``)."""
    blocks: list[bytes] = []
    calls = 0
    for block in _raw_blocks(response):
        calls += read_block.decode(block).type == "tool_use"
        if calls > count:
            break
        blocks.append(block)

    body = json_splice.edit(response.body, {"content": _write_array(blocks)})
    return read_response(body, catalog)


def write_response(
    response: ModelResponse, _request: RunnerRequest, usage: JsonObject, *, terminal: bool
) -> bytes:
    """Return the provider's bytes with ``usage``.

    A terminal response has the model's text without its call.
    """
    changes: Changes = {}
    if usage != response.usage:
        changes["usage"] = encode(usage)

    if terminal:
        changes["content"] = _terminal_content(response)
        changes["stop_reason"] = b'"end_turn"'
    elif response.calls:
        blocks = _blocks_with_calls(response, response.calls)
        if blocks != _raw_blocks(response):
            # Some calls got an id from us.
            changes["content"] = _write_array(blocks)

    return json_splice.edit(response.body, changes) if changes else response.body


def _terminal_content(response: ModelResponse) -> bytes:
    """Return the content without its calls, and with a text."""
    blocks = [block for block in _blocks_with_calls(response, ()) if not _is_blank(block)]
    has_text = any(read_block.decode(block).type == "text" for block in blocks)
    if not has_text:
        blocks.append(encode({"type": "text", "text": TERMINAL_TEXT}))
    return _write_array(blocks)


def write_hidden_rounds(rounds: Sequence[Round], *, replayed: bool) -> tuple[bytes, ...]:
    """Return the messages of rounds.

    Of each round they are the assistant's message with the calls that were answered, and the user's
    with their results. A round without results has none.
    """
    messages: list[bytes] = []

    for past in rounds:
        results = [
            result
            for result in past.results
            if not (replayed and result.code in tool_result.NOT_REINJECTED)
        ]
        if not results:
            continue

        calls = [result.call for result in results]
        blocks = _blocks_with_calls(past.response, calls, resendable=True)
        # The API refuses a text block that is blank.
        content = _write_array([block for block in blocks if not _is_blank(block)])
        messages.append(b'{"role":"assistant","content":%b}' % content)
        messages.append(_write_results(results))

    return tuple(messages)


def write_answers(answered: Round) -> tuple[bytes, ...]:
    """Return the user's message with the results of a round."""
    return (_write_results(answered.results),)


def _write_results(results: Sequence[ToolResult]) -> bytes:
    return encode({"role": "user", "content": [_result_block(result) for result in results]})


def response_text(response: ModelResponse) -> str:
    """Return the visible text of a response."""
    return visible_text([read_block.decode(block) for block in _raw_blocks(response)])


def _read_calls(view: _Response, catalog: ToolCatalog, body: bytes) -> tuple[ToolCall, ...]:
    blocks = [block for block in view.content if block.type == "tool_use"]
    ids = unique_ids((block.id for block in blocks), lambda: f"toolu{seed_of(body)}")

    calls: list[ToolCall] = []
    for block, call_id in zip(blocks, ids, strict=True):
        # The last block of a response that ran out of tokens may have been closed for the model.
        cut = view.stop_reason == "max_tokens" and block is view.content[-1]
        name = block.name if isinstance(block.name, str) else ""
        calls.append(catalog.make_call(call_id, name, bytes(block.input).decode(), cut=cut))

    return tuple(calls)


def _raw_blocks(response: ModelResponse) -> list[bytes]:
    content = response.message
    return [content[start:end] for start, end in json_splice.element_spans(content)]


def _blocks_with_calls(
    response: ModelResponse, kept: Sequence[ToolCall], *, resendable: bool = False
) -> list[bytes]:
    """Return the blocks of a response, of its calls only those that are kept.

    Calls have our ids. ``resendable``: in the form in which the API accepts them in a request.
    """
    kept_ids = {call.id for call in kept}
    calls = iter(response.calls)
    blocks: list[bytes] = []

    for raw in _raw_blocks(response):
        view = read_block.decode(raw)
        if view.type != "tool_use":
            blocks.append(raw)
            continue

        call = next(calls)
        if call.id not in kept_ids:
            continue

        changes: Changes = {}
        if view.id != call.id:
            changes["id"] = encode(call.id)
        if resendable:
            changes |= _resendable_changes(view, call)
        blocks.append(json_splice.edit(raw, changes) if changes else raw)

    return blocks


def _is_blank(block: bytes) -> bool:
    view = read_block.decode(block)
    return view.type == "text" and isinstance(view.text, str) and not view.text.strip()


def _resendable_changes(view: ContentBlock, call: ToolCall) -> Changes:
    """Return the changes with which the API accepts a call in a request.

    Its name is of plain characters, and its input an object.
    """
    changes: Changes = {}
    if call.safe_name is not None:
        changes["name"] = encode(call.safe_name)
    if bytes(view.input)[:1] != b"{":
        changes["input"] = b'{"invalid_json":%b}' % view.input
    return changes


def _result_block(result: ToolResult) -> JsonObject:
    text = result.content.decode()
    content: Any = text
    if result.images:
        content = [{"type": "text", "text": text}]
        for image in result.images:
            source = {"type": "base64", "media_type": image.media_type, "data": image.data}
            content.append({"type": "image", "source": source})

    block: JsonObject = {"type": "tool_result", "tool_use_id": result.call.id, "content": content}
    if not result.ok:
        block["is_error"] = True
    return block


def _write_array(blocks: Sequence[bytes]) -> bytes:
    return b"[" + b",".join(blocks) + b"]"


def summarize(messages: bytes) -> bytes:
    """Return shorter hidden messages: their calls, and how each ended.

    Texts, long arguments and the data of results are left out. Thinking stays: it is signed, and
    the API accepts the call after it with all of it or not at all.
    """
    array = b"[%b]" % messages
    spans = json_splice.element_spans(array)
    return b",".join(_summarize_message(array[start:end]) for start, end in spans)


def _summarize_message(message: bytes) -> bytes:
    parsed = json_splice.Object(message)
    content = parsed.value("content") or b"[]"
    spans = json_splice.element_spans(content)
    blocks = [_summarize_block(content[start:end]) for start, end in spans]
    return parsed.edit({"content": _write_array([block for block in blocks if block])})


def _summarize_block(block: bytes) -> bytes:
    """Return a shorter block; b"" for one that is left out."""
    view = read_block.decode(block)

    if view.type == "tool_use":
        summary = summarize_arguments(bytes(view.input).decode())
        return block if summary is None else json_splice.edit(block, {"input": encode(summary)})

    if view.type == "tool_result":
        content = msgspec.json.decode(json_splice.Object(block).value("content") or b'""')
        # A result with images begins with its text (``_result_block``); the images are left out.
        text = content if isinstance(content, str) else content[0]["text"]
        return json_splice.edit(block, {"content": encode(summarize_result(text))})

    return block if view.type in _THINKING else b""
