"""Secrets that must be in nothing that leaves, the forms in which peers write them,
and how to look for them.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterator
from urllib.parse import quote, unquote

PROVIDER_KEY = "sk-planted/provider+key-0001"
TOOL_TOKEN = "planted/tool+token-0002"
AGENT_SECRET = "planted/agent+secret-0003"
ALL = (PROVIDER_KEY, TOOL_TOKEN, AGENT_SECRET)
PLAIN = " ".join(ALL)
"""The text that a careless peer writes into its errors."""

FORMS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "with escaped slashes": lambda text: text.replace("/", "\\/"),
    "every character escaped": lambda text: "".join(f"\\u{ord(mark):04x}" for mark in text),
    "percent-encoded": lambda text: quote(text, safe=""),
    "in base64": lambda text: base64.b64encode(text.encode()).decode(),
    "within base64": lambda text: base64.b64encode(f"user:{text}!".encode()).decode(),
    "in base64 for URLs": lambda text: base64.urlsafe_b64encode(f"k={text}".encode()).decode(),
    "within JSON": lambda text: json.dumps(json.dumps({"k": text}))[1:-1],
}
"""The forms in which peers write a text between the quotes of a JSON string."""
_PACKED = re.compile(r"[A-Za-z0-9+/_-]{16,}")
_ESCAPE = re.compile(r"\\+u00([0-7][0-9a-f])")


def found(data: bytes) -> list[str]:
    """Return the planted secrets that can be read in the data, whatever form they have."""
    texts = list(_readings(data.decode(errors="replace")))
    return [secret for secret in ALL if any(secret in text for text in texts)]


def _readings(text: str) -> Iterator[str]:
    yield text
    plain = _ESCAPE.sub(lambda escape: chr(int(escape[1], 16)), text)
    plain = re.sub(r"\\+/", "/", plain)
    yield plain
    yield unquote(plain)
    for run in _PACKED.findall(plain):
        for start in range(4):
            part = run[start : len(run) - (len(run) - start) % 4].translate(
                str.maketrans("-_", "+/")
            )
            try:
                yield base64.b64decode(part).decode(errors="replace")
            except (
                binascii.Error
            ):  # pragma: no cover - whole groups of base64's alphabet always decode
                continue
