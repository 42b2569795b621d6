"""Edits of a request on the wire, for every dialect: additions are spliced in, and all else stays byte for byte."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from claw_mediate.core import json_splice
from claw_mediate.core.types import ToolUse
from claw_mediate.dialects.base import ProviderRequest

type Changes = dict[str, bytes | None]


def encode(value: object) -> bytes:
    """Return compact JSON: the same value gives the same bytes, so that a provider's prompt cache holds."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogatepass")


def array_member(body: json_splice.Object, name: str) -> bytes:
    """Return the array of that name; an absent one is empty."""
    value = body.value(name)
    return b"[]" if value in (None, b"null") else value or b"[]"


def insert_messages(messages: bytes, insertions: Mapping[int, bytes], *cuts: tuple[int, int, bytes]) -> bytes:
    """Insert hidden messages right before the message at their index; ``cuts`` are other edits of the same array."""
    places = json_splice.element_spans(messages) if insertions else []
    return json_splice.splice(
        messages, [*((places[i][0], places[i][0], hidden + b",") for i, hidden in insertions.items()), *cuts]
    )


def append_text(content: bytes, text: str) -> bytes:
    """Append text to a content of either form: a string grows, a list of blocks gets one more."""
    if content[:1] == b"[":
        return json_splice.append(content, [encode({"type": "text", "text": text})])
    if content[:1] != b'"':
        return encode(text)
    separator = b"" if content == b'""' else b"\\n\\n"
    return content[:-1] + separator + encode(text)[1:]


def request_variants(
    body: json_splice.Object, changes: Changes, choice: Callable[[ToolUse], Changes]
) -> Callable[[ToolUse], ProviderRequest]:
    """Return the edited request for each use of tools, made when it is needed: bodies may be large."""
    built: dict[ToolUse, ProviderRequest] = {}

    def build(use: ToolUse) -> ProviderRequest:
        if use not in built:
            built[use] = ProviderRequest(*body.split(changes | choice(use), "messages"))
        return built[use]

    return build
