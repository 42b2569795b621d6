"""Raw JSON: the members of an object and the elements of an array, each in its own bytes.

A response is cut into them before it is written as a stream of events. What is not cut further
travels as the provider spelled it.
"""

import msgspec

from claw_mediate.core.json_outline import MAX_WHOLE_BYTES
from claw_mediate.core.json_pieces import copy_span
from claw_mediate.core.json_splice import element_spans

type Members = dict[str, bytes]
"""An object's members, by name."""

_object_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_array_decoder = msgspec.json.Decoder(list[msgspec.Raw])
_string_decoder = msgspec.json.Decoder(str)


def split_object(document: bytes) -> Members:
    """Return the members of an object; of a repeated one, the last."""
    return {name: bytes(raw) for name, raw in _object_decoder.decode(document).items()}


def split_array(array: bytes) -> list[bytes]:
    """Return the elements of an array."""
    if len(array) > MAX_WHOLE_BYTES:
        return [copy_span(array, start, end) for start, end in element_spans(array)]
    return [bytes(raw) for raw in _array_decoder.decode(array)]


def as_raw(members: Members) -> dict[str, msgspec.Raw]:
    """Return members that ``msgspec.json.encode`` writes as they are."""
    return {name: msgspec.Raw(raw) for name, raw in members.items()}


def string_member(members: Members, name: str) -> str | None:
    """Return a member's text; None if it is absent, or no string."""
    raw = members.get(name, b"")
    return _string_decoder.decode(raw) if raw[:1] == b'"' else None


def without_line_breaks(document: bytes) -> bytes:
    """Return a document on one line, as the data of an event must be.

    A line break in JSON can only be white space between tokens.
    """
    return document.replace(b"\n", b" ").replace(b"\r", b" ")
