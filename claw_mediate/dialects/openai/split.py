"""The splitting of an assistant's message of chat completions, as live turns need it.

docs/spec/live.md section 6. An answer has one text, and the rounds are stretches of it.

    member of the runner's message     what becomes of it
    ─────────────────────────────────  ─────────────────────────────────────────────────────────────
    content                            what the last reply said stays
    reasoning, reasoning_content       the same, if they begin with what the rounds thought
    name, annotations, all others      stay

The hidden messages have the text and reasoning of the rounds in the provider's own bytes.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import msgspec

from claw_mediate.core import json_splice
from claw_mediate.core.shown import Cut, LiveRecord, Piece, find_cuts, find_end
from claw_mediate.core.split import SplitRules
from claw_mediate.core.weave import Replace, Weaves
from claw_mediate.dialects.bodies import ABSENT, Changes, decode_or_none, encode
from claw_mediate.dialects.members import split_array
from claw_mediate.dialects.openai.wire_types import function_call, read_message

_REASONING: Final = ("reasoning", "reasoning_content")
_CONTENTS: Final = ("tool_calls", "function_call", "refusal", "audio")
"""Members besides ``content`` for which alone a provider takes an assistant's message."""
_NOTHING: Final = (None, b"null", b"[]", b'""')


class _Part(msgspec.Struct):
    text: Any = None


_content = msgspec.json.Decoder(str | list[_Part] | None)
_string = msgspec.json.Decoder(str)


def split(messages: Sequence[bytes], record: LiveRecord) -> Weaves | None:
    """Return what takes the place of the first message: hidden messages, and the last reply."""
    message = messages[0]
    view = read_message.decode(message)
    # A turn that streams live has calls in the form of tools only.
    if function_call(view) is not None:
        return None

    pieces = read_pieces(view.content)
    cuts = None if pieces is None else find_cuts(pieces, record.shown)
    if not cuts:
        return None

    return {0: Replace(record.hidden, _rest(message, cuts[-1], record))}


def read_pieces(content: msgspec.Raw) -> list[Piece] | None:
    """Return the pieces of a content: of parts, each. None for a form that we do not know."""
    if bytes(content) == bytes(ABSENT):
        return []

    decoded = decode_or_none(_content, content)
    if isinstance(decoded, str):
        return [Piece("text", decoded)]
    if not isinstance(decoded, list):
        return None

    return [
        Piece("text", part.text) if isinstance(part.text, str) else Piece("other")
        for part in decoded
    ]


def _rest(message: bytes, cut: Cut, record: LiveRecord) -> bytes:
    """Return what is left of the runner's message behind the rounds; b"" if nothing is."""
    parsed = json_splice.Object(message)
    changes: Changes = {}
    if cut != Cut(0):
        content = content_after(parsed.value("content") or b"null", cut)
        has_others = any(parsed.value(name) not in _NOTHING for name in _CONTENTS)
        if content in _NOTHING and not has_others:
            return b""
        changes["content"] = b"null" if content in _NOTHING else content

    for name in _REASONING:
        changes |= _reasoning_after(parsed.value(name), name, record)
    return parsed.edit(changes)


def content_after(content: bytes, cut: Cut) -> bytes:
    """Return what is left of a content behind a cut, in the form that it had."""
    if content[:1] == b'"':
        return encode(_string.decode(content)[cut.offset :]) if cut.piece == 0 else b'""'
    if content[:1] != b"[":
        return content

    parts = split_array(content)[cut.piece :]
    if parts and cut.offset:
        # The members of a part that is cut, as ``cache_control``, stay with its later half.
        parsed = json_splice.Object(parts[0])
        text = _string.decode(parsed.value("text") or b'""')
        parts[0] = parsed.edit({"text": encode(text[cut.offset :])})
    return b"[" + b",".join(parts) + b"]"


def _reasoning_after(value: bytes | None, name: str, record: LiveRecord) -> Changes:
    """Return the change of reasoning that runners join over rounds, as they do a text.

    What is not the rounds' own stays. So does reasoning that is not what was shown.
    """
    if value is None or value[:1] != b'"':
        return {}

    text = _string.decode(value)
    place = 0
    for each in record.shown:
        end = find_end(text, place, each.reasoning)
        if end is None:
            return {}
        place = end

    if not place:
        return {}
    return {name: encode(text[place:]) if text[place:].strip() else None}


def without_text(messages: bytes) -> bytes:
    """Return the hidden messages of a round without the text beside their calls."""
    return b",".join(map(_without_text, split_array(b"[%b]" % messages)))


def _without_text(message: bytes) -> bytes:
    if read_message.decode(message).role != "assistant":
        return message
    return json_splice.edit(message, {"content": b"null"})


def leave_out(
    messages: Sequence[bytes], index: int, digests: Collection[str]
) -> Mapping[int, bytes]:
    """Return no changes: what is signed in chat completions is shown of the last reply only."""
    del messages, index, digests
    return {}


def read_signatures(message: bytes) -> Sequence[str]:
    """Return (): what is signed in chat completions waits for the verdict."""
    del message
    return ()


SPLIT_RULES: Final = SplitRules(split, without_text, leave_out, read_signatures, joins_text=True)
