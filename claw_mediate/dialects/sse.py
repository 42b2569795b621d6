"""Server-sent events (WHATWG HTML, section 9.2): their framing, and cutting a finished response
into the deltas of a stream.

Members that are not cut travel in their own bytes.
"""

import re
from collections.abc import Iterator

import msgspec

from claw_mediate.core.json_outline import MAX_WHOLE_BYTES
from claw_mediate.core.json_pieces import copy_span
from claw_mediate.core.json_splice import element_spans

_BREAKS = re.compile(r"[\x00-\x1f\x7f]+")


def event(data: bytes, name: str | None = None) -> bytes:
    """Return one event. ``data`` is JSON in one line."""
    assert b"\n" not in data
    assert b"\r" not in data
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + data + b"\n\n"


def comment(text: str) -> bytes:
    """Return a comment line, which every parser must skip."""
    return b": " + _BREAKS.sub(" ", text).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"

DELTA_LENGTH = 48  # Characters of text, or of a call's arguments, in one delta
_MAX_DELTAS = (
    1000  # Deltas of one text: a longer text has longer pieces, since each delta costs its frame
)

type Members = dict[str, bytes]  # An object's members, each in its own bytes

_object_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_array_decoder = msgspec.json.Decoder(list[msgspec.Raw])
_string_decoder = msgspec.json.Decoder(str)


def split_object(document: bytes) -> Members:
    return {name: bytes(raw) for name, raw in _object_decoder.decode(document).items()}


def split_array(array: bytes) -> list[bytes]:
    if len(array) > MAX_WHOLE_BYTES:
        return [copy_span(array, start, end) for start, end in element_spans(array)]
    return [bytes(raw) for raw in _array_decoder.decode(array)]


def as_raw(members: Members) -> dict[str, msgspec.Raw]:
    """Return members that are encoded as they are."""
    return {name: msgspec.Raw(raw) for name, raw in members.items()}


def string_member(members: Members, name: str) -> str | None:
    """Return a member's text; None where it is no string."""
    raw = members.get(name, b"")
    return _string_decoder.decode(raw) if raw[:1] == b'"' else None


def without_line_breaks(document: bytes) -> bytes:
    """Replace line breaks, which in JSON can only be white space between tokens,
    and would end an event.
    """
    return document.replace(b"\n", b" ").replace(b"\r", b" ")


def split_text(text: str) -> Iterator[str]:
    """Yield a text in parts, cut between characters (never within a surrogate pair
    of a runner that counts in UTF-16).
    """
    size = max(DELTA_LENGTH, -(-len(text) // _MAX_DELTAS))
    return (text[start : start + size] for start in range(0, len(text), size))
