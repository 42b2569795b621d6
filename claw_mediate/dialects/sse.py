"""Server-sent events that we write (WHATWG HTML, section 9.2): their frame, and their deltas."""

import re
from collections.abc import Iterator

_CR, _LF = b"\r\n"
DONE = b"data: [DONE]\n\n"

DELTA_LENGTH = 48  # Characters of text, or of a call's arguments, in one delta
# Deltas of one text. A longer text has longer deltas, since each costs its frame.
_MAX_DELTAS = 1000

_BREAKS = re.compile(r"[\x00-\x1f\x7f]+")


def event(data: bytes, name: str | None = None) -> bytes:
    """Return one event. ``data`` is JSON in one line."""
    assert _LF not in data
    assert _CR not in data
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + data + b"\n\n"


def comment(text: str) -> bytes:
    """Return a comment line, which every parser must skip."""
    return b": " + _BREAKS.sub(" ", text).encode() + b"\n\n"


def split_text(text: str) -> Iterator[str]:
    """Yield the parts of a text, one for each delta.

    They are cut between characters: never within a surrogate pair, for a runner that counts in
    UTF-16.
    """
    size = max(DELTA_LENGTH, -(-len(text) // _MAX_DELTAS))
    return (text[start : start + size] for start in range(0, len(text), size))
