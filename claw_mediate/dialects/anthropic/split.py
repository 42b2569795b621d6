"""The splitting of an assistant's message of Anthropic messages, as live turns need it.

docs/spec/live.md section 6. An answer is blocks, of which each round has some.

    block of the runner's message      what becomes of it
    ─────────────────────────────────  ─────────────────────────────────────────────────────────────
    thinking of a hidden round         goes: the hidden message has it, in the provider's bytes
    text, and others, of a round       the same
    what the runner began (prefill)    begins the first hidden message, as in the turn
    blocks of the last reply           stay

``cache_control`` of a block that goes stays with it, on the hidden block with the same text.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from claw_mediate.core import json_splice
from claw_mediate.core.http import read_error_message
from claw_mediate.core.shown import (
    PREFILL,
    Cut,
    LiveRecord,
    Piece,
    find_cuts,
    signature_digest,
)
from claw_mediate.core.split import SplitRules
from claw_mediate.core.weave import Replace, Weaves, join_messages
from claw_mediate.dialects.anthropic.request import read_block, signatures
from claw_mediate.dialects.base import ReplayRules
from claw_mediate.dialects.bodies import decode_or_none, encode
from claw_mediate.dialects.members import split_array, split_object, string_member

_THINKING: Final = ("thinking", "redacted_thinking")
_REFUSALS: Final = ("cannot be modified", "Invalid `signature`")
_CALL: Final = "tool_use"
_MARK: Final = "cache_control"


class _Message(msgspec.Struct):
    role: Any = ""
    content: msgspec.Raw = msgspec.Raw(b"[]")


_message = msgspec.json.Decoder(_Message)
_string = msgspec.json.Decoder(str)


def split(messages: Sequence[bytes], record: LiveRecord) -> Weaves | None:
    """Return what takes the place of the first message: hidden messages, and the last reply."""
    message = messages[0]
    content = bytes(_message.decode(message).content)
    blocks = _read_blocks(content)
    if blocks is None:
        return None

    signed = record.signed
    own = [block for block in blocks if not _is_thinking_of(block, signed)]
    cuts = find_cuts([_read_piece(block) for block in own], record.shown)
    if not cuts:
        return None

    parts = _cut_blocks(own, cuts)
    hidden = [
        _keep_marks(messages, part)
        for messages, part in zip(record.messages, parts, strict=False)
        if messages
    ]
    if record.shown[0].number == PREFILL:
        hidden[:1] = [_continue(parts[0], hidden[0])]

    is_untouched = cuts[-1] == Cut(0) and len(own) == len(blocks)
    rest = message if is_untouched else _rest(message, content, parts[-1])
    return {0: Replace(join_messages(hidden), rest)}


def _read_blocks(content: bytes) -> list[bytes] | None:
    """Return the blocks of a content; a string is one. None for a form that we do not know."""
    if content[:1] == b'"':
        return [_text_block(_string.decode(content))]
    if content[:1] != b"[":
        return None

    blocks = split_array(content)
    is_known = all(decode_or_none(read_block, msgspec.Raw(block)) is not None for block in blocks)
    return blocks if is_known else None


def _text_block(text: str) -> bytes:
    return encode({"type": "text", "text": text})


def _read_piece(block: bytes) -> Piece:
    view = read_block.decode(block)
    if view.type == "text" and isinstance(view.text, str):
        return Piece("text", view.text)
    if view.type == _CALL:
        return Piece("call")
    return Piece("signed" if view.type in _THINKING else "other")


def _is_thinking_of(block: bytes, digests: Collection[str]) -> bool:
    signed_by = read_block.decode(block).signed_by
    return bool(signed_by) and signature_digest(signed_by) in digests


def _cut_blocks(blocks: Sequence[bytes], cuts: Sequence[Cut]) -> list[list[bytes]]:
    """Return the blocks of each round, and then those behind the last one."""
    parts: list[list[bytes]] = []
    start = Cut(0)
    for end in (*cuts, Cut(len(blocks))):
        part = [*blocks[start.piece : end.piece]]
        if end.offset:
            part.append(blocks[end.piece])
            part[-1] = _cut_text(part[-1], start if end.piece == start.piece else Cut(0), end)
        if start.offset and end.piece > start.piece:
            part[0] = _later_half(part[0], start.offset)
        parts.append(part)
        start = end

    return parts


def _cut_text(block: bytes, start: Cut, end: Cut) -> bytes:
    """Return the earlier part of a text block, without its other members."""
    text = string_member(split_object(block), "text") or ""
    return _text_block(text[start.offset : end.offset].rstrip())


def _later_half(block: bytes, offset: int) -> bytes:
    """Return the later half of a text block. Its other members, as ``cache_control``, stay."""
    text = string_member(split_object(block), "text") or ""
    return json_splice.edit(block, {"text": encode(text[offset:])})


def _keep_marks(messages: bytes, shown: Sequence[bytes]) -> bytes:
    """Return hidden messages with the ``cache_control`` of the runner's blocks that they replace.

    It goes to the block with the same text.
    """
    marks = dict(_read_marks(shown))
    if not marks:
        return messages

    said, *others = split_array(b"[%b]" % messages)
    blocks = split_array(bytes(_message.decode(said).content))
    for index, block in enumerate(blocks):
        mark = marks.pop(_words(block), None)
        if mark is not None:
            blocks[index] = json_splice.edit(block, {_MARK: mark})

    content = b"[" + b",".join(blocks) + b"]"
    return join_messages((json_splice.edit(said, {"content": content}), *others))


def _read_marks(blocks: Sequence[bytes]) -> Iterator[tuple[str, bytes]]:
    """Yield the words of each text block with ``cache_control``, and that member."""
    for block in blocks:
        mark = split_object(block).get(_MARK)
        words = _words(block)
        if words and mark not in (None, b"null"):
            yield words, mark


def _words(block: bytes) -> str:
    return "".join(_read_piece(block).text.split())


def _continue(began: Sequence[bytes], messages: bytes) -> bytes:
    """Return hidden messages of which the first continues what the runner began."""
    said, *others = split_array(b"[%b]" % messages)
    blocks = [*began, *split_array(bytes(_message.decode(said).content))]
    return join_messages((b'{"role":"assistant","content":[%b]}' % b",".join(blocks), *others))


def _rest(message: bytes, content: bytes, blocks: Sequence[bytes]) -> bytes:
    """Return the runner's message with these blocks only; b"" if there is no content in them.

    A ``content`` that was a string stays one. The API takes no text that is blank.
    """
    kept = [block for block in blocks if _has_content(block)]
    if not kept:
        return b""
    if content[:1] == b'"':
        text = string_member(split_object(kept[0]), "text") or ""
        return json_splice.edit(message, {"content": encode(text)})
    return json_splice.edit(message, {"content": b"[" + b",".join(kept) + b"]"})


def _has_content(block: bytes) -> bool:
    piece = _read_piece(block)
    return piece.kind != "text" or bool(piece.text.strip())


def without_text(messages: bytes) -> bytes:
    """Return the hidden messages of a round without the text beside their calls.

    Thinking stays: it is signed, and the API takes the call only with it.
    """
    said, *others = split_array(b"[%b]" % messages)
    blocks = split_array(bytes(_message.decode(said).content))
    kept = [block for block in blocks if read_block.decode(block).type != "text"]
    content = b"[" + b",".join(kept) + b"]"
    return join_messages((json_splice.edit(said, {"content": content}), *others))


def leave_out(
    messages: Sequence[bytes], index: int, digests: Collection[str]
) -> Mapping[int, bytes]:
    """Return the change of a runner's message that loses thinking with these digests."""
    message = messages[index]
    if not message:
        return {}

    content = bytes(_message.decode(message).content)
    blocks = _read_blocks(content) if content[:1] == b"[" else None
    kept = [block for block in blocks or () if not _is_thinking_of(block, digests)]
    if len(kept) == len(blocks or ()):
        return {}
    if not kept:
        return {index: b""}
    return {index: json_splice.edit(message, {"content": b"[" + b",".join(kept) + b"]"})}


class ThinkingRules(ReplayRules):
    """The rules of the API about thinking that is sent back to it."""

    def refuses_reasoning(self, error: bytes) -> bool:
        """Return True if an error says that thinking is not as it was, or not signed for its place.

        Not if it says that there should be some, or that the budget for it is wrong.
        """
        message = read_error_message(error)
        is_about_blocks = any(f"`{kind}`" in message for kind in _THINKING)
        return is_about_blocks and any(words in message for words in _REFUSALS)


def read_signatures(blocks: bytes) -> Sequence[str]:
    """Return what tells the thinking of a reply: signatures, and the data of what is redacted."""
    return signatures([read_block.decode(block) for block in split_array(blocks)])


SPLIT_RULES: Final = SplitRules(split, without_text, leave_out, read_signatures)
