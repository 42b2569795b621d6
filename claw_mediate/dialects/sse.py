"""Framing of server-sent events (WHATWG HTML, section 9.2): ours to write, and the provider's to read for usage."""

from __future__ import annotations

import re

_BREAKS = re.compile(r"[\x00-\x1f\x7f]+")


def event(data: bytes, name: str | None = None) -> bytes:
    """One event. ``data`` is JSON in one line."""
    assert b"\n" not in data
    assert b"\r" not in data
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + data + b"\n\n"


def comment(text: str) -> bytes:
    """A comment line, which every parser must skip."""
    return b": " + _BREAKS.sub(" ", text).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"
